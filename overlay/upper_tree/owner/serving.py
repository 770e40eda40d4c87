"""Serving leases: a host serves only while it knows that its owner counts on it (C6).

A host that was paused, or is cut off from the owner, has missed registrations; when it wakes up it
must not match by what it had. So it serves a tree only under a *serving lease* from the owner, and
answers *moved* without one. One lease covers all trees of an owner's arc at a host.

    owner                                      host
      │── ServingBeat(n, heard = n-1, term) ────►│  lease until its clock, when it answered n-1,
      │◄────────────────────── ServingReply(n) ──│  + LEASE_SHARE * term
    lease over for certain: when the reply to n-1 was heard + term

The host counts from its own answer, which the owner hears later: however slow the link is, or the
process, the lease ends at the host before the owner takes it for over. This leans on clocks whose
rates are bounded (DESIGN.md, section 5), no more. The SUBACK of a registration may then leave a
silent replica out. What it was sent meanwhile reaches it before any later beat, since links are
FIFO; a host whose link was lost gets no beat before it was told to forget what it had (balance.py).

The term is `tree.serving_lease`, and longer where answers are measured to take long, so that leases
do not end on a slow network: `tree.serving_most` at most.

An owner sends beats only while a majority of its voters follows it, and a new primary counts on the
leases of the one before: all of them are over `tree.serving_most` after it was elected.
"""

from __future__ import annotations

from collections.abc import Iterable

from overlay.machine import Alarm, Key, NodeId, Peer, Port, Timer
from overlay.upper_tree.messages import ServingBeat, ServingReply

BEATS = 5
"""Beats in the least term: with one on its way and one lost, a lease still stands."""

TERM_SHARE = 4.0
"""Terms are so many times what an answer takes at most, as far as measured. Wild guess."""

NEARLY = 0.9
"""The share of the time between two beats after which one is due, since timers are not exact."""

BEATS_KEPT = 32
"""Beats per host whose time of sending the owner remembers, to measure how long answers take."""


class ServingBeatDue(Timer, frozen=True):
    """At the owner: time for another beat."""


class Granted:
    """What the owner knows of the lease of one host."""

    __slots__ = (
        *("beats", "heard", "heard_at", "number", "owed", "peer", "sent_at", "until"),
        *("_usual", "_varying"),
    )

    def __init__(self, peer: Peer, until: float | None) -> None:
        self.peer = peer
        self.number = 0  # of the last beat
        self.sent_at = float("-inf")
        self.beats: dict[int, float] = {}  # when the last ones were sent
        self.heard = 0  # the last beat that was answered …
        self.heard_at = 0.0  # … and when
        self.owed = False  # it has answered, and has no lease: the next beat should not wait
        self.until = until  # when the lease is over for certain; None: it never had one
        self._usual = self._varying = 0.0  # how long answers take, as in RFC 6298

    def measured(self, took: float) -> None:
        """An answer took so many seconds."""
        if not self._usual:
            self._usual, self._varying = took, took / 2.0
        self._varying += (abs(self._usual - took) - self._varying) / 4.0
        self._usual += (took - self._usual) / 8.0

    def term(self, least: float, most: float) -> float:
        """Seconds of its next lease."""
        return min(max(least, TERM_SHARE * (self._usual + 4.0 * self._varying)), most)


class LeasesGranted:
    """At the owner: who may serve, and whose lease is over for certain."""

    def __init__(self, port: Port, least: float, most: float) -> None:
        """`least` and `most` seconds of a lease."""
        self.port = port
        self.least = least
        self.most = most
        self.hosts: dict[NodeId, Granted] = {}
        self._attended: dict[NodeId, Peer] = {}
        self._due = Alarm(port, ServingBeatDue())
        self._number = 0  # of the last beat to anybody: never used again by this process

    def begin(self, hosts: Iterable[Peer]) -> None:
        """This node is the primary now: these may have leases from the one before."""
        until = self.port.now + self.most
        self.hosts = {host.id: Granted(host, until) for host in hosts}

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
                self.hosts[host.id] = Granted(host, None)
        if self._attended:
            self._due.within(self.least / BEATS)

    def hurry(self) -> None:
        """There are trees that no lease covers yet: everybody gets a beat as soon as may be."""
        for granted in self.hosts.values():
            granted.owed = True

    def serves(self, node: NodeId) -> bool:
        """Whether a host has a lease, or one on its way, for all that its owner decides about."""
        granted = self.hosts.get(node)
        return granted is not None and granted.heard > 0 and not granted.owed

    def due(self) -> list[NodeId]:
        """Attended hosts that should get a beat now. One that has not answered the last one yet
        has time for it: beats would not come faster by being more."""
        now, found = self.port.now, []
        for node in self._attended:
            granted = self.hosts[node]
            pause = (self.least if granted.heard == granted.number else self.most) / BEATS
            if granted.owed or granted.sent_at <= now - NEARLY * pause:
                found.append(node)
        return found

    def send(self, node: NodeId, start: Key, key: Key, epoch: int) -> None:
        """A beat from the owner of the arc (start, key]."""
        granted = self.hosts[node]
        self._number += 1
        granted.number, granted.sent_at, granted.owed = self._number, self.port.now, False
        granted.beats[self._number] = self.port.now
        if len(granted.beats) > BEATS_KEPT:
            del granted.beats[next(iter(granted.beats))]
        term = granted.term(self.least, self.most)
        beat = ServingBeat(start, key, epoch, granted.number, granted.heard, term)
        if granted.heard:
            granted.until = max(granted.heard_at + term, granted.until or 0.0)
        self.port.send(granted.peer, beat)

    def on_reply(self, sender: Peer, message: ServingReply) -> None:
        """The host had a beat: the next one prolongs its lease."""
        granted = self.hosts.get(sender.id)
        if granted is not None and granted.heard < message.number <= granted.number:
            now = self.port.now
            had = granted.heard and granted.until is not None and granted.until > now
            granted.heard, granted.heard_at, granted.owed = message.number, now, not had
            if (sent_at := granted.beats.get(message.number)) is not None:
                granted.measured(now - sent_at)

    @property
    def longest(self) -> float:
        """Seconds of the longest lease that is granted now."""
        terms = (granted.term(self.least, self.most) for granted in self.hosts.values())
        return max(terms, default=self.least)

    def rang(self) -> bool:
        """`ServingBeatDue`. Whether some lease is over."""
        self._due.rang()
        if self._attended:
            self._due.within(self.least / BEATS)
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
        return granted is not None and granted.until is not None and granted.until > self.port.now

    def left(self, peer: Peer) -> None:
        """This host has said goodbye: it serves no more."""
        self.hosts[peer.id] = Granted(peer, self.port.now)
