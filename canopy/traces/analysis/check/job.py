"""The check from end to end: the files of a folder in, findings out."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from canopy.traces.analysis.check.findings import Held, RepeatedRecords, Seen, copies_of
from canopy.traces.analysis.check.gather import GatheredFile, RunPart, read_file
from canopy.traces.analysis.check.result import TraceCheck
from canopy.traces.analysis.completeness.collect import Completeness, node_of, without_copies
from canopy.traces.analysis.completeness.facts import joined_peers
from canopy.traces.analysis.read import SUFFIXES, check_folder, trace_files
from canopy.traces.analysis.window import ALWAYS, TimeWindow, day_of

OnFile = Callable[[str, int, int], None]
"""Called with (file that is read, bytes read before it, bytes of all)."""


def check(
    traces: Path,
    progress: OnFile = lambda file, done, total: None,
    clock: Callable[[], float] = time.time,
    window: TimeWindow = ALWAYS,
) -> TraceCheck:
    """Check the trace folder `traces`. `clock` gives seconds since 1970, as file systems do. Reads
    only the files of the days in `window`; a run that goes on before or after them is no finding.
    Raises AnalysisError for a folder without trace files (of that time)."""
    with suppress(OSError):  # a file that cannot be opened is a finding
        check_folder(traces, window)
    every = list(trace_files(traces))
    paths = [path for path in every if window.meets(day_of(path.relative_to(traces)))]
    rest = TimeWindow(since=window.until)
    later = {
        node_of(str(path))
        for path in set(every).difference(paths)
        if window.until is not None and rest.meets(day_of(path.relative_to(traces)))
    }
    sizes = [_size(path) for path in paths]
    done, total, files = 0, sum(sizes), []
    for path, size in zip(paths, sizes, strict=True):
        progress(path.name, done, total)
        files.append(read_file(path))
        done += size
    begins_within = window.since is not None
    return conclude(traces, files, clock(), _passed_over(traces), later, begins_within)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _passed_over(traces: Path) -> list[Path]:
    """Files in the folders of nodes that look like traces and are not read."""
    return sorted(
        path
        for path in traces.rglob("node=*/*")
        if path.is_file()
        and not path.name.endswith(SUFFIXES)
        and not path.name.startswith((".", "_"))
    )


def conclude(
    traces: Path,
    files: Sequence[GatheredFile],
    now: float,
    passed_over: Sequence[Path] = (),
    later: Collection[str] = (),
    begins_within: bool = False,
) -> TraceCheck:
    """Judge these `files` of the folder `traces` together, at the time `now`. `later` are nodes
    whose later files were not read; `begins_within`: earlier files were not read."""
    held = held_of(files)
    complete, copies = completeness_of(files, held, begins_within)
    seen = Seen(traces, held, complete, copies, now, later)
    for file in files:
        seen.look_at_file(file)
    for overlay in complete.overlays:
        for run in overlay.runs:
            seen.look_at_run(overlay, run)
        seen.look_at_overlay(overlay)
    seen.look_at_clocks()
    seen.look_at_copies()
    seen.look_at_passed_over(passed_over)
    return seen.result(files)


def held_of(files: Iterable[GatheredFile]) -> Held:
    """Return the files of each run of a node's process, with their facts."""
    held: dict[tuple[str, int], list[tuple[GatheredFile, RunPart]]] = {}
    for file in files:
        for part in file.parts:
            held.setdefault((part.facts.node, part.facts.run), []).append((file, part))
    return held


def completeness_of(
    files: Sequence[GatheredFile], held: Held, begins_within: bool = False
) -> tuple[Completeness, RepeatedRecords]:
    """Conclude the same as `completeness.collect` from Spark's tables, and find the copies."""
    facts = [part.facts for file in files for part in file.parts]
    peers = joined_peers(peer for file in files for peer in file.peers)
    stretches = {
        run: [each for _, part in parts for each in part.stretches] for run, parts in held.items()
    }
    corrupt = ((file.home, file.unreadable) for file in files)
    found, doubled = without_copies(facts, stretches, peers, corrupt, begins_within)
    copies = copies_of({run: parts for run, parts in held.items() if run[0] in doubled})
    return replace(found, copies=copies.records, contradictions=copies.contradictions), copies
