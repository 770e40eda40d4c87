"""Keeps copies of the log outside of the cluster, and knows how far each copy is (P5). At the
primary.

Where the whole cluster is lost, the node that takes its place begins with such a copy (`recovery`).
So it is kept by those that will: the ring successor's primary and its standby; in a ring of one
cluster, some idle nodes, the first by *rendezvous hash* (Thaler and Ravishankar, 1998) of those in
view, so that successive primaries choose alike as far as their views do.

An observer has no vote: nothing that is committed depends on it. It gets every entry as soon as the
log has it, before it is committed: an entry that is given up after all is noticed by its epoch when
the next primary asks how far the copy is, and until then does no harm: it is a registration that
its subscriber is about to ask for again. What is in a copy when it is used may be out of date as
well; subscribers say so when they renew.

An observer that has everything is *awaited* from then on: a SUBACK waits for it, too (`is_copied`),
and it hears so. So a copy whose primary was heard to the last lacks nothing that was
acknowledged. One that does not answer for `OBSERVER_AWAITED` seconds is not awaited until it does.
Another one takes its place if it cannot be reached either, or after `OBSERVER_SILENT_MOST`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1

from overlay.chord.cluster.leader_log import LeaderLog, log_pieces, snapshot_pieces
from overlay.chord.constants import (
    OBSERVER_AGAIN,
    OBSERVER_AWAITED,
    OBSERVER_HEARD_EVERY,
    OBSERVER_LAG_MOST,
    OBSERVER_SILENT_MOST,
    OBSERVERS,
)
from overlay.chord.events import FollowerSnapshotWanted, LogGrown, ObserversProgressed
from overlay.chord.messages import Cluster
from overlay.chord.recovery.messages import (
    Observe,
    Observed,
    ObserverEntries,
    ObserverReleased,
    ObserverSnapshot,
)
from overlay.chord.ring.ring_state import RingState
from overlay.chord.role import ClusterRole, RecruitingView
from overlay.consensus import EMPTY, Progress, ProgressState
from overlay.links.events import MessageDropped
from overlay.machine import Key, NodeId, Peer, Version, by_id

CATCH_UP, REPLICATE = ProgressState.CATCH_UP, ProgressState.REPLICATE


class ObserverProgress(Progress):
    """The primary's record of one copy. A copy that catches up waits for the whole state."""

    __slots__ = ("asked_at", "awaited", "copy", "pieces", "position", "said_at", "waits")

    def __init__(self, peer: Peer, now: float) -> None:
        super().__init__(peer)
        self.copy: Version = EMPTY  # the position of the whole state that is on its way
        self.pieces = 0  # of whole states that were sent and are not answered, but for last ones
        self.awaited = False  # a SUBACK waits for it
        self.position: Version = EMPTY  # the position that it has when all has arrived
        self.asked_at = now  # the oldest question that was not answered yet …
        self.waits = True  # … if there is one
        self.said_at = now  # when something was sent to it

    def say(self, now: float) -> None:
        """Note that a message was sent which the observer will answer."""
        if not self.waits:
            self.waits, self.asked_at = True, now
        self.said_at = now


@dataclass(eq=False)
class Observers:
    """The observers of the cluster that this node leads."""

    role: ClusterRole
    ring: RingState
    view: RecruitingView
    leader_log: LeaderLog

    def __post_init__(self) -> None:
        self.log = self.leader_log.local
        self.port = self.role.port
        self.observers: dict[NodeId, ObserverProgress] = {}
        self._epoch = 0  # of the cluster when they were asked …
        self._announced: Cluster | None = None  # … and all that they know of it
        self._refused: dict[NodeId, float] = {}  # did not answer; until when they are left alone

    # -- who -------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Regularly, at the primary: choose the observers, drop those that do not answer, and let
        each know that the primary lives."""
        cluster, now = self.role.led, self.port.now
        if cluster is None or self.role.leaving:
            self.end()
            return
        if self._epoch != cluster.epoch:
            self.observers.clear()
            self._epoch = cluster.epoch
        elif self._announced is not None and self._announced.version != cluster.version:
            for observer in self.observers.values():  # other members, or another arc
                self.port.send(observer.peer, Observe(cluster))
                observer.say(now)
            if self._announced.start != cluster.start:
                self._begin_again()
        self._announced = cluster
        for observer in list(self.observers.values()):
            silent = now - observer.asked_at if observer.waits else 0.0
            is_gone = silent > OBSERVER_AWAITED and not self.ring.is_reachable(observer.peer)
            if is_gone or silent > OBSERVER_SILENT_MOST:
                self.peer_lost(observer.peer.id)
            elif silent > OBSERVER_AWAITED and observer.awaited:
                observer.awaited = False  # until it answers
                self.port.emit(ObserversProgressed())
        wanted = by_id(self._wanted())
        for observer in list(self.observers.values()):
            if observer.peer.id not in wanted:
                del self.observers[observer.peer.id]
                self.port.send(observer.peer, ObserverReleased(cluster.key))
                self.port.emit(ObserversProgressed())
        for peer in wanted.values():
            if peer.id not in self.observers:
                self.observers[peer.id] = ObserverProgress(peer, now)
                self.port.send(peer, Observe(cluster))
        for observer in self.observers.values():
            quiet = now - observer.said_at >= 0.9 * OBSERVER_HEARD_EVERY  # timers: not exact
            if observer.state is REPLICATE and quiet:
                self._send(observer)
        self.port.watch("observers", tuple(wanted.values()))

    def _wanted(self) -> list[Peer]:
        """Return the nodes that should keep a copy: those that would lead if this cluster were
        lost."""
        cluster, now = self.role.own, self.port.now
        self._refused = {node: until for node, until in self._refused.items() if until > now}
        successor = next((c for c in self.ring.later_clusters() if c.key != cluster.key), None)
        if successor is not None:
            candidates = successor.members()[:OBSERVERS]
        else:
            stay = [observer.peer for observer in self.observers.values()]
            rest = sorted(self.view.idle_peers(), key=lambda peer: _rank(cluster.key, peer.id))
            candidates = tuple(by_id((*stay, *rest)).values())
        found = [
            peer
            for peer in candidates
            if peer.id not in self._refused
            and not cluster.has_member(peer.id)
            # Each other observer costs the whole state: one that has it, or is on its way to, stays
            # while it answers, whatever the views and links of a busy machine say for a moment.
            and (peer.id in self.observers or self.ring.is_reachable(peer))
        ]
        return found[:OBSERVERS]

    def _begin_again(self) -> None:
        """Send the whole state to all observers again, because the arc has changed. An observer
        that was sent the state while the change was being decided may hold trees that have left
        since, after the entry that names the arc."""
        for observer in self.observers.values():
            observer.awaited, observer.copy = False, EMPTY
            observer.change(CATCH_UP)
        self.port.emit(FollowerSnapshotWanted(self.role.own.key))
        self.port.emit(ObserversProgressed())

    def peer_lost(self, node: NodeId) -> None:
        """Stop waiting for an observer that does not answer."""
        if self.observers.pop(node, None) is not None:
            self._refused[node] = self.port.now + OBSERVER_AGAIN
            self.port.emit(ObserversProgressed())

    def dropped(self, event: MessageDropped) -> None:
        """Drop an observer when its link had no room for a message: its copy now lacks the message,
        and its answers do not show this. It is asked again after a while."""
        message = event.message
        if isinstance(message, Observe | ObserverEntries | ObserverSnapshot):
            self.peer_lost(event.peer.id)

    def end(self) -> None:
        """Drop all observers, because this node no longer leads. The next primary chooses its
        own."""
        if self.observers:
            self.observers.clear()
            self.port.watch("observers", ())
        self._epoch = 0

    # -- how far ---------------------------------------------------------------------------------

    def is_copied(self, index: int) -> bool:
        """Whether every observer that answers has entry `index` of the log."""
        if not self.observers:  # as where there is one node
            return True
        return all(o.match > index for o in self.observers.values() if o.awaited)

    def on_observed(self, sender: Peer, message: Observed) -> None:
        """Note the position of an observer's copy, and send the entries that it lacks."""
        observer = self.observers.get(sender.id)
        if (
            observer is None
            or self.log.voter_log is None
            or not self.role.leads(message.key, message.epoch)
        ):
            return
        observer.waits = False
        if message.position == EMPTY and observer.pieces:
            observer.pieces -= 1
            observer.say(self.port.now)
        elif EMPTY < message.position < observer.copy:
            # Its answer to what was sent before the copy, which replaces that.
            observer.say(self.port.now)
        elif observer.state is REPLICATE and EMPTY < message.position <= observer.position:
            self._acknowledged(observer, message.position[1])
        elif observer.state is not CATCH_UP:
            observer.awaited, observer.copy = False, EMPTY
            observer.change(ProgressState.PROBE)
            self._catch_up(observer, message.position)

    def _acknowledged(self, observer: ObserverProgress, reached: int) -> None:
        observer.copy = EMPTY
        observer.acknowledge(reached, self.port.now)
        if observer.match < observer.position[1]:
            observer.say(self.port.now)
        elif not observer.awaited and observer.match == self.log.next:
            observer.awaited = True
            self._send(observer)
        self.port.emit(ObserversProgressed())

    def _catch_up(self, observer: ObserverProgress, position: Version) -> None:
        """Send an observer whose copy ends at `position` the following entries, or the whole
        state."""
        voter_log = self.log.voter_log
        assert voter_log is not None
        if position != EMPTY and voter_log.after(position) is not None:
            observer.restart(REPLICATE, position[1])
            observer.position = position
            self._send(observer)
        else:
            observer.change(CATCH_UP)
            self.port.emit(FollowerSnapshotWanted(voter_log.key))

    def send_snapshot(self, entries: Sequence[bytes]) -> None:
        """Answer to FollowerSnapshotWanted: send the whole state to the observers that need it."""
        voter_log = self.log.voter_log
        waiting = [o for o in self.observers.values() if o.state is CATCH_UP]
        if voter_log is None or not waiting or not self.role.is_primary:
            return
        key, position = voter_log.key, voter_log.position
        pieces, before = [], 0
        for run, first, last in snapshot_pieces(entries):
            pieces.append(ObserverSnapshot(key, self._epoch, position, run, first, last, before))
            before += len(run)
        for observer in waiting:
            for piece in pieces:
                self.port.send(observer.peer, piece)
            observer.restart(REPLICATE, voter_log.next)
            observer.position = observer.copy = position
            observer.pieces += len(pieces) - 1
            observer.say(self.port.now)

    def on_log_grown(self, event: LogGrown) -> None:
        """Send the entries that were appended in this turn."""
        self.leader_log.growth_handled()
        if self.role.led is None or self.role.led.epoch != self._epoch:
            return
        for observer in self.observers.values():
            if observer.state is REPLICATE:
                self._send(observer)

    def _send(self, observer: ObserverProgress) -> None:
        """Send what the observer has not been sent yet, or that there is nothing."""
        voter_log = self.log.voter_log
        assert voter_log is not None
        items = voter_log.after(observer.position)
        if items is None or voter_log.next - observer.match > OBSERVER_LAG_MOST:
            self.port.emit(ObserversProgressed())
            observer.change(ProgressState.PROBE)  # its next answer says how far it is
            observer.awaited = False
            self.port.send(observer.peer, Observe(self.role.own))
            observer.say(self.port.now)
            return
        for after, piece in log_pieces(observer.position, items):
            entries = ObserverEntries(voter_log.key, self._epoch, after, piece, observer.awaited)
            self.port.send(observer.peer, entries)
        observer.position = voter_log.position
        observer.say(self.port.now)


def _rank(key: Key, node: NodeId) -> bytes:
    return sha1(f"{key}:{node}".encode(), usedforsecurity=False).digest()
