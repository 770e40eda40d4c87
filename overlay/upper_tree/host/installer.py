"""How a host takes over many registrations without keeping events waiting (C6).

A registration that comes to a host is compiled and put into its index: some 0.3 ms. When a host is
lost, another one is given all that it had: 10,000 registrations in a dozen frames, and each frame
took a turn of a third of a second, in which the node did nothing else. So a turn installs few, and
what is beyond waits: a timer that is due at once goes on with the next few.

What owners say is handled in the order in which they said it, so all of it that comes meanwhile
waits behind. An `Assign` is so answered when all is there that came before it, as ever, and nobody
is let serve by a `ServingBeat` before the host has forgotten what it was told to forget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

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
from overlay.upper_tree.messages import Install

AT_ONCE = 64
"""Registrations that are installed in one turn: 20 ms (measured)."""

WAITING_MOST = 100_000
"""Registrations that wait at most, as objects of some 500 bytes; what is beyond is installed in the
turn in which more come. Five times what a host has room for (`tree.host_entries`). Wild guess."""


class InstallDue(Timer, frozen=True):
    """Go on with what owners have said."""


class Installing(Machine):
    """What owners have said and this host has not done yet. `handlers_of`: what does it, by kind of
    message."""

    def __init__(self, port: Port, handlers_of: Mapping[type[Message], Handler]) -> None:
        super().__init__(port)
        self._handlers_of = handlers_of
        self._waiting: deque[tuple[Peer, Message]] = deque()
        self._registrations = 0  # that wait
        self._done: tuple[float, int] = (0.0, 0)  # in the turn of that time so many registrations
        self._alarm = Alarm(port, InstallDue())

    def __len__(self) -> int:
        """Registrations that wait."""
        return self._registrations

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {**dict.fromkeys(self._handlers_of, self.take), InstallDue: self.on_install_due}

    def take(self, sender: Peer, message: Message) -> None:
        """An owner says something: it is done now or in its turn."""
        for part in slices(message):
            self._waiting.append((sender, part))
            self._registrations += weight(part)
        try:
            self._go_on()
        finally:
            self._go_on_soon()

    def on_install_due(self, timer: InstallDue) -> None:
        """The next few. Whose link is to be closed for a bad one cannot be said any more."""
        self._alarm.rang()
        self._done = (self.port.now, 0)
        while self._waiting:
            try:
                self._go_on()
                break
            except ProtocolError:
                self.port.count("installs_refused")
        self._go_on_soon()

    def clear(self) -> None:
        """Who said it has nothing to say here any more."""
        self._waiting.clear()
        self._registrations = 0
        self._alarm.cancel()

    def _go_on_soon(self) -> None:
        if self._waiting:
            self._alarm.within(0.0)

    def _go_on(self) -> None:
        """As many as a turn may do, and what is more than may wait."""
        now = self.port.now
        done = self._done[1] if self._done[0] == now else 0
        while self._waiting:
            size = weight(self._waiting[0][1])
            if done + size > AT_ONCE and self._registrations <= WAITING_MOST:
                break
            sender, message = self._waiting.popleft()
            self._registrations -= size
            done += size
            self._done = (now, done)
            self._handlers_of[type(message)](sender, message)


def slices(message: Message) -> list[Message]:
    """The same in parts that fit into a turn."""
    if not isinstance(message, Install) or len(message.registrations) <= AT_ONCE:
        return [message]
    rest = message.registrations
    return [
        Install(message.attribute, message.epoch, rest[at : at + AT_ONCE])
        for at in range(0, len(rest), AT_ONCE)
    ]


def weight(message: Message) -> int:
    """Registrations that it takes to do."""
    return len(message.registrations) if isinstance(message, Install) else 0
