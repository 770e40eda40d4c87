"""The leader and the replicas of each shard, as the stream's owner decides them from reports.

The owner leaves a leader alone that reports. When none has reported for `SILENT` seconds, or its
link is down, the owner nominates the replica with the furthest log among those that answer. It asks
all replicas before it nominates one, so that a new owner does not depose a leader whose report is
still to come.

A report holds as long as its node is heard, since a node reports at once what has changed. So the
owner repeats itself seldom about a shard of which it has nothing new to say (`is_settled`,
`REFRESH`), and its heartbeats to a node cost the same however many shards that node has.

The leader replaces nodes that have not answered for `GONE` seconds, one by one, and at once nodes
that have lost their vote (*barred*). If there is no other node, it removes a barred one first,
which comes back with an empty log: it was in no majority, so nothing is lost.

A node that leaves in order gives up the lead once another replica has taken over. It stays a
replica if the others are a majority without it, since most nodes come back soon. If they are not,
the leader removes it from the replicas before it stops (silent replicas first, since a majority of
the remaining ones commits a change). It is added again when it comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from overlay.consensus import majority
from overlay.machine import NodeId, Peer, by_id
from streams.directory.entry import ShardPlace, StreamEntry, choose_replicas, directory_name
from streams.directory.messages import ShardOrder, ShardReport

HEARTBEAT: Final = 0.5
"""Seconds between two heartbeats of an owner to the replicas of its streams. It leaves half of the
intended failover time for the campaign itself."""

REFRESH: Final = 6.0
"""Seconds after which the nodes of a settled shard are asked all the same: what they were
told may have been lost with a link, or another node may be there to have the shard. Less than the
time after which a shard counts as orphaned (`streams.shard.hosting.shard_hosts.UNHEARD`)."""

SILENT: Final = 1.6
"""Seconds without a report after which a leader counts as lost although its link is up: three
heartbeats."""

ASKING: Final = 0.4
"""Seconds for which an owner without a leader waits for the reports of all replicas, before it
nominates one of those that have reported."""

GONE: Final = 30.0
"""Seconds without a report after which another node replaces a replica. Guess: longer than a
restart, so that a rolling update moves no logs."""

UNCLEAR: Final = 1.2
"""Seconds after a node has begun to leave for which the owner also waits for replicas that do not
answer: two heartbeats, and their answers."""

NO_MAJORITY_AFTER: Final = 2.0
"""Seconds without a majority of answering replicas after which programs get an error: longer than a
node's restart."""


class Heard:
    """The last report of one node on one shard, and its time."""

    def __init__(self, peer: Peer, report: ShardReport, now: float) -> None:
        self.peer, self.report, self.at = peer, report, now


class Supervision:
    """The owner's state of one shard. Times are the Port's seconds."""

    def __init__(
        self,
        entry: StreamEntry,
        number: int,
        now: float,
        alive: Mapping[NodeId, float] | None = None,
    ) -> None:
        """`alive`: when each node was heard last, about whatever shard."""
        self._alive = {} if alive is None else alive
        self.shard = entry.shard(number)
        self.stream = entry.name
        self.name = directory_name(entry.name)
        self.number = number
        self.heard: dict[NodeId, Heard] = {}
        self._down: set[NodeId] = set()
        self._asking_since = now
        self._nominated: NodeId = ""
        self._begun = now
        self._coming: Peer | None = None  # the next replica, which the leader sends the log
        self._leaving: dict[NodeId, tuple[float, float]] = {}  # time of the first and last report
        self._had_majority = now  # the last time at which a majority answered
        self._ordered_at = now  # the time of the last heartbeat

    # -- what is heard ---------------------------------------------------------------------------

    def reported(self, peer: Peer, report: ShardReport, now: float) -> bool:
        """Keep a node's report. Returns whether it differs from the one before."""
        before = self.heard.get(peer.id)
        self._down.discard(peer.id)
        self.heard[peer.id] = Heard(peer, report, now)
        if report.is_leaving:
            self._leaving[peer.id] = (self._leaving.get(peer.id, (now,))[0], now)
        else:
            self._leaving.pop(peer.id, None)
        return before is None or _standing(before.report) != _standing(report)

    def link_down(self, node: NodeId) -> None:
        """Note that a node is unreachable: for this owner it does not lead."""
        self._down.add(node)
        self._leaving.pop(node, None)

    def leader(self, now: float) -> Heard | None:
        """The node that leads, by its own recent report."""
        leading = [
            heard
            for heard in self.heard.values()
            if heard.report.leading and self._answers(heard, now)
        ]
        return max(leading, key=lambda heard: heard.report.leading, default=None)

    def answering(self, place: ShardPlace, now: float) -> int:
        """The number of replicas that answer, if it has been no majority for `NO_MAJORITY_AFTER`
        seconds of heartbeats; else -1."""
        if now - self._ordered_at > SILENT:  # there were no heartbeats for a while
            return -1
        count = sum(self._is_ready(peer.id, now) for peer in place.replicas)
        if count >= majority(len(place.replicas)):
            self._had_majority = now
        return count if now - self._had_majority > NO_MAJORITY_AFTER else -1

    def _is_ready(self, node: NodeId, now: float) -> bool:
        heard = self.heard.get(node)
        return heard is not None and self._answers(heard, now) and heard.report.is_ready

    # -- nodes that leave ------------------------------------------------------------------------

    def moves_on(self, node: NodeId, report: ShardReport) -> bool:
        """Whether a report is a step of a node's leaving, so that the next step can begin."""
        before = self.heard.get(node)
        if before is None or not (self._leaving or report.is_leaving):
            return report.is_leaving
        old = before.report
        known = (old.is_leaving, old.leading, old.replicas)
        return known != (report.is_leaving, report.leading, report.replicas)

    def _is_leaving(self, node: NodeId, now: float) -> bool:
        return node in self._leaving and now - self._leaving[node][1] <= GONE

    def _staying(self, place: ShardPlace, now: float) -> list[NodeId]:
        """The replicas that answer and do not leave."""
        ids = [peer.id for peer in place.replicas]
        return [n for n in ids if self._is_ready(n, now) and not self._is_leaving(n, now)]

    def _shrinks(self, place: ShardPlace, now: float) -> bool:
        """Whether the replicas that stay are no majority, and those that answer are one, which can
        still remove others."""
        staying, count = self._staying(place, now), len(place.replicas)
        there = sum(self._is_ready(peer.id, now) for peer in place.replicas)
        return 0 < len(staying) < majority(count) <= there

    def released(self, place: ShardPlace, now: float) -> tuple[Peer, ...]:
        """The leaving nodes that this shard no longer needs."""
        leaving = [node for node in self._leaving if self._is_leaving(node, now)]
        if not leaving:
            return ()
        awaited: set[NodeId] = set()
        replicas = by_id(place.replicas)
        is_new = now - min(self._leaving[node][0] for node in leaving) < UNCLEAR
        is_enough = len(self._staying(place, now)) >= majority(len(replicas))
        leader = self.leader(now)
        # A replica that does not answer may have come back just now.
        is_open = is_new and not replicas.keys() <= set(leaving)
        changes = leader is not None and (self._coming is not None or not leader.report.replicas)
        if place.is_founded and not is_enough:
            awaited.update(replicas if is_open or changes or self._shrinks(place, now) else ())
        if leader is not None and self._successor(place, leader, now) != leader.peer.id:
            awaited.add(leader.peer.id)
        return tuple(
            self.heard[node].peer for node in leaving if node in self.heard and node not in awaited
        )

    # -- what is to be done ----------------------------------------------------------------------

    def place(self, entry: StreamEntry, now: float) -> ShardPlace | None:
        """The shard's new place for the entry; None: it is unchanged."""
        leader = self.leader(now)
        if leader is None or not leader.report.replicas:
            return None
        replicas = by_id(leader.report.replicas)
        mine = entry.places[self.number]
        if mine.is_founded and by_id(mine.replicas).keys() == replicas.keys():
            return None
        return ShardPlace(tuple(replicas.values()), is_founded=True)

    def nominee(self, place: ShardPlace, now: float) -> NodeId:
        """The node that is to lead; "": wait for reports."""
        leader = self.leader(now)
        if leader is not None:
            successor = self._successor(place, leader, now)
            self._asking_since, self._nominated = now, successor
            return successor
        lost = ""
        if self._nominated:  # the leader was lost, or the nominee does not manage
            heard = self.heard.get(self._nominated)
            is_there = heard is not None and self._answers(heard, now)
            if is_there and now - self._asking_since < SILENT:
                return self._nominated
            self._asking_since, lost, self._nominated = now, self._nominated, ""
        ready = [self.heard[peer.id] for peer in place.replicas if self._is_ready(peer.id, now)]
        # The lost leader's report is not waited for. Reports may be half a second old: the nominee
        # fetches the chunks that another replica has more.
        there = {heard.peer.id for heard in ready}
        is_complete = all(peer.id in there or peer.id == lost for peer in place.replicas)
        if not is_complete and now - self._asking_since < ASKING:
            return ""
        if len(ready) < majority(len(place.replicas)):  # none would follow
            return ""
        staying = set(self._staying(place, now))
        able = [heard for heard in ready if heard.peer.id in staying] or ready
        furthest = max(able, key=lambda heard: heard.report.position)
        self._asking_since, self._nominated = now, furthest.peer.id
        return furthest.peer.id

    def _successor(self, place: ShardPlace, leader: Heard, now: float) -> NodeId:
        """The present leader, or, if it leaves and a majority answers, the replica with the
        furthest log among those that stay."""
        there = sum(self._is_ready(peer.id, now) for peer in place.replicas)
        staying = self._staying(place, now)
        if not self._is_leaving(leader.peer.id, now) or there < majority(len(place.replicas)):
            return leader.peer.id
        if self._nominated in staying:
            return self._nominated
        return max(staying, key=lambda n: self.heard[n].report.position, default=leader.peer.id)

    def is_decidable(self, place: ShardPlace, now: float) -> bool:
        """Whether the shard has neither leader nor nominee, and all replicas have reported their
        positions."""
        heard = [self.heard.get(peer.id) for peer in place.replicas]
        return (
            self.leader(now) is None
            and not self._nominated
            and all(h is not None and self._answers(h, now) and h.report.is_ready for h in heard)
        )

    def _answers(self, heard: Heard, now: float) -> bool:
        return heard.peer.id not in self._down and now - self._heard_at(heard) <= SILENT

    def _heard_at(self, heard: Heard) -> float:
        return max(heard.at, self._alive.get(heard.peer.id, 0.0))

    def is_settled(self, place: ShardPlace, order: ShardOrder, now: float) -> bool:
        """Whether nothing else than `order` is to be said of the shard until a node reports
        something else or is silent, or the stream changes."""
        leader = self.leader(now)
        if leader is None or not place.is_founded or leader.peer.id != order.leader:
            return False
        inside = by_id(place.replicas).keys()
        if by_id(leader.report.replicas).keys() != inside or by_id(order.replicas).keys() != inside:
            return False
        return not self._leaving and all(self._is_ready(node, now) for node in inside)

    def wanted(
        self, place: ShardPlace, stream: str, count: int, candidates: dict[NodeId, Peer], now: float
    ) -> tuple[Peer, ...]:
        """The wanted replicas: one more than the present ones while some are missing or gone, or
        one less while they are too many. So one comes or goes at a time."""
        there = by_id(place.replicas)
        gone = [peer for node, peer in there.items() if self._is_gone(node, now)]
        leader = self.leader(now)
        led = "" if leader is None else leader.peer.id
        leaving = [peer for n, peer in there.items() if self._is_leaving(n, now) and n != led]
        if self._shrinks(place, now):
            silent = [p for node, p in there.items() if not self._is_ready(node, now)]
            leaves = next((peer.id for peer in (*silent, *leaving)), "")
            return tuple(peer for node, peer in there.items() if node != leaves)
        if len(there) > count:
            spare = [p for n, p in there.items() if n != led]
            leaves = (gone or leaving or spare)[-1].id
            return tuple(peer for node, peer in there.items() if node != leaves)
        if len(there) - len(gone) == count:
            return place.replicas
        coming = self._coming
        unfit = {*there, *self._down, *(n for n in self._leaving if self._is_leaving(n, now))}
        if coming is None or coming.id in unfit:
            others = {
                n: p
                for n, p in candidates.items()
                if n not in there and not self._is_leaving(n, now)
            }
            coming = next(iter(choose_replicas(stream, self.number, 1, others)), None)
        self._coming = coming
        if coming is not None:
            return (*place.replicas, coming)
        barred = next((peer.id for peer in gone if self.is_barred(peer.id)), "")
        return tuple(peer for node, peer in there.items() if node != barred)

    def is_barred(self, node: NodeId) -> bool:
        """Whether a node has reported that it has lost its vote."""
        heard = self.heard.get(node)
        return heard is not None and heard.report.is_barred

    def destroyed(self, node: NodeId) -> None:
        """Forget the reports of a node that has destroyed the shard."""
        self.heard.pop(node, None)

    def _is_gone(self, node: NodeId, now: float) -> bool:
        heard = self.heard.get(node)
        since = self._begun if heard is None else self._heard_at(heard)
        return self.is_barred(node) or now - since > GONE

    def order(
        self, entry: StreamEntry, candidates: Callable[[], dict[NodeId, Peer]], now: float
    ) -> ShardOrder:
        """The order for all nodes that have the shard, or are to have it."""
        place = entry.places[self.number]
        wanted = place.replicas
        if place.is_founded:
            count = entry.options.replicas
            wanted = self.wanted(place, entry.id, count, candidates(), now)
        founders = () if place.is_founded else place.replicas
        if now - self._ordered_at > SILENT:
            self._had_majority = now
        self._ordered_at = now
        self.answering(place, now)
        nominee, released = self.nominee(place, now), self.released(place, now)
        return ShardOrder(
            self.shard, nominee, founders, wanted, released=tuple(peer.id for peer in released)
        )


def _standing(report: ShardReport) -> tuple[object, ...]:
    """Return a report without the position of the log."""
    return (report.leading, report.is_ready, report.replicas, report.is_barred, report.is_leaving)
