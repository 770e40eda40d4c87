"""The gaps in the records of a run, from those inside of its files and from where these begin and
end. Files may have the same records, or some of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from canopy.traces.analysis.completeness.facts import FileFacts, FileGap, RecordGap


class _Stretch(NamedTuple):
    """Records of a run that follow one another in one file, by number and time."""

    first_n: int
    last_n: int
    first_hlc: int
    last_hlc: int


def gaps_of(
    files: Iterable[FileFacts], inside: Iterable[FileGap], nodes: Collection[str]
) -> list[RecordGap]:
    """The gaps in the records of each run of these `nodes`; `inside` are those of the files."""
    torn: dict[tuple[str, str, int], list[FileGap]] = {}
    for gap in inside:
        torn.setdefault((gap.file, gap.node, gap.run), []).append(gap)
    by_run: dict[tuple[str, int], list[_Stretch]] = {}
    for part in files:
        if part.node in nodes and part.first_n is not None and part.last_n is not None:
            found = by_run.setdefault((part.node, part.run), [])
            first, since = part.first_n, part.first_hlc or 0
            gaps = torn.get((part.file, part.node, part.run), ())
            for gap in sorted(gaps, key=lambda gap: gap.after):
                found.append(_Stretch(first, gap.after, since, gap.since))
                first, since = gap.before, gap.until
            found.append(_Stretch(first, part.last_n, since, part.last_hlc or 0))
    return [
        gap
        for (node, run), stretches in sorted(by_run.items())
        for gap in _between(node, run, sorted(stretches))
    ]


def _between(node: str, run: int, stretches: list[_Stretch]) -> Iterable[RecordGap]:
    before, since = stretches[0].last_n, stretches[0].last_hlc
    for part in stretches[1:]:
        if part.first_n > before + 1:
            yield RecordGap(node, run, since, part.first_hlc, part.first_n - before - 1)
        if part.last_n > before:
            before, since = part.last_n, part.last_hlc
