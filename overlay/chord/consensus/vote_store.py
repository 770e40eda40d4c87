"""Durable votes (P4): an epoch has one primary, because a voter grants an epoch to one node only.

A vote is stored before the message that depends on it leaves (`Port.store`), and restored at the
next start. A node votes when it grants an epoch to a candidate, when it is the candidate, and when
it takes entries of an epoch: it has then helped to commit in it and must not help an older one
again.
"""

from __future__ import annotations

from collections.abc import Sequence

from overlay.chord.consensus.journal import Journal
from overlay.chord.consensus.messages import VoteRecord
from overlay.machine import Key, NodeId, Peer, Port


class VoteStore:
    """This node's votes, by cluster.

    Only the vote in the own cluster matters: a node that is recruited by another cluster has no log
    of the former one any more, and without a log it grants nothing there.
    """

    def __init__(self, port: Port, journal: Journal) -> None:
        self.port = port
        self.journal = journal

    @property
    def last(self) -> VoteRecord | None:
        """The newest vote, in whatever cluster; None if there was none."""
        return next(reversed(self.journal.votes.values()), None)

    def epoch(self, key: Key) -> int:
        """The highest epoch of the cluster `key` for which this node has voted; 0 if it has not."""
        vote = self.journal.votes.get(key)
        return 0 if vote is None else vote.epoch

    def may_vote(self, key: Key, epoch: int, candidate: NodeId) -> bool:
        """Whether this node may vote for `candidate` in `epoch`."""
        vote = self.journal.votes.get(key)
        return (
            vote is None
            or epoch > vote.epoch
            or (epoch == vote.epoch and candidate == vote.candidate)
        )

    def record(self, key: Key, epoch: int, candidate: NodeId, voters: Sequence[Peer]) -> None:
        """Vote for `candidate` in `epoch`, durably before anything that is sent later. A vote for a
        higher epoch stays. `voters`: all voters as known now, where this node would look for its
        cluster after a restart."""
        kept = self.journal.votes.get(key)
        if kept is not None and kept.epoch > epoch:  # a vote is never taken back
            epoch, candidate = kept.epoch, kept.candidate
        others = tuple(peer for peer in voters if peer.id != self.port.me.id)
        vote = VoteRecord(key, epoch, candidate, others)
        if kept != vote:
            self.journal.store_vote(vote)
