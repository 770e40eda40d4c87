"""Who leads each shard, and who is to have it: what a stream's owner makes of the nodes' reports.

A leader that reports is left alone. When none has reported for `SILENT` seconds, or its link is
down, the owner nominates the furthest of those that answer; it asks all replicas before it
nominates anybody, so that a new owner does not depose a leader that it has not heard of yet.

Nodes that do not answer for `GONE` seconds are replaced, one by one, by the leader; at once those
that have lost their promises (*barred*). Where there is no other node, such a one is removed first,
and comes back with an empty log: it was no part of any majority, so none is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.machine import NodeId, Peer, by_id
from streams.directory.entry import ShardPlace, StreamEntry, choose_replicas
from streams.directory.messages import ShardOrder, ShardReport

HEARTBEAT: Final = 0.5
"""Seconds between two heartbeats of an owner to the nodes that have its streams' shards. Half of
the failover time that is aimed at is left for the takeover itself."""

SILENT: Final = 1.6
"""Seconds without a report after which a leader counts as lost, if its link is not known to be
down: three heartbeats."""

ASKING: Final = 0.4
"""Seconds for which an owner that knows no leader waits for all replicas to report, before it
nominates one of those that have."""

GONE: Final = 30.0
"""Seconds without a report after which another node takes a replica's place. Guess: longer than a
restart, so that nodes which are updated one after the other do not make every log move."""


class Heard:
    """The last report of one node on one shard, and when it came."""

    def __init__(self, peer: Peer, report: ShardReport, now: float) -> None:
        self.peer, self.report, self.at = peer, report, now


class Supervision:
    """One shard, seen by the owner of its stream. Times are the Port's seconds."""

    def __init__(self, entry: StreamEntry, number: int, now: float) -> None:
        self.shard = entry.shard(number)
        self.stream = entry.name
        self.number = number
        self.heard: dict[NodeId, Heard] = {}
        self._down: set[NodeId] = set()
        self._asking_since = now
        self._nominated: NodeId = ""
        self._begun = now
        self._coming: Peer | None = None  # who is being sent the log, to become a replica

    # -- what is heard ---------------------------------------------------------------------------

    def reported(self, peer: Peer, report: ShardReport, now: float) -> None:
        """A node has said what it has."""
        self._down.discard(peer.id)
        self.heard[peer.id] = Heard(peer, report, now)

    def link_down(self, node: NodeId) -> None:
        """A node is out of reach: it does not lead, as far as this owner can say."""
        self._down.add(node)

    def leader(self, now: float) -> Heard | None:
        """Who leads, by its own word and not long ago."""
        leading = [
            heard
            for node, heard in self.heard.items()
            if heard.report.leading and node not in self._down and now - heard.at <= SILENT
        ]
        return max(leading, key=lambda heard: heard.report.leading, default=None)

    # -- what is to be done ----------------------------------------------------------------------

    def place(self, entry: StreamEntry, now: float) -> ShardPlace | None:
        """What the entry is to say of the shard from now on; None: what it says already."""
        leader = self.leader(now)
        if leader is None or not leader.report.replicas:
            return None
        replicas = by_id(leader.report.replicas)
        mine = entry.places[self.number]
        if mine.is_founded and by_id(mine.replicas).keys() == replicas.keys():
            return None
        return ShardPlace(tuple(replicas.values()), is_founded=True)

    def nominee(self, place: ShardPlace, now: float) -> NodeId:
        """Who is to lead; "": wait for reports."""
        leader = self.leader(now)
        if leader is not None:
            self._asking_since, self._nominated = now, leader.peer.id
            return leader.peer.id
        lost = ""
        if self._nominated:  # the leader was lost, or the nominee does not manage
            heard = self.heard.get(self._nominated)
            is_there = heard is not None and self._answers(heard, now)
            if is_there and now - self._asking_since < SILENT:
                return self._nominated
            self._asking_since, lost, self._nominated = now, self._nominated, ""
        ready = [
            heard
            for peer in place.replicas
            if (heard := self.heard.get(peer.id)) is not None
            and self._answers(heard, now)
            and heard.report.is_ready
        ]
        # Who is lost is not waited for. Reports that are half a second old do: the nominee fetches
        # what another has more.
        there = {heard.peer.id for heard in ready}
        is_complete = all(peer.id in there or peer.id == lost for peer in place.replicas)
        if not is_complete and now - self._asking_since < ASKING:
            return ""
        if 2 * len(ready) <= len(place.replicas):  # no majority would follow
            return ""
        furthest = max(ready, key=lambda heard: heard.report.position)
        self._asking_since, self._nominated = now, furthest.peer.id
        return furthest.peer.id

    def is_decidable(self, place: ShardPlace, now: float) -> bool:
        """Whether nobody leads or is nominated, and all replicas have said how far they are."""
        heard = [self.heard.get(peer.id) for peer in place.replicas]
        return (
            self.leader(now) is None
            and not self._nominated
            and all(h is not None and self._answers(h, now) and h.report.is_ready for h in heard)
        )

    def _answers(self, heard: Heard, now: float) -> bool:
        return heard.peer.id not in self._down and now - heard.at <= SILENT

    def wanted(
        self, place: ShardPlace, stream: str, count: int, candidates: dict[NodeId, Peer], now: float
    ) -> tuple[Peer, ...]:
        """Which nodes are to have the shard: one more than have it while some are missing or gone,
        and one less where they are too many. So one comes or goes at a time."""
        there = by_id(place.replicas)
        gone = [peer for node, peer in there.items() if self._is_gone(node, now)]
        if len(there) > count:
            leader = self.leader(now)
            spare = [p for n, p in there.items() if leader is None or n != leader.peer.id]
            leaves = (gone or spare)[-1].id
            return tuple(peer for node, peer in there.items() if node != leaves)
        if len(there) - len(gone) == count:
            return place.replicas
        coming = self._coming
        if coming is None or coming.id in there or coming.id in self._down:
            others = {n: p for n, p in candidates.items() if n not in there}
            coming = next(iter(choose_replicas(stream, self.number, 1, others)), None)
        self._coming = coming
        if coming is not None:
            return (*place.replicas, coming)
        barred = next((peer.id for peer in gone if self.is_barred(peer.id)), "")
        return tuple(peer for node, peer in there.items() if node != barred)

    def is_barred(self, node: NodeId) -> bool:
        """Whether a node has said that it has lost its promises."""
        heard = self.heard.get(node)
        return heard is not None and heard.report.is_barred

    def destroyed(self, node: NodeId) -> None:
        """A node has the shard no more."""
        self.heard.pop(node, None)

    def _is_gone(self, node: NodeId, now: float) -> bool:
        heard = self.heard.get(node)
        since = self._begun if heard is None else heard.at
        return self.is_barred(node) or now - since > GONE

    def order(
        self, entry: StreamEntry, candidates: Callable[[], dict[NodeId, Peer]], now: float
    ) -> ShardOrder:
        """What all nodes that are to have the shard are told."""
        place = entry.places[self.number]
        wanted = place.replicas
        if place.is_founded:
            count = entry.options.replicas
            wanted = self.wanted(place, entry.id, count, candidates(), now)
        founders = () if place.is_founded else place.replicas
        return ShardOrder(self.shard, self.nominee(place, now), founders, wanted)
