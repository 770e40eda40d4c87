"""The Spark job: a summary of the trace records on each node in each window of two minutes.

One pass and one job: each line is parsed into the few fields that are needed, an incident counts
for the node that it is about as well, and everything is aggregated by node and window. Lines that
are no records are left out; ``canopy trace analyze`` reports them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from canopy.traces.analysis.constants import HEALTH_WINDOW
from canopy.traces.analysis.read import PATTERN, trace_files
from canopy.traces.analysis.spark.paths import for_reading
from canopy.traces.analysis.tasks import in_one_task
from canopy.traces.schema import FIELDS, READABLE

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


READ: Final = (
    *("v", "time", "node", "kind", "name", "what", "peer"),
    *("cpu", "memory", "disk", "clients", "queue", "late_ms", "round_trip_ms", "resent"),
)
"""The fields of a record that are looked at."""

WORST: Final = ("cpu", "memory", "disk", "clients", "queue", "late_ms", "round_trip_ms")
"""Signals of which the greatest value in a window counts."""

SILENCES: Final = ("silent", "link down")
"""Kinds of incidents in which a node says that it does not hear another."""


@dataclass
class NodeWindow:
    """One node in one window. Values that no record of the window has are None."""

    records: int = 0
    """Number of the node's records."""
    measured: int = 0
    """Number of health records among them."""
    first: float | None = None
    """Time of its first record here, …"""
    last: float | None = None
    """… and of its last."""
    worst: dict[str, float] = field(default_factory=dict)
    """The greatest value of each of `WORST`."""
    resent: tuple[int, int] | None = None
    """The least and the greatest value of the counter."""
    reporters: dict[str, None] = field(default_factory=dict)
    """Other nodes that did not hear this one."""
    starts: tuple[float, ...] = ()
    stops: tuple[float, ...] = ()
    name: str = ""

    def merge(self, other: NodeWindow) -> None:
        """Merge with the `other` summary of the same node and window."""
        self.records += other.records
        self.measured += other.measured
        self.first = _fold(min, self.first, other.first)
        self.last = _fold(max, self.last, other.last)
        for name, value in other.worst.items():
            self.worst[name] = max(value, self.worst.get(name, value))
        if self.resent is None or other.resent is None:
            self.resent = self.resent or other.resent
        else:
            self.resent = (
                min(self.resent[0], other.resent[0]),
                max(self.resent[1], other.resent[1]),
            )
        self.reporters |= other.reporters
        self.starts = tuple(sorted({*self.starts, *other.starts}))
        self.stops = tuple(sorted({*self.stops, *other.stops}))
        self.name = other.name or self.name


def _fold(
    how: Callable[[Iterable[float]], float], one: float | None, other: float | None
) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return how(known) if known else None


Windows = dict[tuple[str, int], NodeWindow]
"""By node and number of the window: its time divided by `HEALTH_WINDOW`."""


def read_windows(spark: SparkSession, traces: Path) -> Windows:
    """The windows of all trace files below `traces`."""
    columns = ", ".join(f"`{name}` {FIELDS[name]}" for name in READ)
    silences = ", ".join(f"'{what}'" for what in SILENCES)
    lines = (
        spark.read.option("recursiveFileLookup", True)
        .option("pathGlobFilter", PATTERN)
        .text(for_reading(traces))
    )
    records = (
        in_one_task(lines)
        .selectExpr(f"from_json(value, '{columns}', map('mode', 'PERMISSIVE')) AS r")
        .where(f"r.v IN {READABLE} AND r.node IS NOT NULL AND r.time IS NOT NULL")
    )
    is_about = f"r.kind = 'incident' AND r.what IN ({silences}) AND r.peer <> r.node"
    worst = ", ".join(f"max(r.{name}) FILTER (WHERE own) AS {name}" for name in WORST)
    rows = spark.sql(
        f"""
        WITH about AS (
          SELECT explode(IF({is_about}, array(r.node, r.peer), array(r.node))) AS node, r
          FROM {{records}}),
        placed AS (
          SELECT node, CAST(floor(r.time / {HEALTH_WINDOW!r}D) AS BIGINT) AS window, r,
            node = r.node AS own FROM about)
        SELECT node, window, count_if(own) AS records,
          count_if(own AND r.kind = 'health') AS measured,
          min(r.time) FILTER (WHERE own) AS first, max(r.time) FILTER (WHERE own) AS last,
          {worst}, min(r.resent) AS resent_least, max(r.resent) AS resent_most,
          collect_set(r.node) FILTER (WHERE NOT own) AS reporters,
          collect_list(r.time) FILTER (WHERE own AND r.kind = 'start') AS starts,
          collect_list(r.time) FILTER (WHERE own AND r.kind = 'stop') AS stops,
          max(r.name) FILTER (WHERE own AND r.kind = 'start') AS name
        FROM placed GROUP BY node, window
        """,
        records=records,
    ).collect()
    return {(row["node"], row["window"]): _window(row) for row in rows}


def _window(row: Row) -> NodeWindow:
    least, most = row["resent_least"], row["resent_most"]
    return NodeWindow(
        records=row["records"],
        measured=row["measured"],
        first=row["first"],
        last=row["last"],
        worst={name: float(row[name]) for name in WORST if row[name] is not None},
        resent=None if least is None else (least, most),
        reporters=dict.fromkeys(sorted(row["reporters"])),
        starts=tuple(sorted(row["starts"])),
        stops=tuple(sorted(row["stops"])),
        name=row["name"] or "",
    )


# --- what is new in the trace files since the last round ---
#
# Nodes append to their files, so what is new are new files and the ends of known ones. These ends,
# up to their last whole line, are copied into a folder of their own, and only that folder is read
# by Spark. A file that nothing was written to within the half hour that counts is not read at all.

PIECE: Final = 1 << 20
"""Bytes that are copied at once."""


class TraceTails:
    """Remembers how far each file was read. `clock` gives seconds since 1970."""

    def __init__(
        self, traces: Path, seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        """`seconds`: files that were last written to longer ago are left out."""
        self._traces = traces
        self._seconds = seconds
        self._clock = clock
        self._read: dict[Path, int] = {}

    def copy_new(self, folder: Path) -> int:
        """Copy the new records into the empty `folder`. Returns their bytes."""
        oldest = self._clock() - self._seconds
        copied = 0
        read: dict[Path, int] = {}
        for number, path in enumerate(trace_files(self._traces)):
            if path.suffix == ".gz":  # compressed once it was complete
                continue
            try:
                found = path.stat()
                before = self._read.get(path, 0)
                if found.st_mtime < oldest or found.st_size <= before:
                    read[path] = before
                    continue
                done = self._copy(path, before, found.st_size, folder / f"{number}.jsonl")
            except OSError:  # it was removed meanwhile
                continue
            read[path] = before + done
            copied += done
        self._read = read
        return copied

    def _copy(self, path: Path, begin: int, end: int, target: Path) -> int:
        """Copy the whole lines of `path` between the two offsets. Returns their bytes."""
        done = 0
        with path.open("rb") as source, target.open("wb") as sink:
            source.seek(begin)
            while done < end - begin:
                piece = source.read(min(PIECE, end - begin - done))
                if not piece:
                    break
                sink.write(piece)
                done += len(piece)
        whole = self._whole_lines(target, done)
        with target.open("r+b") as sink:
            sink.truncate(whole)
        return whole

    @staticmethod
    def _whole_lines(path: Path, size: int) -> int:
        """Bytes of the file up to and with its last line feed."""
        with path.open("rb") as source:
            end = size
            while end > 0:
                begin = max(0, end - PIECE)
                source.seek(begin)
                place = source.read(end - begin).rfind(b"\n")
                if place >= 0:
                    return begin + place + 1
                end = begin
        return 0
