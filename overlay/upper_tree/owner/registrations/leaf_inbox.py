"""Registers what leaves ask an owner for, a little at a time (docs/design/security.md#quotas).

A leaf may have 20,000 registrations, and each costs the owner, its voters and the hosts as much as
one of any subscriber. Taken as they come, as those of other nodes are (../../sliced_inbox.py), they
would fill the turns of all of these for seconds, and events would wait in between. So what all
leaves together ask for has a share of an owner's time, in short turns, and the next turn waits in
proportion to what the last has done (`PACE`). Within that share leaves have their turns one after
the other, so that one that asks for much delays no other.

What waits is bounded, for each leaf by its part; for what is beyond, its sender is told when to
come again. A leaf's node asks for no more than it may have waiting
(../../subscriber/registrar.py).

The messages of one leaf stay in their order, so that a renewal is compared with all that came
before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from overlay.machine import (
    Handler,
    Handlers,
    Machine,
    Message,
    NodeId,
    Peer,
    Port,
    ProtocolError,
    Timer,
)
from overlay.upper_tree.messages import Register, Registration, Renew, Unregister
from overlay.upper_tree.sliced_inbox import ENDS

LEAVES_AT_ONCE: Final = 4
"""Counts of work in one turn, if no single thing counts more: 0.6 ms (a registration with a short
selector counts 1, and takes 0.15 ms of an owner that hosts the tree as well)."""

PACE: Final = 0.0015
"""Seconds that follow for each count: a tenth of the owner's time, or some 650 registrations per
second of all leaves. By the 99th percentile of others' deliveries
(docs/lab/security.md#a-leaf-that-subscribes-without-end)."""

LONG: Final = 512
"""Characters of a selector that count once more: it is compiled by owner and hosts. Guess."""

LEAVES_WAITING: Final = 1_536
"""Counts that wait at most, of all leaves together: 2.3 seconds, which is less than a subscriber
waits before it asks again (`tree.retry`)."""

AGAIN_LEAST, AGAIN_MOST = 0.5, 30.0
"""Seconds until a leaf is to come again."""


class LeafDue(Timer, frozen=True):
    """Time for the next turn of leaves."""


class LeafInbox(Machine):
    """Does what leaves ask for, in order for each, one leaf after the other."""

    def __init__(
        self,
        port: Port,
        handlers_of: Mapping[type[Message], Handler],
        finish: Callable[[], None],
        refuse: Callable[[Peer, Message, float], None],
    ) -> None:
        """`handlers_of`: what does it, by kind of message; `finish` is called when a turn's run of
        messages of one kind is done; `refuse` when there is no room for a message, with the seconds
        after which there may be."""
        super().__init__(port)
        self._handlers_of = handlers_of
        self._finish = finish
        self._refuse = refuse
        self._waiting: dict[NodeId, deque[tuple[Peer, Message, int]]] = {}  # the next leaf first
        self._weights: dict[NodeId, int] = {}
        self._weight = 0  # of all that waits
        self._charged = 0  # in this turn, beside what its messages tell
        self._is_working = False
        self._free_at = float("-inf")  # when the next turn may be
        self._is_due = False  # the timer is set

    def __len__(self) -> int:
        """Return the total weight of the waiting messages."""
        return self._weight

    def handlers(self) -> Handlers:
        """The timer with its handler."""
        return {LeafDue: self.on_leaf_due}

    def take(self, sender: Peer, message: Message) -> None:
        """Do what a leaf asks for when its turn comes, or refuse it."""
        for part in pieces(message):
            weight = cost(part)
            held = self._weights.get(sender.id, 0)
            leaves = len(self._waiting) + (sender.id not in self._waiting)
            if held and held + weight > LEAVES_WAITING // leaves:
                wait = min(max(AGAIN_LEAST, held * leaves * PACE), AGAIN_MOST)
                self._refuse(sender, part, wait)
                continue
            self._waiting.setdefault(sender.id, deque()).append((sender, part, weight))
            self._weights[sender.id] = held + weight
            self._weight += weight
        if not self._is_due and self._waiting:
            self._is_due = True
            self.port.set_timer(max(0.0, self._free_at - self.port.now), LeafDue())

    def charge(self, weight: int) -> None:
        """Add to the weight of the message being handled, because it takes more work than its size
        shows."""
        if self._is_working:
            self._charged += weight

    def on_leaf_due(self, timer: LeafDue) -> None:
        """Run one turn. A bad message is only counted, because it is too late to close its sender's
        link."""
        self._is_due = False
        done = self._work()
        self._free_at = self.port.now + done * PACE
        if self._waiting:
            self._is_due = True
            self.port.set_timer(self._free_at - self.port.now, LeafDue())

    def _work(self) -> int:
        """Handle as many messages as one turn may. Return their weight."""
        done, kind = 0, None
        self._charged, self._is_working = 0, True
        try:
            while self._waiting and (not done or done + self._next_weight() <= LEAVES_AT_ONCE):
                sender, message, weight = self._pop()
                if kind not in (None, type(message)):
                    self._finish()
                kind = type(message)
                try:
                    self._handlers_of[kind](sender, message)
                except ProtocolError:
                    self.port.count("registrations_refused")
                done += weight + self._charged
                self._charged = 0
        finally:
            self._is_working = False
            if kind is not None:
                self._finish()
        return done + self._charged

    def _next_weight(self) -> int:
        return next(iter(self._waiting.values()))[0][2]

    def _pop(self) -> tuple[Peer, Message, int]:
        """The first thing of the leaf whose turn it is, which goes behind the others."""
        leaf, queue = next(iter(self._waiting.items()))
        found = queue.popleft()
        del self._waiting[leaf]
        self._weights[leaf] -= found[2]
        self._weight -= found[2]
        if queue:
            self._waiting[leaf] = queue
        else:
            del self._weights[leaf]
        return found


def pieces(message: Message) -> Iterator[Message]:
    """Split a message into parts that each take little work, or are one registration. All
    registrations of a part are of one tree, since each further tree may have to be created."""
    match message:
        case Register(registrations=many):
            some: list[Registration] = []
            weight = 0
            for one in many:
                more = weigh(one)
                if some and (weight + more > LEAVES_AT_ONCE or one.attribute != some[-1].attribute):
                    yield msgspec.structs.replace(message, registrations=tuple(some))
                    some, weight = [], 0
                some.append(one)
                weight += more
            if some:
                yield msgspec.structs.replace(message, registrations=tuple(some))
        case Unregister(ids=ids):
            for at in range(0, len(ids), LEAVES_AT_ONCE * ENDS):
                yield msgspec.structs.replace(message, ids=ids[at : at + LEAVES_AT_ONCE * ENDS])
        case _:
            yield message


def weigh(registration: Registration) -> int:
    """The counts of one registration."""
    return 1 + len(registration.selector) // LONG


def cost(message: Message) -> int:
    """The counts of a part."""
    match message:
        case Register(registrations=many):
            return sum(map(weigh, many))
        case Unregister(ids=ids):
            return -(-len(ids) // ENDS)
        case Renew(trees=trees, unsure=unsure):
            return 1 + (len(trees) + len(unsure)) // ENDS
        case _:
            return 1
