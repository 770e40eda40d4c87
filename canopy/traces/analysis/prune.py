"""Removes trace files of days that are to be kept no longer. Without Spark."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from canopy.traces.analysis.completeness.collect import node_of
from canopy.traces.analysis.constants import AnalysisError
from canopy.traces.analysis.days.state import State, opened, read_state
from canopy.traces.analysis.days.taking import key_of
from canopy.traces.analysis.read import text_bytes, trace_files
from canopy.traces.analysis.window import day_of

QUIET_SECONDS: Final = 3_600.0
"""A file that was written to more recently may still be: a node whose clock is behind is in its day
before, and copies and compression take their time. Guess."""

WRITTEN: Final = "still being written"
NOT_TAKEN: Final = "not in the state"


@dataclass
class PrunedDay:
    """The files of one day that went, or would go."""

    day: date
    files: int = 0
    size: int = 0  # bytes on disk


@dataclass
class Pruned:
    """The files that were removed, or would be, and those that were not."""

    dry_run: bool
    before: date
    days: list[PrunedDay] = field(default_factory=list)
    kept: dict[str, list[Path]] = field(default_factory=dict)
    """Files of earlier days that stay, by the reason (`WRITTEN`, `NOT_TAKEN`)."""

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
                found.kept.setdefault(WRITTEN, []).append(path)
                continue
            if state is not None and stat.st_size:
                taken = state.files.get(key_of(traces, path))
                if taken is None or taken.size != text_bytes(path):
                    found.kept.setdefault(NOT_TAKEN, []).append(path)
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
