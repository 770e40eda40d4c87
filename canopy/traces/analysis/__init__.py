"""The Spark analysis of the traces of a run (docs/design/traces.md).

`analyze` reads the JSON lines that all nodes wrote, computes which events each subscription should
have received, compares that with the deliveries, and writes Parquet tables, `summary.json` and
`report.html`. Of the project it uses the trace schema (and its report the wording of numbers), so
that its verdict is independent.

``run`` is the order of the stages, ``window`` the time that is read. In that order: ``spark/``
finds a Java and starts Spark; ``parsing/`` turns lines into records, and ``read`` has it do that
for a folder; ``completeness/`` says what is absent from them; ``verdict/`` computes the pairs of
event and subscription that match, compares them with the deliver records and comes to a result;
``walks`` counts how trees were found; ``load`` adds up the work of each node, and merges what
several nodes saw of one loss or election; ``wrong`` groups the deliveries that are wrong;
``latencies`` spreads latencies over time, hops, attributes, hosts and links; ``details`` and
``slowest`` select what the report lists; ``summary`` has the results; ``output`` is the folder, and
``report/`` the page. ``tasks`` says how much Spark divides; ``constants`` has the numbers.
``remote`` copies from and to other file systems. ``days/`` is the same analysis day by day, with a
state. ``health/`` is another job over the same records, which says how healthy the nodes are;
``streams`` judges what was consumed of streams; ``check/`` says without Spark what is absent, and
``prune`` removes the files of days that are no longer kept, and closes days of a state.

PySpark is imported when an analysis begins: importing this package is cheap.
"""

from canopy.traces.analysis.constants import AnalysisError
from canopy.traces.analysis.days.analysis import analyze_days
from canopy.traces.analysis.health.job import HEALTH_STAGES, Follower, find_health, following
from canopy.traces.analysis.health.signals import PAPER, Thresholds
from canopy.traces.analysis.remote import analyze_places
from canopy.traces.analysis.run import analyze
from canopy.traces.analysis.spark.paths import named
from canopy.traces.analysis.spark.session import spark_session
from canopy.traces.analysis.summary import AnalysisSummary
from canopy.traces.analysis.tasks import STAGES, OnProgress
from canopy.traces.analysis.verdict.outcome import EXACT, NOT_JUDGED
from canopy.traces.analysis.window import TimeWindow, parse_time

__all__ = [
    "EXACT",
    "HEALTH_STAGES",
    "NOT_JUDGED",
    "PAPER",
    "STAGES",
    "AnalysisError",
    "AnalysisSummary",
    "Follower",
    "OnProgress",
    "Thresholds",
    "TimeWindow",
    "analyze",
    "analyze_days",
    "analyze_places",
    "find_health",
    "following",
    "named",
    "parse_time",
    "spark_session",
]
