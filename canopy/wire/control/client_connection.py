"""One program that is connected to the control socket: its open requests and its deliveries."""

from __future__ import annotations

import socket
import struct

import trio

from canopy.wire.constants import (
    CLIENT_EVENTS,
    CLIENT_FRAME,
    CLIENT_PUBLISHES,
    CLIENT_REQUESTS,
)
from canopy.wire.control.credit_window import CreditWindow
from canopy.wire.transport.outlet import Counters, Outlet
from overlay.client import CREDIT, Command, Publish
from overlay.info import ClientInfo


class ClientConnection:
    """The state of one connection: unanswered requests, credit, and what is to be written."""

    def __init__(self, number: int, counters: Counters, queue: int, pid: int) -> None:
        """`queue`: bytes of deliveries that may wait for its credit; `pid`: its process, or 0."""
        self.number = number
        self.pid = pid
        self.outlet = Outlet(counters)
        self.window = CreditWindow(CREDIT, queue, CLIENT_FRAME)
        self.packing = 0  # bytes in `fresh`
        self.unanswered: dict[int, int | None] = {}  # request -> events that it publishes
        self.publishes = self.events = 0  # unanswered
        self.fresh: list[bytes] = []  # encoded deliveries of this turn, within its credit
        self.room = trio.lowlevel.ParkingLot()  # the reader waits here

    @property
    def is_full(self) -> bool:
        """Whether it has so many unanswered requests that no more is read from it."""
        return (
            self.publishes >= CLIENT_PUBLISHES
            or self.events >= CLIENT_EVENTS
            or len(self.unanswered) >= CLIENT_REQUESTS
        )

    def asked(self, command: Command) -> None:
        """Note a command that was read. Its request number must not be in use, or two replies would
        be mixed up."""
        events = None
        if isinstance(command, Publish):
            events = len(command.events)
            self.publishes += 1
            self.events += events
        self.unanswered[command.request] = events

    def answered(self, request: int) -> None:
        """Note that `request` is answered; the reader goes on unless `is_full`."""
        events = self.unanswered.pop(request, None)
        if events is not None:
            self.publishes -= 1
            self.events -= events
        if not self.is_full:
            self.room.unpark_all()

    @property
    def info(self) -> ClientInfo:
        """The client as `canopy status` shows it; sizes in bytes."""
        window = self.window
        return ClientInfo(
            self.number,
            self.pid,
            window.credit,
            window.under_way + self.packing,
            window.waiting_bytes,
            window.dropped,
        )


def process_of(stream: trio.SocketStream) -> int:
    """The process id of the program at the other end; 0 where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)  # Linux
    if option is None:
        return 0
    layout = struct.Struct("3i")
    pid, _, _ = layout.unpack(stream.getsockopt(socket.SOL_SOCKET, option, layout.size))
    return int(pid)
