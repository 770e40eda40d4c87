"""A candidate for a shard: it collects votes, fetches the furthest log, and leads.

The candidate asks all replicas of its newest replica set. Once enough have voted for it, no leader
of a lower epoch commits (`overlay.consensus.votes`), and the furthest of their logs has all that
was ever committed; the candidate fetches what it lacks of that. So any replica may be nominated,
and voters need not compare logs before they vote.

Enough is a majority of intact replicas: it shares a replica with each majority that may have
committed something. Of three, one may be torn if both others answer. (For a set of an even number,
one less would do. But a candidate may not know the last change of the set: what two of three have
committed after a fourth was removed, two of the four need not have.) A fetched log may change the
replica set; then the votes count by the new one. If all have answered, nobody is left to ask: the
furthest log counts, intact or not (after a loss of power everywhere, each replica may have a torn
tail that was never durable).
"""

from __future__ import annotations

from collections.abc import Callable

from overlay.consensus.quorum import has_majority
from overlay.machine import NodeId, Peer
from streams.shard.messages import (
    RequestShardVote,
    ShardFetch,
    ShardFetched,
    ShardVoteReply,
)
from streams.shard.stored_replica import StoredReplica


class ShardCampaign:
    """A candidate's attempt under one epoch."""

    def __init__(self, replica: StoredReplica, epoch: int, won: Callable[[], None]) -> None:
        """`won` is called when the furthest log is here: this node leads from then on."""
        self.replica = replica
        self.epoch = epoch
        self._won = won
        self._is_over = False
        self.votes: dict[NodeId, tuple[Peer, ShardVoteReply]] = {}

    def end(self) -> None:
        """Give up: another may lead."""
        self._is_over = True

    def voted(self) -> None:
        """This node's own vote is durable: count it, and ask the others."""
        mine = self.replica
        intact = not mine.hard_state.suspect
        vote = ShardVoteReply(mine.shard, self.epoch, mine.log.position, intact)
        self.votes[mine.port.me.id] = (mine.port.me, vote)
        self.ask()

    def ask(self) -> None:
        """Ask those who have not voted; fetch on from the furthest."""
        mine = self.replica
        if mine.port.me.id not in self.votes:
            return
        for peer in mine.replicas:
            if peer.id not in self.votes:
                mine.port.send(peer, RequestShardVote(mine.shard, self.epoch))
        self.go_on()

    def granted(self, sender: Peer, message: ShardVoteReply) -> None:
        """A replica has voted for this node."""
        if message.epoch == self.epoch and sender.id not in self.votes:
            self.votes[sender.id] = (sender, message)
            self.go_on()

    def fetched(self, message: ShardFetched) -> None:
        """Chunks of the furthest log: take them, and go on when they are durable."""
        if message.epoch == self.epoch and self.is_enough():
            before = self.replica.log.end
            self.replica.take(message.chunks, message.start)
            # Who got nothing new asks when its timer fires (`ask`), and not in a loop.
            if self.replica.ready and self.replica.log.end != before:
                self.go_on()

    def is_enough(self) -> bool:
        """Whether those who have voted have between them all that may have been committed."""
        replicas = self.replica.replicas
        is_everybody = bool(replicas) and all(peer.id in self.votes for peer in replicas)
        return is_everybody or self._is_sure()

    def _is_sure(self) -> bool:
        """Whether the furthest log has all that was ever committed, whatever this one had lost."""
        intact = {node for node, (_, vote) in self.votes.items() if vote.intact}
        return has_majority(self.replica.replicas, intact)

    def furthest(self) -> tuple[Peer, ShardVoteReply]:
        """The voter with the furthest log, and its vote."""
        return max(self.votes.values(), key=lambda vote: vote[1].position)

    def go_on(self) -> None:
        """Lead, if the furthest log is here and durable; else fetch what is missing."""
        mine = self.replica
        if self._is_over or not mine.ready or not self.is_enough():
            return
        if mine.durable != mine.log.end.number:
            return
        peer, furthest = self.furthest()
        if mine.log.position < furthest.position:
            end = (mine.log.end.number, mine.log.end.hash)
            fetch = ShardFetch(mine.shard, self.epoch, end, min(mine.committed, end[0]))
            mine.port.send(peer, fetch)
        else:
            if self._is_sure():
                mine.clear_suspicion()
            self._won()
            mine.clear_suspicion()
