"""Removes trace files of days that are to be kept no longer, and closes old days of a state.
Without Spark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis.completeness.collect import node_of
from canopy.traces.analysis.constants import AnalysisError
from canopy.traces.analysis.days.intake import key_of
from canopy.traces.analysis.days.state import (
    LASTING,
    RECORDS,
    Day,
    State,
    StateFolder,
    opened,
    read_state,
)
from canopy.traces.analysis.output import write_table
from canopy.traces.analysis.read import text_bytes, trace_files
from canopy.traces.analysis.window import day_of

if TYPE_CHECKING:
    import pyarrow as pa


QUIET_SECONDS: Final = 3_600.0
"""A file that was written to more recently may still be: a node whose clock is behind is in its day
before, and copies and compression take their time. Guess."""

WRITTEN: Final = "still being written"
NOT_TAKEN: Final = "not in the state"
NOT_JUDGED: Final = "without a line yet"


@dataclass
class PrunedDay:
    """The files of one day that went, or would go; or a day that was closed, or would be."""

    day: date
    files: int = 0
    size: int = 0  # bytes on disk


@dataclass
class Pruned:
    """The files that were removed or the days that were closed, or would be; and what was not."""

    dry_run: bool
    before: date
    days: list[PrunedDay] = field(default_factory=list)
    kept: dict[str, list[str]] = field(default_factory=dict)
    """Files of earlier days, or such days, that stay, by the reason (`WRITTEN`, `NOT_TAKEN`; no
    analysis has given a day its line yet: `NOT_JUDGED`)."""

    @property
    def files(self) -> int:
        """The number of files, over all days."""
        return sum(day.files for day in self.days)

    @property
    def size(self) -> int:
        """Their bytes on disk, over all days."""
        return sum(day.size for day in self.days)


def prune(
    traces: Path,
    before: date,
    now: float,
    *,
    state: Path | None = None,
    nodes: Collection[str] = (),
    dry_run: bool = False,
) -> Pruned:
    """Remove the trace files below `traces` of days (UTC) `before` that day, the oldest first, and
    the folders that are empty then; with `dry_run` only say which.

    What is still being written at the time `now` (seconds since 1970) stays, and so does what lies
    in no folder of a day. With a `state` (of `analyze_days`) files stay that it does not have as
    they are now. With `nodes` only files in the folders of these go. Raises AnalysisError for a
    folder that is none or a state that is not there or cannot be used.
    """
    if not traces.is_dir():
        raise AnalysisError(f"the trace folder {traces} does not exist")
    if state is not None and not (state / "state.json").is_file():
        raise AnalysisError(f"there is no state in {state}: nothing was removed")
    if state is None or dry_run:
        known = None if state is None else read_state(state)
        return _prune(traces, before, now, known, nodes, dry_run)
    with opened(state) as held:
        return _prune(traces, before, now, held.state, nodes, dry_run)


def _prune(
    traces: Path,
    before: date,
    now: float,
    state: State | None,
    nodes: Collection[str],
    dry_run: bool,
) -> Pruned:
    found = Pruned(dry_run, before)
    today = datetime.fromtimestamp(now, UTC).date()
    by_day: dict[date, list[Path]] = {}
    for path in trace_files(traces):
        day = day_of(path.relative_to(traces))
        if nodes and node_of(str(path.relative_to(traces))) not in nodes:
            continue
        if day is not None and day < before:
            by_day.setdefault(day, []).append(path)
    for day, paths in sorted(by_day.items()):
        gone = PrunedDay(day)
        for path in paths:
            stat = path.stat()
            if day >= today or stat.st_mtime > now - QUIET_SECONDS:
                found.kept.setdefault(WRITTEN, []).append(str(path))
                continue
            if state is not None and stat.st_size:
                taken = state.files.get(key_of(traces, path))
                if taken is None or taken.size != text_bytes(path):
                    found.kept.setdefault(NOT_TAKEN, []).append(str(path))
                    continue
            gone.files += 1
            gone.size += stat.st_size
            if not dry_run:
                _remove(traces, path)
        if gone.files:
            found.days.append(gone)
    return found


def _remove(traces: Path, path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise AnalysisError(f"{path} cannot be removed: {error.strerror or error}") from error
    for folder in path.parents:
        if folder == traces or not folder.name.startswith(("node=", "date=")):
            break
        with suppress(OSError):  # it has other files
            folder.rmdir()


ENDS: Final = ("start", "stop", "unsubscribe")
"""The kinds of records that say what has ended: a process also by the start of the next one."""


def close_days(folder: Path, before: date, now: float, *, dry_run: bool = False) -> Pruned:
    """Close the days `before` that day (UTC) in the state in `folder`; with `dry_run` only say
    which. The day of `now` (seconds since 1970) stays open. Raises AnalysisError for a state that
    is not there or cannot be used.

    Of a closed day there is its line (`trends`), which numbers its publishers gave to its events,
    the facts of its files, and the records of what outlives a day: processes and subscriptions that
    are not known to have ended (`LASTING`). Its pairs are not judged again. Records of its events
    that come later, or that were written on a later day, prove nothing about later days, and are
    left out.
    """
    if not (folder / "state.json").is_file():
        raise AnalysisError(f"there is no state in {folder}: nothing was closed")
    before = min(before, datetime.fromtimestamp(now, UTC).date())
    if dry_run:
        return _close(StateFolder(folder, read_state(folder)), before, dry_run)
    with opened(folder) as held:
        found = _close(held, before, dry_run)
        if found.days:
            held.commit()
        return found


def _close(held: StateFolder, before: date, dry_run: bool) -> Pruned:
    found = Pruned(dry_run, before)
    days = held.state.days
    old = [name for name in sorted(days) if name < str(before)]
    for name in old:
        if days[name].closed:
            continue
        if days[name].line is None:
            found.kept.setdefault(NOT_JUDGED, []).append(name)
        else:
            found.days.append(PrunedDay(date.fromisoformat(name), size=_bytes(held, days[name])))
    if dry_run or not found.days:
        return found
    closed = [name for name in old if days[name].line is not None]
    ended = _ended(held, [name for name in closed if name < str(before - timedelta(days=1))])
    for name in closed:
        rows = _lasting(held, name, ended)
        if rows is not None and rows.num_rows:
            write_table(held.draft / RECORDS / f"of={name}", rows)
        days[name].close()
        held.wrote(RECORDS, [name])
    return found


def _bytes(held: StateFolder, day: Day) -> int:
    places = (held.folder / place for place in day.tables.values())
    return sum(path.stat().st_size for place in places for path in place.iterdir())


@dataclass(frozen=True)
class _Ended:
    """Processes and subscriptions that ended on a closed day."""

    newest: dict[str, int]  # by node, its last run that started
    stopped: frozenset[tuple[str, int]]  # runs
    left: frozenset[str]  # subscriptions
    needed: frozenset[str]  # runs (`node.run`) by which days that are not closed are judged

    def has(self, row: dict[str, Any]) -> bool:
        """Return whether the subject of a record has ended, so that the record decides nothing any
        more."""
        if f"{row['node']}.{row['run']}" in self.needed:
            return False
        run = (row["node"], row["run"])
        older = row["run"] is not None and row["run"] < self.newest.get(row["node"], 0)
        return older or run in self.stopped or row["subscription"] in self.left


def _ended(held: StateFolder, days: Sequence[str]) -> _Ended:
    """Return the processes and subscriptions that had ended by the end of these `days`."""
    newest: dict[str, int] = {}
    stopped: set[tuple[str, int]] = set()
    left: set[str] = set()
    needed = {run for day in held.state.days.values() if not day.closed for run in day.needs}
    for row in (row for name in days for row in _rows(held, name, ENDS)):
        if row["run"] is None:
            continue
        if row["kind"] == "start":
            newest[row["node"]] = max(row["run"], newest.get(row["node"], 0))
        elif row["kind"] == "stop":
            stopped.add((row["node"], row["run"]))
        elif row["subscription"] is not None:
            left.add(row["subscription"])
    return _Ended(newest, frozenset(stopped), frozenset(left), frozenset(needed))


def _rows(held: StateFolder, day: str, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    table = _table(held, day, kinds)
    if table is not None:
        yield from table.select(["kind", "node", "run", "subscription"]).to_pylist()


def _table(held: StateFolder, day: str, kinds: Sequence[str]) -> pa.Table | None:
    """Read the records of these `kinds` of a day."""
    from pyarrow import parquet

    place = held.place(day, RECORDS)
    if place is None:
        return None
    return parquet.read_table(place, filters=[("kind", "in", list(kinds))], partitioning=None)


def _lasting(held: StateFolder, day: str, ended: _Ended) -> pa.Table | None:
    """Return the records that a closed day keeps."""
    import pyarrow as pa

    table = _table(held, day, LASTING)
    if table is None:
        return None
    rows = table.select(["node", "run", "subscription"]).to_pylist()
    return table.filter(pa.array([not ended.has(row) for row in rows], pa.bool_()))
