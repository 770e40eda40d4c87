"""The analysis from end to end: traces in, Parquet tables, summary.json and report.html out.

Lines become records, records become publications and subscriptions, these become matching pairs,
which are compared with the deliveries; walks, trees and load follow. What is used more than once is
written as a table first and read back from there, so that nothing is computed twice and the numbers
come from the tables in the output folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

from canopy.traces.analysis import details, latencies, load, output, read, slowest, walks, wrong
from canopy.traces.analysis.completeness.collect import (
    Completeness,
    conclude,
    facts_by_file,
    merged,
    runs_table,
)
from canopy.traces.analysis.completeness.overlays import OverlayFacts
from canopy.traces.analysis.constants import DAY_SECONDS, TIME_BINS
from canopy.traces.analysis.days.verdicts import trends
from canopy.traces.analysis.parsing import blocks
from canopy.traces.analysis.parsing.blocks import CORRUPT
from canopy.traces.analysis.parsing.tally import Tally
from canopy.traces.analysis.report import Story, render
from canopy.traces.analysis.report.downloads import leave_downloads
from canopy.traces.analysis.spark.paths import for_reading, for_writing
from canopy.traces.analysis.spark.session import (
    EMPTY,
    OnTasks,
    check_shared,
    first_line,
    job_errors,
    spark_session,
    watched_tasks,
)
from canopy.traces.analysis.summary import AnalysisSummary, Findings
from canopy.traces.analysis.tasks import (
    STAGES,
    BeginCall,
    OnProgress,
    at_once,
    computed_once,
    frame_of_table,
    in_one_task,
    is_small,
    silent,
)
from canopy.traces.analysis.verdict import deliveries, expected, numbering
from canopy.traces.analysis.verdict.expected import permitted_stretches
from canopy.traces.analysis.verdict.outcome import OverlayOutcome, outcome_of, overall
from canopy.traces.analysis.window import ALWAYS, TimeWindow
from canopy.traces.schema import KINDS, VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


T = TypeVar("T")


class AnalysisOptions(TypedDict, total=False):
    """The options of an analysis."""

    master: str | None
    """The URL of a Spark cluster whose machines see all folders under the same paths; None: this
    machine."""
    progress: OnProgress
    overwrite: bool
    """Replace a report in an output folder with other content."""
    session: SparkSession | None
    """An open session that is used."""
    settings: Mapping[str, str]
    """Settings of Spark, which replace those of `spark_session`."""
    window: TimeWindow
    """Only records of that time are read and judged."""
    on_tasks: OnTasks | None
    """Called with the progress of Spark's tasks."""


def analyze(
    traces: Path, out: Path, *, story: Story = (), **options: Unpack[AnalysisOptions]
) -> AnalysisSummary:
    """Analyse the trace folder `traces` into the folder `out` and return the numbers.

    `story`: faults that were injected, for the report. Raises AnalysisError, with what to do, for a
    folder without traces (of that time), an output folder with other content than an earlier report
    (unless `overwrite`) or one that a cluster does not share, a missing Java, or a job that failed.
    """
    size = read.check_folder(traces, options.get("window", ALWAYS))
    return start(partial(Analysis, story=story), traces, out, size, **options)


def start(
    begin: Callable[[SparkSession, Path, OnProgress], Analysis],
    traces: Path,
    out: Path,
    input_bytes: int,
    *,
    master: str | None = None,
    progress: OnProgress = silent,
    overwrite: bool = False,
    session: SparkSession | None = None,
    settings: Mapping[str, str] = EMPTY,
    window: TimeWindow = ALWAYS,
    on_tasks: OnTasks | None = None,
) -> AnalysisSummary:
    """Run the analysis that `begin` makes, with `AnalysisOptions`."""
    output.prepare(out, overwrite)
    progress(STAGES[0], 0, len(STAGES))
    opened = nullcontext(session) if session else spark_session(master, input_bytes, settings)
    with opened as spark, job_errors():
        check_shared(spark, out)
        with watched_tasks(spark, on_tasks):
            return begin(spark, out, progress).run(traces, window)


@dataclass(frozen=True)
class Compared:
    """The publications, the subscriptions (how many of them are unreadable) and the pairs with
    their verdicts, as tables."""

    published: DataFrame
    subscribed: DataFrame
    unreadable: int
    judged: DataFrame


DOWNLOADS: Final = (
    *("deliveries", "subscriptions", "publications", "attributes", "hosts", "links", "load"),
    *("walks", "trees", "corrupt"),
)
"""The tables that the report offers, those first that most are looked for."""

EVERY_KIND: Final = frozenset((*KINDS, CORRUPT))


class Analysis:
    """One analysis: the session, the output folder and the progress that all stages use."""

    def __init__(
        self, spark: SparkSession, out: Path, progress: OnProgress, story: Story = ()
    ) -> None:
        self.story = story
        self.spark = spark
        self.out = out
        self._progress = progress
        self._done = 0
        self.since = 0.0
        """Seconds since 1970: what is counted and shown begins then."""
        self.late = 0  # records of days before, which were left out
        self._undrawn: list[str] = []
        self.permits = 0  # records of what a policy left of a subscription
        self.confined: DataFrame | None = None
        """Subscriptions as policies narrowed them, if there are tenants'."""
        self.kinds = EVERY_KIND
        """The kinds of records that there may be: others are not looked for."""

    def stage(self) -> None:
        """The next stage begins."""
        self._done += 1
        self._progress(STAGES[self._done], self._done, len(STAGES))

    def table(self, name: str, frame: DataFrame) -> DataFrame:
        """Write a table and return it as read back from Parquet."""
        path = self.out / "tables" / name
        if is_small(frame):
            return self._small_table(path, frame)
        frame.write.parquet(for_writing(path))
        return self.spark.read.schema(frame.schema).parquet(for_reading(path))

    def _small_table(self, path: Path, frame: DataFrame) -> DataFrame:
        """The same without Spark's writer and reader, which cost more than a few rows."""
        rows = frame.toArrow()
        output.write_table(path, rows)
        return frame_of_table(self.spark, rows, frame.schema)

    def run(self, traces: Path, window: TimeWindow) -> AnalysisSummary:
        """Run all stages in order. Returns the numbers."""
        self.stage()
        complete, records, tally = self.read(traces, window)
        everything = complete.kept_by_all(records)
        if everything is not None:
            records, tally = records.where(everything), None
        rows = read.counted(records) if tally is None else tally.rows.to_pylist()
        self.kinds = frozenset(row["kind"] for row in rows)
        self.permits = sum(row["permits"] or 0 for row in rows)
        loads = self._load(rows)
        self.stage()
        with at_once() as begin:
            findings = self._findings(begin, complete, records, rows, loads)
        self.stage()
        self.finish(findings)
        return findings.summary

    def _findings(
        self,
        begin: BeginCall,
        complete: Completeness,
        records: DataFrame,
        tally: list[dict[str, Any]],
        loads: list[dict[str, Any]],
    ) -> Findings:
        """Compute all results from the `records`, the rows of a `tally` and the `loads`. Queries
        that do not wait for another result run at once."""
        spark = self.spark
        first = max(self.since, min((row["first"] for row in loads), default=0.0))
        last = max((row["last"] for row in loads), default=0.0)
        walked = begin(self.table, "walks", walks.walk_table(spark, records))
        travelled = begin(self._trees, records)
        agree = complete.clocks_agree
        places = begin(latencies.compared_places, spark, records, tally, agree)
        unpublished = begin(self.unpublished, records)
        width = max((last - first) / TIME_BINS, 0.001)
        timeline = begin(details.timeline, spark, records, first, width)
        met = begin(self._incidents, records)
        corrupt_examples = begin(self._corrupt, records)

        found = self.compare(records, runs_table(spark, complete), complete)
        of_each = details.subscription_table(spark, found.subscribed, found.judged)
        subscribed = begin(lambda: self.table("subscriptions", of_each).toArrow())
        bins = latencies.pair_bins(spark, found.judged, first, width)
        counts = latencies.count_verdicts(bins.verdicts)
        named = (found.judged, found.published, found.subscribed)
        slow = begin(slowest.slowest_paths, spark, records, *named)
        bad = begin(wrong.find_wrong, spark, records, *named, counts)
        lines = begin(self.lines, found, first, last)
        unseen = begin(self._unseen, found, complete)
        faults = expected.find_faults(spark, found.published, unpublished.result())
        outcomes = self._outcomes(complete, bins.verdicts, counts, faults, unseen.result())

        self.stage()
        met_, slowest_ = self._shown("incidents", met, []), self._shown("slowest events", slow, [])
        examples = self._shown("unreadable lines", corrupt_examples, [])
        times = self._shown("the run over time", timeline, [])
        walk = self._shown("a walk", begin(walks.example_walk, walked.result(), records), None)
        walk_counts = walks.count_walks(walks.counted_walks(walked.result()), tally)
        tree = walks.count_trees(travelled.result())
        self.stage()
        worst = details.worst_subscriptions(subscribed.result())
        corrupt = details.corrupt_lines(tally)
        self.stage()
        summary = self._summary(
            complete,
            unseen.result(),
            outcomes,
            counts,
            walk_counts,
            tree,
            loads,
            last - first,
            found.unreadable,
            corrupt,
            worst,
            bad.result().groups,
            lines.result(),
        )
        lists = details.Details(
            latency=details.latency_histogram(bins.verdicts),
            subscriptions=worst,
            corrupt=corrupt,
            corrupt_examples=examples,
            reasons=details.loss_reasons(tally),
            timeline=times,
            bin_seconds=width,
            withheld=details.withheld_most(subscribed.result()),
            waits=details.waits_of(subscribed.result()),
        )
        compared = self._shown("hosts and links", places, latencies.NOT_COMPARED)
        parts = latencies.in_parts(bins, travelled.result(), tally, compared)
        for name, rows in parts.tables().items():
            output.write_table(self.out / "tables" / name, rows)
        return Findings(
            summary,
            walk_counts,
            walk,
            tree,
            lists,
            bad.result(),
            slowest_,
            names={row["node"]: row["name"] for row in loads if row["name"]},
            routing=next((row["routing"] for row in loads if row["routing"]), None),
            first=first,
            incidents=met_,
            latencies=parts,
        )

    def _shown(self, name: str, found: Future[T], otherwise: T) -> T:
        """Return a result that is only shown, or `otherwise` if it cannot be computed: the verdict
        does not depend on it."""
        try:
            return found.result()
        except Exception as error:
            self._undrawn.append(f"{name} ({first_line(error)})")
            return otherwise

    def read(
        self, traces: Path, window: TimeWindow
    ) -> tuple[Completeness, DataFrame, Tally | None]:
        """Return the completeness of the records of the `window`; the records as a table, without
        copies; and their tally, None if it counts copies."""
        files = read.files_within(traces, window)
        stored = self.out / "tables" / "records"
        records, tally = read.store_records(self.spark, files, stored, window)
        check_shared(self.spark, self.out)  # by executors, too, that have joined since the start
        facts = merged(facts_by_file(self.spark, records, tally).values())
        begins_within = window.since is not None
        complete, once = conclude(self.spark, facts, records, begins_within=begins_within)
        return complete, once, tally if once is records else None

    def _unseen(self, found: Compared, complete: Completeness) -> dict[str, numbering.Unseen]:
        """Find the events and subscriptions without a record, by their numbers."""
        made = found.subscribed.where("subscribed IS NOT NULL")
        return numbering.unseen(
            self.spark,
            complete,
            numbering.numbered(self.spark, found.published, "event"),
            numbering.numbered(self.spark, made, "subscription"),
            self.since,
        )

    def has(self, *kinds: str) -> bool:
        """Return whether there may be records of one of these `kinds`."""
        return not self.kinds.isdisjoint(kinds)

    def _corrupt(self, records: DataFrame) -> list[details.Row]:
        """Writes the table of corrupt lines. Returns examples."""
        lines = records.where(f"kind = '{CORRUPT}'").select("file", "problem", "line")
        if self.has(CORRUPT):
            self.table("corrupt", lines)
            return details.corrupt_examples(records)
        output.write_table(
            self.out / "tables" / "corrupt", blocks.columns().empty_table().select(lines.columns)
        )
        return []

    def _trees(self, records: DataFrame) -> list[dict[str, Any]]:
        """Write the table of trees. Returns it counted."""
        return walks.counted_trees(self.table("trees", walks.tree_table(self.spark, records)))

    def _incidents(self, records: DataFrame) -> list[dict[str, Any]]:
        return load.incidents(self.spark, records) if self.has("incident") else []

    def compare(self, records: DataFrame, runs: DataFrame, complete: Completeness) -> Compared:
        """Compare the expected deliveries with those that were made."""
        spark = self.spark
        published = self.table("publications", expected.publications(spark, records, runs))
        self._torn = any(run.holes for run in complete.runs)
        subscribed, unreadable = self.subscriptions(records, runs)
        pairs = expected.matching_pairs(spark, published, subscribed, self.trees, self.confined)
        self.stage()
        judged = self.judged(records, pairs, published, subscribed, complete)
        return Compared(published, subscribed, unreadable, self.table("deliveries", judged))

    def subscriptions(self, records: DataFrame, runs: DataFrame) -> tuple[DataFrame, int]:
        """The subscriptions, with tree_key NULL for trees that are unreadable or `altered`; and the
        number of the unreadable ones."""
        made = computed_once(expected.subscriptions(self.spark, records, runs))
        if self.permits:
            self.confined = computed_once(permitted_stretches(self.spark, records))
        self.trees = expected.distinct_trees(made)
        bad = ", ".join(f"'{key}'" for key, _ in self.trees.bad) or "''"
        other = ", ".join(f"'{key}'" for key in self.trees.altered) or "''"
        altered = f"coalesce({expected.WRITTEN_KEY} IN ({other}), false)"
        made = made.selectExpr(
            *(name for name in made.columns if name != "tree_key"),
            f"CASE WHEN tree_key NOT IN ({bad}) AND NOT {altered} THEN tree_key END AS tree_key",
            f"{altered} AS altered",
        )
        made = self._with_life(made, records)
        # Without any selector what is absent may have it: that is judged with its deliveries.
        rows = self.spark.sql(
            """
            SELECT overlay, count(*) AS n, count_if(altered) AS altered,
                   count_if(tree_key IS NULL AND NOT altered) AS bad,
                   count_if(tree_key IS NULL AND NOT altered
                            AND NOT coalesce(selector LIKE 'redacted:%', false)
                            AND (tree IS NOT NULL OR size(holes) = 0)) AS wrong
            FROM {made} GROUP BY overlay
            """,
            made=made,
        ).collect()
        self._subscribed = sum(row["n"] for row in rows)
        self._unreadable = {row["overlay"]: row["wrong"] for row in rows}
        self._altered = {row["overlay"]: row["altered"] for row in rows}
        return made, sum(row["bad"] for row in rows)

    def _with_life(self, made: DataFrame, records: DataFrame) -> DataFrame:
        """Add the column `alive`: for a subscription of a run with holes the time of the last
        delivery, before which no unsubscribe can lie."""
        if not self._torn:
            return made.selectExpr("*", "CAST(NULL AS BIGINT) AS alive")
        seen = records.where("kind = 'deliver'").groupBy("subscription").agg({"hlc": "max"})
        seen = seen.toDF("subscription", "alive")
        joined = made.join(seen, "subscription", "left")
        alive = "IF(size(holes) > 0, alive, NULL) AS alive"
        return computed_once(in_one_task(joined.selectExpr(*made.columns, alive)))

    def judged(
        self,
        records: DataFrame,
        pairs: DataFrame,
        published: DataFrame,
        subscribed: DataFrame,
        complete: Completeness,
    ) -> DataFrame:
        """The pairs with their verdicts (`deliveries.judge`)."""
        return deliveries.judge(
            self.spark,
            records,
            pairs,
            published,
            subscribed,
            complete,
            has_dropped=self.has("drop"),
            has_refused=self.has("refused"),
        )

    def _outcomes(
        self,
        complete: Completeness,
        bins: Sequence[latencies.Row],
        counts: deliveries.VerdictCounts,
        found: expected.EventFaults,
        unseen: Mapping[str, numbering.Unseen],
    ) -> dict[str, OverlayOutcome]:
        """The result of each overlay, by its name."""
        overlays = {each.name: each for each in complete.overlays}
        by_overlay = {
            name: latencies.count_verdicts(row for row in bins if row["name"] == name)
            for name in overlays
            if len(overlays) > 1
        }
        homes = {run.node: each.name for each in complete.overlays for run in each.runs}
        homes |= {node: each.name for each in complete.overlays for node in each.absent}
        whole = set(complete.whole)
        lost: dict[str, int] = {}
        open_: dict[str, int] = dict(found.unreadable)
        doubts: dict[str, tuple[str, ...]] = {}
        for name, each in unseen.items():
            open_[name] = open_.get(name, 0) + each.owed
            doubts[name] = each.reasons
        for run, number in found.unpublished.items():
            home = homes.get(run.rpartition(".")[0], next(iter(overlays)))
            to = lost if run in whole else open_
            to[home] = to.get(home, 0) + number
        return {
            name: outcome_of(
                self.lasting(each),
                by_overlay.get(name, counts),
                {
                    "unreadable": self._unreadable.get(name, 0),
                    "altered": self._altered.get(name, 0),
                    "republished": found.republished.get(name, 0),
                    "unpublished": lost.get(name, 0),
                    "contradictions": sum(
                        complete.contradictions.get(node, 0) for node in each.nodes
                    ),
                },
                open_.get(name, 0),
                doubts.get(name, ()),
            )
            for name, each in overlays.items()
        }

    def unpublished(self, records: DataFrame) -> dict[str, int]:
        """By run the events that it did not publish, though nodes handled them."""
        return expected.unpublished(self.spark, records)

    def lasting(self, overlay: OverlayFacts) -> OverlayFacts:
        """Return the facts that the result of this overlay depends on."""
        return overlay

    def lines(self, found: Compared, first: float, last: float) -> list[dict[str, Any]]:
        """A line for each day, if the records are of more than one."""
        if first // DAY_SECONDS == last // DAY_SECONDS:
            return []
        return trends(self.spark, found.published, found.judged)

    def _load(self, tally: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows = load.load_rows(tally, self.since)
        rows.sort(key=lambda row: (_natural(row["name"] or ""), row["node"]))
        output.write_table(self.out / "tables" / "load", output.table_of(rows, load.COLUMNS))
        return rows

    def _summary(
        self,
        complete: Completeness,
        unseen: Mapping[str, numbering.Unseen],
        outcomes: dict[str, OverlayOutcome],
        counts: deliveries.VerdictCounts,
        walk_counts: walks.WalkCounts,
        tree: walks.TreeHops,
        loads: list[dict[str, Any]],
        seconds: float,
        unreadable: int,
        corrupt: list[dict[str, Any]],
        worst: list[dict[str, Any]],
        groups: list[dict[str, Any]],
        days: list[dict[str, Any]],
    ) -> AnalysisSummary:
        def total(name: str) -> int:
            return sum(row[name] for row in loads)

        sample = complete.sample
        numbered = sum(each.numbered for each in unseen.values())
        if numbered and any(run.shares for run in complete.runs):
            sample = min(sample, total("published") / numbered)
        # Counters are of all events, verdicts of the sampled ones: scale the counters.
        messages = total("data_messages")
        share = messages * sample
        ratio = counts.delivered / counts.expected if counts.expected else None
        outcome = overall(outcomes, counts)
        return AnalysisSummary(
            version=VERSION,
            nodes=len(loads),
            published=total("published"),
            **(vars(counts) | {"unjudged": outcome.unjudged}),
            **_proof(complete, outcomes, outcome),
            refused=total("refused"),
            drops=total("drops"),
            subscriptions=self._subscribed,
            unreadable_subscriptions=unreadable,
            table_hits=walk_counts.at_once,
            walks=walk_counts.started,
            walk_hits=walk_counts.hits,
            ring_hits=walk_counts.by_ring,
            absent=walk_counts.absent,
            walk_hit_rate=walk_counts.hit_rate,
            walks_findable=walk_counts.findable,
            walk_hops=walk_counts.hops,
            blocked=walk_counts.blocked,
            recovered=walk_counts.recovered,
            walk_messages=walk_counts.messages,
            tree_hops=tree.hops,
            messages=messages,
            other_messages=total("other_messages"),
            messages_per_delivery=share / counts.delivered if counts.delivered else None,
            # CBDLO section 5.3: messages divided by the share of deliveries that was made.
            effective_distribution_cost=share / ratio if ratio else None,
            load=[
                {k: v for k, v in row.items() if k not in ("routing", "sample")} for row in loads
            ],
            load_spread=load.spread_of(loads),
            corrupt_lines=sum(row["count"] for row in corrupt),
            sample=sample,
            seconds=seconds,
            report=str((self.out / "report.html").resolve()),
            wrong=groups,
            by_subscription=[details.counts_of(row) for row in worst],
            days=days,
            since=self.since or None,
            undrawn=self._undrawn,
            late_records=self.late,
        )

    def finish(self, findings: Findings) -> None:
        """Write the numbers, and the report."""
        output.write_summary(self.out, findings.summary.to_dict())
        findings = replace(findings, downloads=leave_downloads(self.out, DOWNLOADS))
        (self.out / "report.html").write_text(render(findings, self.story), encoding="utf-8")
        self._progress("done", len(STAGES), len(STAGES))


def _proof(
    complete: Completeness, outcomes: Mapping[str, OverlayOutcome], outcome: OverlayOutcome
) -> dict[str, Any]:
    """Return the summary's fields on the result and on absences."""
    return {
        "unjudged_share": outcome.unjudged_share,
        "result": outcome.result,
        "faults": outcome.faults,
        "reasons": list(outcome.reasons),
        "overlays": [
            {
                "name": each.name,
                "nodes": len(each.nodes),
                "result": outcomes[each.name].result,
                "faults": outcomes[each.name].faults,
                "reasons": list(outcomes[each.name].reasons),
                "expected": outcomes[each.name].counts.expected,
                "delivered": outcomes[each.name].counts.delivered,
                "withheld": outcomes[each.name].counts.withheld,
                "unjudged": outcomes[each.name].unjudged,
                "latency_ms": outcomes[each.name].counts.latency_ms,
            }
            for each in complete.overlays
        ],
        "clocks": complete.clock_offsets(),
        "clock_steps": complete.clock_steps(),
        "clocks_agree": complete.clocks_agree,
        "absent_nodes": [node for each in complete.overlays for node in each.absent],
        "incomplete": [
            {"node": run.node, "run": run.run, "records": hole.records, "cause": hole.cause}
            for run in complete.runs
            for hole in run.holes
        ],
        "copies": complete.copies,
    }


def _natural(name: str) -> list[tuple[int, str]]:
    """A sort key that puts node-2 before node-10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]
