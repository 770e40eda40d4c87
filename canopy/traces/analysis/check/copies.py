"""Numbers of records that a folder has more than once, and the gaps between those that it has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from canopy.traces.analysis.check.gather import LINES, GatheredFile, RecordStretch, RunPart
from canopy.traces.analysis.completeness.facts import FileGap
from canopy.traces.analysis.parsing.lines import DAMAGED, lines_of, pieces

Run = tuple[str, int]
"""A node's id and its incarnation."""

Held = Mapping[Run, Sequence[tuple[GatheredFile, RunPart]]]
"""The files of each run, with what they have of it."""


@dataclass(frozen=True)
class RepeatedRecords:
    """Records that are there again."""

    records: int
    contradictions: dict[str, int]
    """By node id, the numbers of its records under which there are different ones."""
    files: tuple[tuple[Path, Path], ...]
    """Files with the same text as another, and that one."""


def gaps_inside(held: Held) -> list[FileGap]:
    """The gaps in the records of each run inside of its files."""
    found = []
    for (node, run), parts in held.items():
        for _, part in parts:
            before: RecordStretch | None = None
            for each in _in_order([part]):
                if before is not None and each.first > before.last + 1:
                    numbers = (before.last, each.first, before.until, each.since)
                    found.append(FileGap(part.facts.file, node, run, *numbers))
                if before is None or each.last > before.last:
                    before = each
    return found


def _in_order(parts: Iterable[RunPart]) -> list[RecordStretch]:
    return sorted((each for part in parts for each in part.stretches), key=lambda each: each.first)


def copies_of(held: Held) -> RepeatedRecords:
    """What these runs' files have twice. Files of the same text are not read again, others are
    where their numbers overlap, one run after another."""
    records = 0
    different: dict[str, int] = {}
    same: dict[Path, Path] = {}
    for (node, run), parts in sorted(held.items(), key=lambda item: item[0]):
        originals: dict[bytes, tuple[GatheredFile, RunPart]] = {}
        for file, part in parts:
            original = originals.setdefault(file.digest, (file, part))[0]
            if original is not file:
                same[file.path] = original.path
                records += part.facts.records
        again, contradictions = _compared(node, run, list(originals.values()))
        records += again
        if contradictions:
            different[node] = different.get(node, 0) + contradictions
    return RepeatedRecords(records, different, tuple(sorted(same.items())))


def _compared(
    node: str, run: int, parts: Sequence[tuple[GatheredFile, RunPart]]
) -> tuple[int, int]:
    """How many records of a run are there again, and under how many numbers are different ones."""
    ranges = _overlaps(_in_order(part for _, part in parts))
    if not ranges:
        return 0, 0
    found: dict[int, list[int]] = {}
    for file, _ in parts:
        for number, content in _contents(file.path, node, run):
            place = bisect_right(ranges, number, key=lambda each: each[0]) - 1
            if place >= 0 and number <= ranges[place][1]:
                found.setdefault(number, []).append(content)
    different = sum(len(set(contents)) > 1 for contents in found.values())
    return sum(len(contents) - 1 for contents in found.values()) - different, different


def _overlaps(stretches: Sequence[RecordStretch]) -> list[tuple[int, int]]:
    """The ranges of numbers that are in two of the `stretches`, which are in order."""
    ranges: list[tuple[int, int]] = []
    reached = 0
    for each in stretches:
        if each.first <= reached:
            first, last = each.first, min(each.last, reached)
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
            else:
                ranges.append((first, last))
        reached = max(reached, each.last)
    return ranges


def _contents(path: Path, node: str, run: int) -> Iterable[tuple[int, int]]:
    """Number and hash of each record of a run in a file, as far as it can be read."""
    try:
        for lines in lines_of(pieces(path)):
            for line in lines:
                record = LINES.parse(line)[0] if line else None
                if record is None or record.n is None:
                    continue
                if record.run == run and record.node == node:
                    yield record.n, hash(msgspec.json.encode(record))
    except DAMAGED:
        return
