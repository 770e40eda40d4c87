"""The Spark analysis of a run's traces (DESIGN.md section 6, Traces): does the overlay do its job?

`analyze` reads the JSON lines that all nodes wrote, works out by itself which events each
subscription should have received, compares, and writes Parquet tables, `summary.json` and
`report.html`. It knows the trace schema and nothing else of the project, so that its verdict is
independent.

In the order of the data: `java`, `session` (Spark is found and started), `read` (lines become
records), `terms`, `selectors`, `expected` (who should receive what), `deliveries` (the verdicts),
`walks`, `load`, `slowest`, `details`, `summary`, `report/`, and `run`, which calls them all.

PySpark is imported when an analysis begins and not before: importing this package is cheap.
"""

from canopy.traces.analysis.errors import AnalysisError
from canopy.traces.analysis.progress import STAGES, OnProgress, RichProgress
from canopy.traces.analysis.run import analyze
from canopy.traces.analysis.session import spark_session
from canopy.traces.analysis.summary import Summary

__all__ = [
    "STAGES",
    "AnalysisError",
    "OnProgress",
    "RichProgress",
    "Summary",
    "analyze",
    "spark_session",
]
