"""Claims of a run's records on the run itself, compared with its other records.

The header of a file says which share of the events its node keeps, and each record has a number and
a time of the hybrid logical clock. Where others contradict that it is a *doubt*: nothing is called
right by what is in doubt (`outcome.absences`). The claims on events and subscriptions, which need
the records themselves, are held in ``verdict/``. The table of all is in docs/design/traces.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from canopy.traces.analysis.completeness.facts import FileFacts, FileGap, RecordGap

EVENTS_COUNTED: Final = 1_000
"""Different events of a run that are counted at most: they show a share that is 2 % too large."""

HASHES: Final = 2**32
"""Number of CRC-32 values; an event is kept where that of its identity is below the share."""

UNLIKELY: Final = 1e-6
"""The probability below which it counts as no chance that all events of a run have hashes in a
smaller share than the one that its header names."""

NO_HEADER: Final = (
    "no header of {node} can be read: which share of the events it keeps is not known"
)
MORE: Final = (
    "{node} says that it keeps {said:.6g} of the events, and its records are of others, too"
)
FEWER: Final = "{node} says that it keeps {said:.6g} of the events, and its records are of fewer"
DISORDER: Final = "the times of {node} contradict the numbers of its records {count:,} times"


def share_of(said: float | None, highest: int, events: int) -> tuple[float | None, str]:
    """Return the share of the events that a run keeps (None: unknown), and the text of a doubt or
    "".

    `said` is what its headers say, None without one; `highest` the greatest CRC-32 among its
    `events`, -1 without any. None: it is not known.
    """
    if said is None:
        return None, NO_HEADER
    limit = said * HASHES
    if highest >= limit:
        return (highest + 1) / HASHES, MORE
    if events and ((highest + 1) / limit) ** events < UNLIKELY:
        return (highest + 1) / HASHES, FEWER
    return said, ""


# The gaps in the records of a run, from those inside of its files and from where these begin and
# end. Files may have the same records, or some of them.


class _Stretch(NamedTuple):
    """Records of a run that follow one another in one file, by number and time."""

    first_n: int
    last_n: int
    first_hlc: int
    last_hlc: int


def gaps_of(
    files: Iterable[FileFacts], inside: Iterable[FileGap], nodes: Collection[str]
) -> list[RecordGap]:
    """Return the gaps in the records of each run of these `nodes`; `inside` are the gaps within
    files."""
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
