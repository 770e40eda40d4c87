"""The analysis with a state: it reads new files, judges the days that they change, and takes all
else from the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from canopy.traces.analysis.completeness.collect import Completeness, conclude, merged
from canopy.traces.analysis.completeness.overlays import OverlayFacts
from canopy.traces.analysis.days import intake, verdicts
from canopy.traces.analysis.days.intake import new_files
from canopy.traces.analysis.days.state import (
    JUDGED,
    PUBLISHED,
    RECORDS,
    StateFolder,
    opened,
)
from canopy.traces.analysis.read import text_bytes
from canopy.traces.analysis.run import Analysis, AnalysisOptions, Compared, start
from canopy.traces.analysis.spark.session import check_shared
from canopy.traces.analysis.summary import AnalysisSummary, Findings
from canopy.traces.analysis.tasks import OnProgress, kept
from canopy.traces.analysis.verdict import expected
from canopy.traces.analysis.window import ALWAYS, DAY_OF_EVENT, DAY_OF_PAIR, TimeWindow, parse_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def analyze_days(
    traces: Path, out: Path, state: Path, **options: Unpack[AnalysisOptions]
) -> AnalysisSummary:
    """Analyse the records that the folder `state` does not have yet, and return the numbers of all
    days that the state has then.

    Of the `window` whole files are read. Raises AnalysisError as `analyze`, and for a state of
    another overlay or version, or one that another run uses. If it raises, or if this process is
    killed, the state stays as it was.
    """
    with opened(state) as held:
        files = new_files(traces, options.get("window", ALWAYS), held)
        size = sum(text_bytes(path) for path in files) + STATE_TEXT * held.stored_bytes()
        return start(partial(DailyAnalysis, held=held, files=files), traces, out, size, **options)


STATE_TEXT: Final = 10
"""Bytes of trace records for each byte of their Parquet, by which Spark is set up for the size of a
state. Guess: Zstandard on sorted columns."""


class DailyAnalysis(Analysis):
    """One run over the state `held`; the state is changed when its report is written."""

    def __init__(
        self,
        spark: SparkSession,
        out: Path,
        progress: OnProgress,
        held: StateFolder,
        files: Sequence[Path],
    ) -> None:
        super().__init__(spark, out, progress)
        self._held = held
        self._files = files
        if held.closed:
            self.since = parse_time(held.closed[-1], end=True)

    def read(self, traces: Path, window: TimeWindow) -> tuple[Completeness, DataFrame, None]:
        """Return the completeness of all records of the state, with those of the new files; and the
        records."""
        held = self._held
        check_shared(self.spark, held.folder)
        before = self.out / "tables" / "records"
        self._taken = intake.take_in(self.spark, traces, self._files, held, before)
        self.late = held.state.late
        records = self._stored(RECORDS, intake.RECORD_OF_DAY)
        facts = merged(held.load_facts().values())
        return *conclude(self.spark, facts, records), None

    def compare(self, records: DataFrame, runs: DataFrame, complete: Completeness) -> Compared:
        """The publications, subscriptions and judged pairs of all days."""
        spark, held = self.spark, self._held
        self._torn = any(run.holes for run in complete.runs)
        subscribed, unreadable = self.subscriptions(records, runs)
        policies = self.confined.count() if self.confined is not None else 0
        judged_by = f"{complete.shares} {complete.clocks_agree} {policies}"
        by = (subscribed, complete, judged_by)
        changed = verdicts.changed_days(spark, held, self._taken, *by)
        if changed:
            near = records.where(
                records.day.isin(sorted(verdicts.days_to_read(held, changed)))
                & records.kind.isin("publish", "deliver", "drop", "refused")
            )
            self._judge(near, runs, subscribed, complete, sorted(changed))
            new = {name: day for name, day in held.state.days.items() if name in changed}
            for name, basis in verdicts.bases_of(spark, new, *by).items():
                held.state.days[name].basis = basis
        self.stage()
        published = self._stored(PUBLISHED, PUBLICATION)
        return Compared(published, subscribed, unreadable, self._stored(JUDGED, PAIR))

    def judged(self, *given: Any) -> DataFrame:
        """The pairs with their verdicts, without those of events of closed days."""
        pairs = super().judged(*given)
        return pairs.where(pairs.published.isNotNull() | ~self._is_closed)

    def unpublished(self, records: DataFrame) -> dict[str, int]:
        """By run the events that it did not publish, without those of closed days."""
        return expected.unpublished(self.spark, records.where(~self._is_closed))

    @property
    def _is_closed(self) -> Column:
        """Whether the `event` is one that was published on a closed day."""
        return intake.is_within(self._held.closed_events().values())

    def lines(self, found: Compared, first: float, last: float) -> list[dict[str, Any]]:
        """A line for each day, if there are several."""
        days = self._held.state.days
        lines = [line for _, day in sorted(days.items()) if (line := day.line)]
        return lines if len(lines) > 1 else []

    def lasting(self, overlay: OverlayFacts) -> OverlayFacts:
        """Return the overlay without the holes that lie on closed days only."""
        ends = [day.last for name in self._held.closed if (day := self._held.state.days[name]).last]
        runs = []
        for run in overlay.runs if ends else ():
            holes = tuple(hole for hole in run.holes if hole.until > max(ends))
            runs.append(replace(run, holes=holes, explained=run.explained or not holes))
        return replace(overlay, runs=tuple(runs)) if ends else overlay

    def _judge(
        self,
        records: DataFrame,
        runs: DataFrame,
        subscribed: DataFrame,
        complete: Completeness,
        days: list[str],
    ) -> None:
        """Write the publications and the judged pairs of these days."""
        spark, held = self.spark, self._held
        near = kept(
            expected.publications(spark, records, runs).selectExpr("*", f"{DAY_OF_EVENT} AS day")
        )
        self._store(PUBLISHED, near.where(near.day.isin(days)), days, ("publisher", "at"))
        published = self._stored(PUBLISHED, PUBLICATION, days)
        pairs = expected.matching_pairs(spark, published, subscribed, self.trees, self.confined)
        judged = self.judged(records, pairs, near, subscribed, complete)
        judged = judged.selectExpr("*", f"{DAY_OF_PAIR} AS day")
        self._store(
            JUDGED, judged.where(judged.day.isin(days)), days, ("subscription", "published")
        )
        verdicts.note(spark, held, days, published, self._stored(JUDGED, PAIR, days))

    def _store(
        self, table: str, frame: DataFrame, days: Sequence[str], order: Sequence[str]
    ) -> None:
        files = self._held.state.files.values()
        size = sum(file.size for file in files if not set(days).isdisjoint(file.days))
        intake.write_by_day(frame, self._held.draft / table, size, len(days), order)
        self._held.wrote(table, days)

    def _stored(self, table: str, schema: str, days: Sequence[str] | None = None) -> DataFrame:
        """A table of these days of the state; None: of all."""
        return kept(intake.tables(self.spark, self._held.places(table, days), schema))

    def finish(self, findings: Findings) -> None:
        """Write the report, and commit the state."""
        super().finish(findings)
        self._held.commit()


PUBLICATION = (
    "event string, id string, publisher string, published double, at bigint, overlay string, "
    "times bigint, digest bigint, writer string, attributes string, redacted boolean, day string"
)
PAIR = (
    "event string, subscription string, overlay string, verdict string, reason string, "
    "published double, copies bigint, delivered double, node string, latency_ms double, "
    "attribute string, hops int, lo string, hi string, day string"
)
