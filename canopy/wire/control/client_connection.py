"""One connection to the control socket: what it has asked, what is on its way to it."""

from __future__ import annotations

import socket
import struct
from typing import Final

import trio

from canopy.wire.control.credit_window import CreditWindow
from canopy.wire.transport.outlet import Counters, Outlet
from overlay.client import CREDIT, Command, Publish
from overlay.info import ClientInfo

PIECE: Final = 256 * 1024  # bytes of deliveries in one frame; wild guess
REQUESTS: Final = 64  # unanswered requests of one client; wild guess
PUBLISHES: Final = 16  # unanswered publishes among them: enough to hide the reply's way. Wild guess
EVENTS: Final = 1_024  # events of unanswered publishes after which no more is read; wild guess


class Client:
    """One connection to the control socket."""

    def __init__(self, number: int, counters: Counters, queue: int, pid: int) -> None:
        """`queue`: bytes of deliveries that may wait for its credit; `pid`: its process, or 0."""
        self.number = number
        self.pid = pid
        self.outlet = Outlet(counters)
        self.allowance = CreditWindow(CREDIT, queue, PIECE)
        self.packing = 0  # bytes in `fresh`
        self.unanswered: dict[int, int | None] = {}  # request -> events that it publishes
        self.publishes = self.events = 0  # unanswered
        self.fresh: list[bytes] = []  # encoded deliveries of this turn, within its credit
        self.room = trio.lowlevel.ParkingLot()  # the reader waits here

    @property
    def full(self) -> bool:
        """Whether no more may be read from it now."""
        return (
            self.publishes >= PUBLISHES or self.events >= EVENTS or len(self.unanswered) >= REQUESTS
        )

    def asked(self, command: Command) -> None:
        """A command was read. A number that is still in use would mix up two replies."""
        events = None
        if isinstance(command, Publish):
            events = len(command.events)
            self.publishes += 1
            self.events += events
        self.unanswered[command.request] = events

    def answered(self, request: int) -> None:
        """Its reply is there: more may be read."""
        events = self.unanswered.pop(request, None)
        if events is not None:
            self.publishes -= 1
            self.events -= events
        if not self.full:
            self.room.unpark_all()

    @property
    def info(self) -> ClientInfo:
        """As `canopy status` shows it."""
        allowance = self.allowance
        return ClientInfo(
            self.number,
            self.pid,
            allowance.credit,
            allowance.under_way + self.packing,
            allowance.waiting_bytes,
            allowance.dropped,
        )


def process_of(stream: trio.SocketStream) -> int:
    """The process at the other end; 0 where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)  # Linux
    if option is None:
        return 0
    layout = struct.Struct("3i")
    pid, _, _ = layout.unpack(stream.getsockopt(socket.SOL_SOCKET, option, layout.size))
    return int(pid)
