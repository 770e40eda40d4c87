"""The facts on each file and on each pair of nodes, from which completeness is concluded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
    """Different events that it names, as far as they are counted (`claims.EVENTS_COUNTED`)."""
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
class RecordGap:
    """Records of a run are absent between two that are there."""

    node: str
    run: int
    since: int  # hybrid logical clock of the last one before
    until: int  # of the first one after
    records: int


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
