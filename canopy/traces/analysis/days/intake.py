"""Takes the records of new files into the state: one table for each day, in a few files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis import read
from canopy.traces.analysis.completeness.collect import facts_by_file
from canopy.traces.analysis.constants import AnalysisError
from canopy.traces.analysis.days.state import (
    LASTING,
    RECORDS,
    Day,
    EventRange,
    StateFolder,
    TakenFile,
)
from canopy.traces.analysis.spark.paths import for_reading, for_writing, local
from canopy.traces.analysis.tasks import frame_of, in_one_task, is_small, kept
from canopy.traces.analysis.window import TimeWindow, day_of, day_of_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DAY_BYTES: Final = 256 * 1024 * 1024
"""Bytes of text for each file of a day's table: some 20 MB of Parquet. Guess; to be measured by the
time of a query that reads one node."""

NO_DAY: Final = "1970-01-01"
"""The day of lines that have no time and lie in no folder of a day."""


DAY: Final = (
    f"coalesce({day_of_time('time')}, "
    "nullif(regexp_extract(file, 'date=([0-9]{4}-[0-9]{2}-[0-9]{2})/', 1), ''), "
    f"'{NO_DAY}')"
)
"""SQL: the day of a record."""

RUN_OF_EVENT: Final = "substring_index(event, '.', 2)"
NUMBER_OF_EVENT: Final = "coalesce(try_cast(substring_index(event, '.', -1) AS BIGINT), 0)"
"""SQL: a publisher's run and the sequence number, of the identity of an event."""


@dataclass(frozen=True)
class Taken:
    """The changes that a run has made to the records of the state."""

    days: frozenset[str]
    """Days of whose records some are new, or no longer there."""
    events: tuple[tuple[str, str], ...]
    """(day of the publication, day of the record) of new records of published events."""


def key_of(traces: Path, path: Path) -> str:
    """The name of a trace file in the state."""
    return str(path.relative_to(traces)).removesuffix(".gz")


def new_files(traces: Path, window: TimeWindow, held: StateFolder) -> list[Path]:
    """The files of the `window` that the state does not have as they are now."""
    known = held.state.files
    if known and traces.is_dir():
        every = read.trace_files(traces)
        if not any(window.meets(day_of(path.relative_to(traces))) for path in every):
            return []  # they have been removed since, or there are none of that time yet
    # While a file is compressed it may be there twice.
    files = {key_of(traces, path): path for path in read.files_within(traces, window)}
    return [
        path
        for key, path in files.items()
        if (taken := known.get(key)) is None or taken.size != read.text_bytes(path)
    ]


def take_in(
    spark: SparkSession, traces: Path, files: Sequence[Path], held: StateFolder, table: Path
) -> Taken:
    """Read these `files`, by way of a table of lines in the folder `table`, and rewrite the days
    that they have records of. Raises AnalysisError if they are of another overlay."""
    if not files:
        return Taken(frozenset(), ())
    state = held.state
    sizes = {key_of(traces, path): read.text_bytes(path) for path in files}
    stored, tally = read.store_records(spark, files, table)
    new = kept(stored.selectExpr("*", f"{DAY} AS day"))
    root = traces.resolve()
    by_file = facts_by_file(spark, new, tally)
    facts = {key_of(root, local(name)): each for name, each in by_file.items()}
    check_overlay(held, {one.overlay for each in facts.values() for one in each.files})
    days: dict[str, list[str]] = {}
    for row in new.select("file", "day").distinct().collect():
        days.setdefault(key_of(root, local(row["file"])), []).append(row["day"])
    again = [name for name in sizes if name in state.files]
    before = {day for name in again for day in state.files[name].days}
    changed = sorted(before.union(*days.values()))
    old = held.load_facts() if again else {}
    replaced = {
        file
        for name in again
        for file in (*(each.file for each in old[name].files), *old[name].corrupt)
    }
    closed = [name for name in changed if name in state.days and state.days[name].closed]
    events = _events(spark, new, held)
    if closed:
        late = new.day.isin(closed) & ~new.kind.isin(*LASTING)
        state.late += new.where(late).count()
        new = kept(new.where(~late))
    _write_days(spark, new, changed, held, replaced, sum(sizes.values()))
    for name, size in sizes.items():
        state.files[name] = TakenFile(size, held.generation, sorted(days.get(name, ())))
    held.store_facts(facts)
    return Taken(frozenset(changed), events)


def check_overlay(held: StateFolder, found: set[str | None]) -> None:
    """Note these overlays' names. Raises AnalysisError if the state knows others, and none of
    them."""
    names = {name for name in found if name is not None}
    before = set(held.state.overlays)
    if before and names and not names & before:
        raise AnalysisError(
            f"the state {held.folder} is of the overlay {', '.join(sorted(before))}, and these "
            f"traces are of {', '.join(sorted(names))}: name another folder for their state"
        )
    held.state.overlays = sorted(before | names)


def _write_days(
    spark: SparkSession,
    new: DataFrame,
    days: Sequence[str],
    held: StateFolder,
    replaced: Set[str],
    text_bytes: int,
) -> None:
    """Rewrite the records of these `days`: the old ones, except those of the files `replaced`, and
    the `new` ones."""
    if before := held.places(RECORDS, days):
        old = tables(spark, before, RECORD_OF_DAY)
        if replaced:
            old = old.where(~old.file.isin(sorted(replaced)))
        new = old.unionByName(new)
    write_by_day(new, held.draft / RECORDS, text_bytes, len(days), ("kind", "node"))
    held.wrote(RECORDS, days)


def is_within(ranges: Iterable[EventRange]) -> Column:
    """Return a column that is true if the `event` is in one of these ranges, of which each run has
    one; never NULL."""
    from pyspark.sql.functions import coalesce, element_at, expr, from_json, lit

    found = {each.run: {"first": each.first, "last": each.last} for each in ranges}
    if not found:
        return lit(False)
    kind = "map<string, struct<first: bigint, last: bigint>>"
    of = element_at(from_json(lit(json.dumps(found)), kind), expr(RUN_OF_EVENT))
    number = expr(NUMBER_OF_EVENT)
    return coalesce(number.between(of["first"], of["last"]), lit(False))


RECORD_OF_DAY: Final = f"{read.RECORD}, day string"


def tables(spark: SparkSession, places: Sequence[Path], schema: str) -> DataFrame:
    """The rows of all these folders."""
    if not places:
        return frame_of(spark, [], schema)
    return spark.read.schema(schema).parquet(*(for_reading(place) for place in places))


def write_by_day(
    frame: DataFrame, folder: Path, text_bytes: int, days: int, order: Sequence[str]
) -> None:
    """Write rows by their `day` into folders ``of=DAY``, in `order`, by which a reader finds what
    it needs."""
    from pyspark.sql.functions import col, expr

    if is_small(frame):
        frame = in_one_task(frame)
    else:
        parts = 1 + text_bytes // (DAY_BYTES * max(days, 1))
        part = f"pmod(hash(`{order[-1]}`), {parts})"
        frame = frame.repartition(parts * max(days, 1), col("day"), expr(part))
    ordered = frame.selectExpr("*", "day AS of").sortWithinPartitions("day", *order)
    ordered.write.partitionBy("of").parquet(for_writing(folder))


def _events(spark: SparkSession, new: DataFrame, held: StateFolder) -> tuple[tuple[str, str], ...]:
    """Find the days on which the events of the `new` records were published, by the numbers that
    the publishers gave to events on each day; and note these of the new publications."""
    named = new.where("kind IN ('publish', 'deliver', 'drop') AND event IS NOT NULL").selectExpr(
        "kind", "day", f"{RUN_OF_EVENT} AS run", f"{NUMBER_OF_EVENT} AS number"
    )
    published = spark.sql(
        """
        SELECT day, run, min(number) AS first, max(number) AS last
        FROM {named} WHERE kind = 'publish' GROUP BY day, run
        """,
        named=named,
    ).collect()
    days = held.state.days
    for row in published:
        found = EventRange(row["run"], row["first"], row["last"])
        day = days.setdefault(row["day"], Day())
        day.published = _with(day.published, found)
    rows = [
        (name, each.run, each.first, each.last)
        for name, day in days.items()
        for each in day.published
    ]
    ranges = frame_of(spark, rows, "of string, run string, first long, last long")
    met = spark.sql(
        """
        SELECT DISTINCT r.of, n.day FROM (SELECT DISTINCT day, run, number FROM {named}) n
        JOIN {ranges} r ON n.run = r.run AND n.number BETWEEN r.first AND r.last
        """,
        named=named,
        ranges=ranges,
    ).collect()
    events = {(row["of"], row["day"]) for row in met}
    # Deliveries that had no publication so far may be of one of the new ones.
    for row in published:
        found = EventRange(row["run"], row["first"], row["last"])
        for name, day in days.items():
            if any(stranger.meets(found) for stranger in day.strangers):
                events |= {(row["day"], name), (name, name)}
    return tuple(sorted(events))


def _with(ranges: Sequence[EventRange], added: EventRange) -> list[EventRange]:
    """The `ranges`, one for each run, with the `added` events."""
    for each in ranges:
        if each.run == added.run:
            added = added.joined(each)
    return [*(each for each in ranges if each.run != added.run), added]
