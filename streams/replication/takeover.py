"""Taking a shard over: from a majority's promises to the furthest log (`Seal`).

The candidate asks all replicas of its newest replica set. Once enough have promised, no leader of a
lower epoch commits any more, and of their logs the one with the highest (last epoch, number) has
all that was ever committed: not the longest, since an old leader's own chunks may be many.

Enough are a majority that is intact. For each majority that may have committed something shares a
replica with these: of three, one may be torn if both others answer. (For one and the same set of an
even number one less would do. But a candidate may not have heard of the last change of the set:
what two of three have committed after a fourth was removed, two of the four need not meet.) What is
fetched may change the replica set; then the promises are counted by the new one. If all have
answered, there is nobody left to ask: the furthest log counts, whether intact or not (after a loss
of power everywhere, each replica may have a torn tail that was never durable).
"""

from __future__ import annotations

from overlay.machine import NodeId, Peer
from streams.replication.local import LocalReplica
from streams.replication.messages import ShardFetch, ShardFetched, ShardSeal, ShardSealed


class Takeover:
    """A candidate's attempt under one epoch."""

    def __init__(self, replica: LocalReplica, epoch: int) -> None:
        self.replica = replica
        self.epoch = epoch
        self.grants: dict[NodeId, tuple[Peer, ShardSealed]] = {}

    def promised(self) -> None:
        """This node's own promise is durable: count it, and ask the others."""
        mine, intact = self.replica, not self.replica.promise.suspect
        grant = ShardSealed(mine.shard, self.epoch, mine.log.position, intact)
        self.grants[mine.port.me.id] = (mine.port.me, grant)
        self.ask()

    def ask(self) -> None:
        """Ask those who have not promised; fetch on from the furthest."""
        mine = self.replica
        if mine.port.me.id not in self.grants:
            return
        for peer in mine.replicas:
            if peer.id not in self.grants:
                mine.port.send(peer, ShardSeal(mine.shard, self.epoch))
        self.go_on()

    def sealed(self, sender: Peer, message: ShardSealed) -> None:
        """A replica has promised."""
        if message.epoch == self.epoch and sender.id not in self.grants:
            self.grants[sender.id] = (sender, message)
            self.go_on()

    def fetched(self, message: ShardFetched) -> None:
        """Chunks of the furthest log: take them, and go on when they are durable."""
        if message.epoch == self.epoch and self.is_enough():
            self.replica.take(message.chunks, message.start)
            if self.replica.ready:
                self.go_on()

    def is_enough(self) -> bool:
        """Whether those who have promised have between them all that may have been committed."""
        replicas = self.replica.replicas
        granted = [self.grants[p.id][1] for p in replicas if p.id in self.grants]
        majority = len(replicas) // 2 + 1
        intact = sum(grant.intact for grant in granted)
        if len(granted) == len(replicas):
            return bool(replicas)
        return intact >= majority

    def _is_sure(self) -> bool:
        """Whether the furthest log has all that was ever committed, whatever this one had lost."""
        replicas = self.replica.replicas
        intact = sum(p.id in self.grants and self.grants[p.id][1].intact for p in replicas)
        return intact > len(replicas) // 2

    def furthest(self) -> tuple[Peer, ShardSealed]:
        """Who has the furthest log of those who have promised."""
        return max(self.grants.values(), key=lambda grant: grant[1].position)

    def go_on(self) -> None:
        """Lead, if the furthest log is here and durable; else fetch what is missing."""
        mine = self.replica
        if not mine.is_taken_over_by(self) or not mine.ready or not self.is_enough():
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
            mine.begin_leading(self.epoch)
            mine.clear_suspicion()
