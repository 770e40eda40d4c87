"""Lets a node take much work at once without keeping events waiting (C6, P1).

A registration costs an owner or a host some 0.1 ms, and thrice that where no selector of its shape
was compiled before: it is compiled, and put into a log or an index.
When a host is lost, another one is given all that it had: 10,000 registrations in a dozen frames,
and each frame took a turn of a third of a second, in which the node did nothing else. So a turn
does little, and what is beyond waits: a timer that is due at once goes on with the next part.

What comes is done in the order in which it came, so all of it that comes meanwhile waits behind. An
`Assign` is so answered when all is there that came before it, as ever, a `ServingBeat` does not let
the host serve before it has dropped what it was ordered to drop, and a renewal is compared with all
that its subscriber had registered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from overlay.machine import (
    Alarm,
    Handler,
    Handlers,
    Machine,
    Message,
    Peer,
    Port,
    ProtocolError,
    Timer,
)
from overlay.upper_tree.messages import (
    Assign,
    Install,
    Register,
    Registration,
    Uninstall,
    Unregister,
)

AT_ONCE: Final = 128
"""Registrations that are taken in one turn: 12 ms, or 40 if each is of another shape (measured)."""

PART: Final = 4
"""… of one message, before the time of the turn is checked again."""

PART_OF_TREE: Final = 32
"""… of a message with registrations of one tree only, which plants one tree at most. Each part
costs its handler some microseconds."""

TREE: Final = 32
"""A registration that plants a tree at its owner counts as this many, with its consequences
(measured)."""

LONG_FROM: Final = 256
LONG_PER: Final = 32
"""Beyond `LONG_FROM` characters, this many characters of a selector count as another registration
(measured: up to 4 ms per 1,024)."""

ASSIGNED: Final = 16
"""A tree that is assigned to a host counts as this many registrations (measured)."""

ENDS: Final = 8
"""Registrations whose removal counts as taking one (measured)."""

WAITING_MOST: Final = 100_000
"""Registrations that wait at most, as objects of some 500 bytes; what is beyond is done in the turn
in which more come. Five times what a host has room for (`tree.host_entries`). By the memory of a
host that takes over all trees of another one."""


class SlicedInbox(Machine):
    """Does what other nodes ask for, in order, a little in each turn."""

    def __init__(
        self,
        port: Port,
        due: Timer,
        handlers_of: Mapping[type[Message], Handler],
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """`due`: this inbox's own timer. `handlers_of`: the handler for each kind of message.
        `finish` is called after a turn's run of messages of one kind, before any of another kind,
        for work that they share."""
        super().__init__(port)
        self._handlers_of = handlers_of
        self._finish = finish
        self._waiting: deque[tuple[Peer, Message, int]] = deque()
        self._weight = 0
        self._done: tuple[float, int] = (0.0, 0)  # in the turn of that time so much
        self._due = due
        self._alarm = Alarm(port, due)

    def __len__(self) -> int:
        """Return the number of registrations that the waiting work counts for."""
        return self._weight

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {**dict.fromkeys(self._handlers_of, self.take), type(self._due): self.go_on}

    def take(self, sender: Peer, message: Message) -> None:
        """Handle a message now, or when its turn comes."""
        for part, cost in parts(message):
            self._waiting.append((sender, part, cost))
            self._weight += cost
        try:
            self._continue()
        finally:
            self._continue_soon()

    def go_on(self, timer: Timer) -> None:
        """Do the next few. A bad one is only counted: it is too late to close its sender's link."""
        self._alarm.rang()
        self._done = (self.port.now, 0)
        while self._waiting:
            try:
                self._continue()
                break
            except ProtocolError:
                self.port.count("registrations_refused")
        self._continue_soon()

    def charge(self, weight: int) -> None:
        """Add to the weight of the message being handled, because it takes more work than its size
        shows."""
        done = self._done[1] if self._done[0] == self.port.now else 0
        self._done = (self.port.now, done + weight)

    def clear(self) -> None:
        """Drop all work that waits, undone."""
        self._waiting.clear()
        self._weight = 0
        self._alarm.cancel()

    def _continue_soon(self) -> None:
        if self._waiting:
            self._alarm.within(0.0)

    def _continue(self) -> None:
        """Handle as many messages as a turn may, and those that exceed the bound on waiting
        work."""
        self.charge(0)  # in a new turn nothing was done yet
        kind: type[Message] | None = None
        try:
            while self._waiting:
                sender, message, weight = self._waiting[0]
                if self._done[1] + weight > AT_ONCE and self._weight <= WAITING_MOST:
                    break
                if kind not in (None, type(message)):
                    self._finish()
                kind = type(message)
                self._waiting.popleft()
                self._weight -= weight
                self.charge(weight)
                self._handlers_of[kind](sender, message)
        finally:
            if kind is not None:
                self._finish()


def parts(message: Message) -> Iterator[tuple[Message, int]]:
    """The message in parts that fit into a turn, each with how many registrations cost as much."""
    match message:
        case Install(registrations=many) | Register(registrations=many) if len(many) > 1:
            tree = many[0].attribute
            is_alike = all(one.attribute == tree for one in many)
            size = PART_OF_TREE if is_alike else PART
            some: list[Registration] = []
            cost = 0
            for one in many:
                each = registration_cost(one)
                if some and (len(some) >= size or cost + each > AT_ONCE):
                    part = msgspec.structs.replace(message, registrations=tuple(some))
                    yield part, min(cost, AT_ONCE)
                    some, cost = [], 0
                some.append(one)
                cost += each
            if len(some) < len(many):
                message = msgspec.structs.replace(message, registrations=tuple(some))
            yield message, min(cost, AT_ONCE)
        case Uninstall(ids=ids) | Unregister(ids=ids) if len(ids) > AT_ONCE * ENDS:
            for at in range(0, len(ids), AT_ONCE * ENDS):
                ended = msgspec.structs.replace(message, ids=ids[at : at + AT_ONCE * ENDS])
                yield ended, turn_cost(ended)
        case _:
            yield message, turn_cost(message)


def registration_cost(registration: Registration) -> int:
    """Return how many registrations of usual length cost as much to compile: one of 16 KiB takes up
    to 70 ms."""
    return 1 + max(0, len(registration.selector) - LONG_FROM) // LONG_PER


def turn_cost(message: Message) -> int:
    """The registrations whose taking costs as much as this part."""
    match message:
        case Install(registrations=many) | Register(registrations=many):
            return min(sum(map(registration_cost, many)), AT_ONCE)
        case Uninstall(ids=ids) | Unregister(ids=ids):
            return -(-len(ids) // ENDS)
        case Assign():
            return ASSIGNED
        case _:
            return 0
