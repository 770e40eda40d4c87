"""The vocabulary of a cluster's observers (P5): who keeps a copy of its log and has no vote."""

from __future__ import annotations

from overlay.chord.consensus.messages import LogEntry
from overlay.chord.messages import Cluster
from overlay.machine import Key, Message, Version


class Observe(Message, frozen=True):
    """From a cluster's primary: keep a copy of its log. How far is the one that you have?"""

    cluster: Cluster


class Observed(Message, frozen=True):
    """Answer, and acknowledgement: the copy is so far; (0, 0) is: there is none, or not all of it
    has arrived."""

    key: Key
    epoch: int
    position: Version


class ObserverEntries(Message, frozen=True):
    """What follows in the log after the position `after`; without items: I live, and so far I am.
    `awaited`: nothing is acknowledged to a subscriber before this copy has it."""

    key: Key
    epoch: int
    after: Version
    entries: tuple[LogEntry, ...]
    awaited: bool


class ObserverSnapshot(Message, frozen=True):
    """One piece of the whole state at `position`, in as many messages as it needs."""

    key: Key
    epoch: int
    position: Version
    entries: tuple[bytes, ...]
    first: bool
    last: bool


class ObserverReleased(Message, frozen=True):
    """From the primary: the copy is needed no more."""

    key: Key
