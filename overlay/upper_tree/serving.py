"""Serving leases: a host serves only while it knows that its owner counts on it (C6).

A host that was paused, or is cut off from the owner, has missed registrations; when it wakes up it
must not match by what it had. So it serves a tree only under a *serving lease* from the owner, and
answers *moved* without one. One lease covers all trees of an owner's arc at a host.

    owner                                      host
      │── ServingBeat(n, heard = n-1) ──────────►│  lease until its clock, when it answered n-1,
      │◄────────────────────── ServingReply(n) ──│  + LEASE_SHARE * term
    lease over for certain: when the reply to n was heard + term, unless another is heard

The host counts from its own answer, which the owner hears later: however slow the link is, or the
process, the lease ends at the host before the owner takes it for over. This leans on clocks whose
rates are bounded (DESIGN.md, section 5), no more. The SUBACK of a registration may then leave a
silent replica out. What it was sent meanwhile reaches it before any later beat, since links are
FIFO; a host whose link was lost gets no beat before it was told to forget what it had (balance.py).

An owner sends beats only while a majority of its voters follows it, and a new primary counts on the
leases of the one before: all of them are over one term after it was elected.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from overlay.chord.keys import in_arc
from overlay.machine import Alarm, Key, NodeId, Peer, Port, Timer
from overlay.upper_tree.messages import ServingBeat, ServingReply

LEASE_SHARE = 0.8
"""Of the term, as the host counts it: clocks may differ in rate by a fifth (see chord/pulse.py)."""

BEATS = 5
"""Beats in a term: with one on its way and one lost, a lease still stands."""

NEARLY = 0.9
"""The share of the time between two beats after which one is due, since timers are not exact."""

REPLIES_KEPT = 16
"""Own answers that a host remembers, per owner: more than fit into a term."""

LEASES_MOST = 1_024
"""Leases that a host holds, and owners whose beats it remembers, the oldest forgotten first: one
per cluster whose trees it serves. Wild guess."""


class ServingBeatDue(Timer, frozen=True):
    """At the owner: time for another beat."""


class Granted:
    """What the owner knows of the lease of one host."""

    __slots__ = ("heard", "number", "owed", "peer", "sent_at", "until")

    def __init__(self, peer: Peer, until: float | None) -> None:
        self.peer = peer
        self.number = 0  # of the last beat
        self.sent_at = float("-inf")
        self.heard = 0  # the last beat that was answered
        self.owed = False  # it has answered, and has no lease: the next beat should not wait
        self.until = until  # when the lease is over for certain; None: it never had one


class LeasesGranted:
    """At the owner: who may serve, and whose lease is over for certain."""

    def __init__(self, port: Port, term: float) -> None:
        self.port = port
        self.term = term
        self.hosts: dict[NodeId, Granted] = {}
        self._attended: dict[NodeId, Peer] = {}
        self._due = Alarm(port, ServingBeatDue())
        self._number = 0  # of the last beat to anybody: never used again by this process
        self._inherited = 0.0  # until when hosts may have leases from the primary before

    def begin(self) -> None:
        """This node is the primary now: others may have granted leases until now."""
        self.hosts.clear()
        self._inherited = self.port.now + self.term

    def end(self) -> None:
        """It is so no more."""
        self.hosts.clear()
        self._attended.clear()
        self._due.cancel()

    def attend(self, hosts: Iterable[Peer]) -> None:
        """Whose leases are to be renewed; a new one is granted at once."""
        self._attended = {host.id: host for host in hosts}
        for host in self._attended.values():
            if host.id not in self.hosts:
                inherited = self._inherited if self._inherited > self.port.now else None
                self.hosts[host.id] = Granted(host, inherited)
        if self._attended:
            self._due.within(self.term / BEATS)

    def due(self) -> list[NodeId]:
        """Attended hosts that should get a beat now."""
        since = self.port.now - NEARLY * self.term / BEATS
        return [n for n in self._attended if self.hosts[n].owed or self.hosts[n].sent_at <= since]

    def send(self, node: NodeId, start: Key, key: Key, epoch: int) -> None:
        """A beat from the owner of the arc (start, key]."""
        granted = self.hosts[node]
        self._number += 1
        granted.number, granted.sent_at, granted.owed = self._number, self.port.now, False
        beat = ServingBeat(start, key, epoch, granted.number, granted.heard)
        self.port.send(granted.peer, beat)

    def on_reply(self, sender: Peer, message: ServingReply) -> None:
        """The host had a beat: the next one prolongs its lease."""
        granted = self.hosts.get(sender.id)
        if granted is not None and granted.heard < message.number <= granted.number:
            had = granted.heard and granted.until is not None and granted.until > self.port.now
            granted.heard, granted.owed = message.number, not had
            granted.until = max(self.port.now + self.term, granted.until or 0.0)

    def rang(self) -> bool:
        """`ServingBeatDue`. Whether some lease is over."""
        self._due.rang()
        if self._attended:
            self._due.within(self.term / BEATS)
        over = [node for node in self.hosts if self.is_over(node)]
        for node, granted in list(self.hosts.items()):
            if node not in self._attended and (granted.until is None or self.is_over(node)):
                del self.hosts[node]
        return bool(over)

    def is_over(self, node: NodeId) -> bool:
        """Whether a host that had a lease has none any more, for certain."""
        granted = self.hosts.get(node)
        return granted is not None and granted.until is not None and granted.until <= self.port.now

    def may_serve(self, node: NodeId) -> bool:
        """Whether a host may have a lease, whatever became of it."""
        granted = self.hosts.get(node)
        until = self._inherited if granted is None else granted.until
        return until is not None and until > self.port.now

    def left(self, peer: Peer) -> None:
        """This host has said goodbye: it serves no more."""
        self.hosts[peer.id] = Granted(peer, self.port.now)


class Lease:
    """At the host: what one owner lets it serve."""

    __slots__ = ("epoch", "key", "start", "until")

    def __init__(self, start: Key, key: Key) -> None:
        self.start = start
        self.key = key
        self.epoch = 0
        self.until = 0.0


class LeasesHeld:
    """At the host: its leases, by arc. Times are the Port's seconds."""

    def __init__(self, term: float) -> None:
        self.term = term
        self._leases: OrderedDict[tuple[Key, Key], Lease] = OrderedDict()
        self._replied: OrderedDict[tuple[NodeId, Key], dict[int, float]] = OrderedDict()

    def take(self, sender: NodeId, beat: ServingBeat, now: float) -> None:
        """A beat: it may prolong a lease. It is answered now."""
        replied = self._replied.setdefault((sender, beat.key), {})
        self._replied.move_to_end((sender, beat.key))
        since = replied.get(beat.heard)
        if since is not None:
            self._prolong(beat, since + LEASE_SHARE * self.term)
        if beat.number < max(replied, default=0):
            replied.clear()  # the owner counts anew
        replied[beat.number] = now
        if len(replied) > REPLIES_KEPT:
            del replied[min(replied)]
        while len(self._replied) > LEASES_MOST:
            self._replied.popitem(last=False)

    def _prolong(self, beat: ServingBeat, until: float) -> None:
        arc = (beat.start, beat.key)
        lease = self._leases.setdefault(arc, Lease(*arc))
        self._leases.move_to_end(arc)
        if beat.epoch >= lease.epoch:
            lease.epoch = beat.epoch
            lease.until = max(until, lease.until)
        while len(self._leases) > LEASES_MOST:
            self._leases.popitem(last=False)

    def covers(self, key: Key, epoch: int, now: float) -> bool:
        """Whether a tree with this key may be served, whose owner had at least this epoch."""
        return any(
            lease.until > now and lease.epoch >= epoch and in_arc(key, lease.start, lease.key)
            for lease in self._leases.values()
        )
