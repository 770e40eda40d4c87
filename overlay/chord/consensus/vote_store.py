"""Durable grants (P4): an epoch has one primary, because a voter grants an epoch once and for all.

A promise is stored before the message that depends on it leaves (`Port.store`), and restored at
the next start. A node stores one when it grants an epoch, asks for one itself, and when it takes
entries of one: it has then helped to commit in it and may not help an older one again.
"""

from __future__ import annotations

from collections.abc import Sequence

from overlay.chord.consensus.journal import Journal
from overlay.chord.consensus.messages import VoteRecord
from overlay.machine import Key, NodeId, Peer, Port


class VoteStore:
    """What this node has promised, by cluster.

    It matters for the own cluster only: whoever is recruited by another one has no log of the
    former any more, without which it grants nothing there.
    """

    def __init__(self, port: Port, journal: Journal) -> None:
        self.port = port
        self.journal = journal

    @property
    def last(self) -> VoteRecord | None:
        """The newest."""
        return next(reversed(self.journal.votes.values()), None)

    def epoch(self, key: Key) -> int:
        """The highest epoch of the cluster `key` that was promised to anybody; 0: none."""
        promise = self.journal.votes.get(key)
        return 0 if promise is None else promise.epoch

    def may_vote(self, key: Key, epoch: int, candidate: NodeId) -> bool:
        """Whether the epoch is still free for `candidate`."""
        promise = self.journal.votes.get(key)
        return (
            promise is None
            or epoch > promise.epoch
            or (epoch == promise.epoch and candidate == promise.candidate)
        )

    def record(self, key: Key, epoch: int, candidate: NodeId, voters: Sequence[Peer]) -> None:
        """Promise, durably before anything that is sent later."""
        kept = self.journal.votes.get(key)
        if kept is not None and kept.epoch > epoch:  # a promise is never taken back
            epoch, candidate = kept.epoch, kept.candidate
        others = tuple(peer for peer in voters if peer.id != self.port.me.id)
        promise = VoteRecord(key, epoch, candidate, others)
        if kept != promise:
            self.journal.store_vote(promise)
