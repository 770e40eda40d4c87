"""The facts on each file and on each pair of nodes, from which completeness is concluded, and the
claims of a run's records on the run itself, compared with its other records.

The header of a file says which share of the events its node keeps, and each record has a number and
a time of the hybrid logical clock. Where others contradict that it is a *doubt*: nothing is called
right by what is in doubt (`outcome.absences`). The claims on events and subscriptions, which need
the records themselves, are held in ``verdict/``. docs/design/traces.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

FOREVER = (1 << 63) - 1
"""As a time of the hybrid logical clock: no end is known."""


@dataclass(frozen=True)
class FileFacts:
    """The records of one run of a node in one file. Times with `hlc` are the hybrid logical
    clock's, in nanoseconds; `first` and `last` are wall clock seconds. What no record says is
    None."""

    file: str
    node: str
    run: int
    overlay: str | None
    sample: float | None
    lost: int
    records: int  # those with a number
    first_n: int | None
    last_n: int | None
    first_hlc: int | None
    last_hlc: int | None
    first: float
    last: float
    offset: float | None
    """Seconds by which the wall clock was ahead of the hybrid logical clock, in the median."""
    stopped: bool
    discarded: int
    """Records that it dropped, since a program did not read it."""
    acts: int
    """Its publish and subscribe records."""
    highest: int = -1
    """The greatest CRC-32 of the identity of an event that it names; -1: it names none."""
    events: int = 0
    """Different events that it names, as far as they are counted (`EVENTS_COUNTED`)."""
    published: int | None = None
    subscribed: int | None = None
    """Events that its last record says to have been published, and subscriptions that were made."""
    step: float = 0.0
    """Seconds by which its wall clock was set between two records, at most."""
    shares: tuple[tuple[int, float], ...] = ()
    """The share of its own events that it traces, from the event with this number on, by each
    record that says so."""
    disorders: int = 0
    """Records with a greater number and an earlier hybrid logical clock than the one before."""

    @property
    def has_gap(self) -> bool:
        """Whether numbers between its first and its last are absent, or there twice."""
        if self.first_n is None or self.last_n is None:
            return False
        return self.records != self.last_n - self.first_n + 1


@dataclass(frozen=True)
class FileGap:
    """Records of a run are absent between two that are there in one file."""

    file: str
    node: str
    run: int
    after: int  # number of the last one before
    before: int  # of the first one after
    since: int  # hybrid logical clock of the last one before
    until: int  # of the first one after


@dataclass(frozen=True)
class PeerFacts:
    """The facts on `peer` from the records of `node`: times of the hybrid logical clock, or
    None."""

    node: str
    peer: str
    met: bool  # they exchanged something
    heard: int | None  # the last time that something came from it
    lost: int | None  # the last time that it was reported as lost
    forwards: int  # events that were sent to it

    def joined(self, other: PeerFacts) -> PeerFacts:
        """Merge these facts with the `other` ones on the same two nodes."""
        return PeerFacts(
            node=self.node,
            peer=self.peer,
            met=self.met or other.met,
            heard=max((at for at in (self.heard, other.heard) if at is not None), default=None),
            lost=max((at for at in (self.lost, other.lost) if at is not None), default=None),
            forwards=self.forwards + other.forwards,
        )


def joined_peers(facts: Iterable[PeerFacts]) -> list[PeerFacts]:
    """Merge the facts on the same two nodes. Sorted by these."""
    found: dict[tuple[str, str], PeerFacts] = {}
    for each in facts:
        pair = (each.node, each.peer)
        found[pair] = found[pair].joined(each) if pair in found else each
    return [found[pair] for pair in sorted(found)]


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


class RecordStretch(NamedTuple):
    """Records of a run that follow one another in one file, by number and hybrid logical clock."""

    first: int
    last: int
    since: int
    until: int


Run = tuple[str, int]
"""A node's id and its incarnation."""


def stretches_of(
    files: Iterable[FileFacts], inside: Iterable[FileGap]
) -> dict[Run, list[RecordStretch]]:
    """The records that are there of each run; `inside` are the gaps within files."""
    torn: dict[tuple[str, str, int], list[FileGap]] = {}
    for gap in inside:
        torn.setdefault((gap.file, gap.node, gap.run), []).append(gap)
    by_run: dict[Run, list[RecordStretch]] = {}
    for part in files:
        if part.first_n is not None and part.last_n is not None:
            found = by_run.setdefault((part.node, part.run), [])
            first, since = part.first_n, part.first_hlc or 0
            gaps = torn.get((part.file, part.node, part.run), ())
            for gap in sorted(gaps, key=lambda gap: gap.after):
                found.append(RecordStretch(first, gap.after, since, gap.since))
                first, since = gap.before, gap.until
            found.append(RecordStretch(first, part.last_n, since, part.last_hlc or 0))
    return by_run
