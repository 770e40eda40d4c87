"""How a host takes over many registrations without keeping events waiting (C6).

A registration that comes to a host is compiled and put into its index: some 0.3 ms. When a host is
lost, another one is given all that it had: 10,000 registrations in a dozen frames, and each frame
took a turn of a third of a second, in which the node did nothing else. So a turn installs few, and
what is beyond waits: a timer that is due at once goes on with the next few.

What owners say is handled in the order in which they said it, so all of it that comes meanwhile
waits behind. An `Assign` is so answered when all is there that came before it, as ever, and a
`ServingBeat` does not let the host serve before it has dropped what it was told to drop.
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
from overlay.upper_tree.host.constants import INSTALL_AT_ONCE, WAITING_MOST
from overlay.upper_tree.messages import Install


class InstallDue(Timer, frozen=True):
    """Go on with what owners have said."""


class Installer(Machine):
    """Does what owners say, in order, a little in each turn. `handlers_of`: what does it, by kind
    of message."""

    def __init__(self, port: Port, handlers_of: Mapping[type[Message], Handler]) -> None:
        super().__init__(port)
        self._handlers_of = handlers_of
        self._waiting: deque[tuple[Peer, Message]] = deque()
        self._waiting_registrations = 0
        self._done: tuple[float, int] = (0.0, 0)  # in the turn of that time so many registrations
        self._alarm = Alarm(port, InstallDue())

    def __len__(self) -> int:
        """Number of registrations that wait to be installed."""
        return self._waiting_registrations

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {**super().handlers(), **dict.fromkeys(self._handlers_of, self.take)}

    def take(self, sender: Peer, message: Message) -> None:
        """An owner says something: do it now or when its turn comes."""
        for part in slices(message):
            self._waiting.append((sender, part))
            self._waiting_registrations += weight(part)
        try:
            self._continue()
        finally:
            self._continue_soon()

    def on_install_due(self, timer: InstallDue) -> None:
        """Do the next few. A bad one is only counted: it is too late to close its sender's link."""
        self._alarm.rang()
        self._done = (self.port.now, 0)
        while self._waiting:
            try:
                self._continue()
                break
            except ProtocolError:
                self.port.count("installs_refused")
        self._continue_soon()

    def clear(self) -> None:
        """Drop what waits: its senders are owners of a ring that this node has left."""
        self._waiting.clear()
        self._waiting_registrations = 0
        self._alarm.cancel()

    def _continue_soon(self) -> None:
        if self._waiting:
            self._alarm.within(0.0)

    def _continue(self) -> None:
        """Do as many as a turn may, and what is more than may wait."""
        now = self.port.now
        done = self._done[1] if self._done[0] == now else 0
        while self._waiting:
            size = weight(self._waiting[0][1])
            if done + size > INSTALL_AT_ONCE and self._waiting_registrations <= WAITING_MOST:
                break
            sender, message = self._waiting.popleft()
            self._waiting_registrations -= size
            done += size
            self._done = (now, done)
            self._handlers_of[type(message)](sender, message)


def slices(message: Message) -> list[Message]:
    """The message in parts that fit into a turn."""
    if not isinstance(message, Install) or len(message.registrations) <= INSTALL_AT_ONCE:
        return [message]
    rest = message.registrations
    return [
        Install(message.attribute, message.epoch, rest[at : at + INSTALL_AT_ONCE])
        for at in range(0, len(rest), INSTALL_AT_ONCE)
    ]


def weight(message: Message) -> int:
    """Registrations that the message installs."""
    return len(message.registrations) if isinstance(message, Install) else 0
