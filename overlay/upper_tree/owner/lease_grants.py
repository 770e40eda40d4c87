"""Serving leases that the owner grants: a host serves only while it has one (C6).

A host that was paused, or is cut off from the owner, has missed registrations; when it wakes up it
must not match by what it had. So it serves a tree only under a *serving lease* from the owner, and
answers `TreeMoved` without one. One lease covers all trees of an owner's arc at a host.

    owner                                      host
      │── ServingBeat(n, heard = n-1, term) ────►│  lease until its clock, when it answered n-1,
      │◄────────────────────── ServingReply(n) ──│  + LEASE_SHARE * term
    over for certain at the owner: when it heard the reply to n-1, + term

The host counts from its own answer, which the owner hears later: however slow the link is, or the
process, the lease ends at the host before the owner takes it for over. This leans on clocks whose
rates differ by a bounded factor (LEASE_SHARE in host/constants.py), no more. The SUBACK of a
registration may then leave a silent replica out. What it was sent meanwhile reaches it before any
later beat, since links are FIFO; a host whose link was lost gets no beat before the order to
forget what it had (rebalance.py).

The term is `tree.serving_lease`, and longer where answers are measured to take long, so that leases
do not end on a slow network: `tree.serving_most` at most.

An owner sends beats only while a majority of its voters follows it. A new primary waits for the
leases that the one before granted: all of them are over `tree.serving_most` after its election.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from overlay.bounded import BoundedDict
from overlay.machine import Alarm, Key, NodeId, Peer, Port, Timer
from overlay.upper_tree.messages import ServingBeat, ServingReply
from overlay.upper_tree.owner.constants import BEATS, BEATS_REMEMBERED, NEARLY, TERM_SHARE


class ServingBeatDue(Timer, frozen=True):
    """At the owner: time for another beat."""


class LeaseGrant(msgspec.Struct):
    """The owner's record of one host's serving lease."""

    peer: Peer
    until: float | None  # when the lease is over for certain; None: it never had one
    number: int = 0  # of the last beat
    sent_at: float = float("-inf")
    sent: BoundedDict[int, float] = msgspec.field(  # when, by number
        default_factory=lambda: BoundedDict(BEATS_REMEMBERED)
    )
    heard: int = 0  # the last beat that was answered …
    heard_at: float = 0.0  # … and when
    owed: bool = False  # it has answered, and has no lease: the next beat should not wait
    _srtt: float = 0.0  # round-trip estimate (RFC 6298) …
    _rttvar: float = 0.0  # … and its variance

    def measured(self, took: float) -> None:
        """Update the round-trip estimate by an answer that took `took` seconds (RFC 6298, section
        2)."""
        if not self._srtt:
            self._srtt, self._rttvar = took, took / 2.0
        self._rttvar += (abs(self._srtt - took) - self._rttvar) / 4.0
        self._srtt += (took - self._srtt) / 8.0

    @property
    def round_trip(self) -> float:
        """Smoothed seconds until a beat is answered; 0: not measured."""
        return self._srtt

    def term(self, least: float, most: float) -> float:
        """Seconds of the host's next lease."""
        return min(max(least, TERM_SHARE * (self._srtt + 4.0 * self._rttvar)), most)


class LeaseGrants:
    """Knows at the owner who may serve, and whose lease is over for certain."""

    def __init__(self, port: Port, least: float, most: float) -> None:
        """`least` and `most` seconds of a lease."""
        self.port = port
        self.least = least
        self.most = most
        self._hosts: dict[NodeId, LeaseGrant] = {}
        self._attended: dict[NodeId, Peer] = {}
        self._due = Alarm(port, ServingBeatDue())
        self._number = 0  # of the last beat to any host: never used again by this process

    def begin(self, hosts: Iterable[Peer]) -> None:
        """Begin to grant leases as the new primary. `hosts` may have leases from the previous
        primary."""
        until = self.port.now + self.most
        self._hosts = {host.id: LeaseGrant(host, until) for host in hosts}

    def end(self) -> None:
        """Grant nothing from now on: this node is no longer the primary."""
        self._hosts.clear()
        self._attended.clear()
        self._due.cancel()

    def attend(self, hosts: Iterable[Peer]) -> None:
        """Renew the leases of these hosts from now on, and grant a lease to each new one at
        once."""
        self._attended = {host.id: host for host in hosts}
        for host in self._attended.values():
            if host.id not in self._hosts:
                self._hosts[host.id] = LeaseGrant(host, None)
        if self._attended:
            self._due.within(self.least / BEATS)

    def attends(self, node: NodeId) -> bool:
        """Whether this host's lease is renewed."""
        return node in self._attended

    def last_answer(self, node: NodeId) -> tuple[float, float]:
        """Return when a host last answered a beat, and how long its answers take (seconds; 0:
        unknown)."""
        grant = self._hosts.get(node)
        return (0.0, 0.0) if grant is None else (grant.heard_at, grant.round_trip)

    def grant_soon(self) -> None:
        """Send a beat to every host at once, because some trees have no lease yet."""
        for grant in self._hosts.values():
            grant.owed = True

    def serves(self, node: NodeId) -> bool:
        """Whether a host has a lease, or one on its way, for all that its owner decides about."""
        grant = self._hosts.get(node)
        return grant is not None and grant.heard > 0 and not grant.owed

    def due(self) -> list[NodeId]:
        """Attended hosts that should get a beat now."""
        return [node for node in self._attended if self.is_due(node)]

    def is_due(self, node: NodeId) -> bool:
        """Whether this attended host should get a beat now. One that has not answered the last one
        yet is given time: more beats would not come faster."""
        grant = self._hosts[node]
        pause = (self.least if grant.heard == grant.number else self.most) / BEATS
        return grant.owed or grant.sent_at <= self.port.now - NEARLY * pause

    def send(self, node: NodeId, start: Key, key: Key, epoch: int) -> None:
        """Send a beat from the owner of the arc (start, key] to a host."""
        grant = self._hosts[node]
        self._number += 1
        grant.number, grant.sent_at, grant.owed = self._number, self.port.now, False
        grant.sent[self._number] = self.port.now
        term = grant.term(self.least, self.most)
        beat = ServingBeat(start, key, epoch, grant.number, grant.heard, term)
        if grant.heard:
            grant.until = max(grant.heard_at + term, grant.until or 0.0)
        self.port.send(grant.peer, beat)

    def on_reply(self, sender: Peer, message: ServingReply) -> None:
        """The host had a beat: the next one prolongs its lease."""
        grant = self._hosts.get(sender.id)
        if grant is not None and grant.heard < message.number <= grant.number:
            now = self.port.now
            had = grant.heard and grant.until is not None and grant.until > now
            grant.heard, grant.heard_at, grant.owed = message.number, now, not had
            if (sent_at := grant.sent.get(message.number)) is not None:
                grant.measured(now - sent_at)

    @property
    def longest(self) -> float:
        """Seconds of the longest lease that is granted now."""
        terms = (grant.term(self.least, self.most) for grant in self._hosts.values())
        return max(terms, default=self.least)

    def rang(self) -> bool:
        """`ServingBeatDue` has come: set the next one. Whether some lease is over."""
        self._due.rang()
        if self._attended:
            self._due.within(self.least / BEATS)
        over = [node for node in self._hosts if self.is_over(node)]
        for node, grant in list(self._hosts.items()):
            if node not in self._attended and (grant.until is None or self.is_over(node)):
                del self._hosts[node]
        return bool(over)

    def is_over(self, node: NodeId) -> bool:
        """Whether a host that had a lease has none any more, for certain."""
        grant = self._hosts.get(node)
        return grant is not None and grant.until is not None and grant.until <= self.port.now

    def may_serve(self, node: NodeId) -> bool:
        """Whether a host may have a lease, whatever became of it."""
        grant = self._hosts.get(node)
        return grant is not None and grant.until is not None and grant.until > self.port.now

    def left(self, peer: Peer) -> None:
        """End the lease of a host that has left in order and no longer serves."""
        self._hosts[peer.id] = LeaseGrant(peer, self.port.now)
