"""The vocabulary of a cluster's observers, which keep a copy of its log and have no vote, and of
its recovery (P5).

The rest of what the paper names there is said with the messages of every day: RECOVERY(RT_SUB) is
`Install`, RECOVERY(RT) is `Assign`, SUCCESS their answers.
"""

from __future__ import annotations

from overlay.chord.cluster.messages import LogEntry
from overlay.chord.messages import Cluster
from overlay.machine import Key, Message, Uint53, Version


class Observe(Message, frozen=True):
    """From a cluster's primary: keep a copy of its log. Asks how far the receiver's copy is."""

    cluster: Cluster


class Observed(Message, frozen=True):
    """Answer, and acknowledgement: the copy is so far; (0, 0) is: there is none, or not all of it
    has arrived."""

    key: Key
    epoch: Uint53
    position: Version


class ObserverEntries(Message, frozen=True):
    """The entries of the log after the position `after`. Without items: the primary lives, and its
    log ends there. `awaited`: the primary acknowledges nothing to a subscriber before this copy has
    it."""

    key: Key
    epoch: Uint53
    after: Version
    entries: tuple[LogEntry, ...]
    awaited: bool


class ObserverSnapshot(Message, frozen=True):
    """One piece of the whole state at `position`. The state is sent in as many messages as it
    needs."""

    key: Key
    epoch: Uint53
    position: Version
    entries: tuple[bytes, ...]
    first: bool
    last: bool
    before: Uint53 | None = None
    """Entries in the pieces before this one; None: the sender's release does not say."""


class ObserverReleased(Message, frozen=True):
    """From the primary: the copy is no longer needed."""

    key: Key


class RecoverRequest(Message, frozen=True):
    """May the sender lead `cluster`, which has no leader as far as it sees, under the fork `epoch`?
    Its log, or copy of the log, is at `position`. (Epoch 0: not yet; the receiver is to look
    whether it hears a leader.)"""

    cluster: Cluster
    epoch: Uint53
    position: Version


class RecoverReply(Message, frozen=True):
    """Answer: whether the sender knows of no leader and of no fitter node. If it knows a leader,
    `Moved` goes along."""

    key: Key
    epoch: Uint53
    agreed: bool
