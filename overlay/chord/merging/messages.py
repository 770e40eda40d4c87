"""The vocabulary of two rings that become one (`merging`)."""

from __future__ import annotations

from overlay.chord.merging.phase import MergePhase
from overlay.chord.messages import Cluster
from overlay.machine import Key, Message, Peer


class RingMet(Message, frozen=True):
    """To a primary of the ring `ring`: there is a better one, `better`, in which `way` serves.
    Answered by Moved, or by RingEnded."""

    ring: str
    better: str
    way: Peer


class Merge(Message, frozen=True):
    """From the cluster that leads the merging of its ring to each cluster of it: it goes over to
    the ring of `into`, and this is the phase to be reached (0: it does not go over now)."""

    into: Cluster
    phase: MergePhase


class MergeReply(Message, frozen=True):
    """Answer: the cluster `key` has reached this phase."""

    key: Key
    phase: MergePhase


class RingEnded(Message, frozen=True):
    """The ring `ring` is no more, all that was registered there is in the ring of `into`: go over.
    Each node passes it on when it receives it first."""

    ring: str
    into: Cluster
