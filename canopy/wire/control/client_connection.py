"""One program at the control socket: its open requests, its deliveries, and its session (M5)."""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from typing import NamedTuple

import trio

from canopy.wire.constants import (
    CLIENT_APPENDS,
    CLIENT_EVENTS,
    CLIENT_FRAME,
    CLIENT_PUBLISHES,
    CLIENT_REQUESTS,
)
from canopy.wire.control.credit_window import CreditWindow
from canopy.wire.control.remote import AdmittedProgram
from canopy.wire.transport.outlet import Counters, Outlet
from overlay.client import CREDIT, AppendEvents, Command, Publish
from overlay.info import ClientInfo
from overlay.stream_client import PrepareEvents

# What was sent to a program and may have to be sent again on another connection (M5; no IO).
#
# A client with a session keeps each frame that was not asked for until its program has consumed it:
# the frames of deliveries, which its credit bounds, and the notices among them. They are numbered
# by what they carry, each delivery, gathered event or notice one number, so that both sides count
# alike and a program says what it has by one number.


class SentFrame(NamedTuple):
    """A frame that was sent and is not consumed. `last`: the number of its last item; `items`: its
    number of items; `end`: bytes of frames of deliveries sent on this connection, up to its end."""

    last: int
    items: int
    end: int
    frame: bytes
    is_notice: bool


class ReplayBuffer:
    """The frames of one session that were sent and not consumed."""

    def __init__(self) -> None:
        self.sent = 0
        """The number of items sent since the session began, which is the number of the last one."""
        self._frames: deque[SentFrame] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def size(self) -> int:
        """The bytes of the frames."""
        return sum(len(one.frame) for one in self._frames)

    def add(self, frame: bytes, items: int, end: int, is_notice: bool = False) -> None:
        """Keep a frame with `items` items that was sent. A notice takes no credit, so it counts as
        consumed with the first byte after it."""
        self.sent += items
        end += is_notice
        self._frames.append(SentFrame(self.sent, items, end, frame, is_notice))

    def consumed(self, end: int) -> None:
        """Note that the program has consumed the first `end` bytes of the frames of deliveries on
        this connection."""
        while self._frames and self._frames[0].end <= end:
            self._frames.popleft()

    def take_after(self, received: int) -> tuple[int, list[SentFrame]]:
        """Return the frames to send again to a program that has `received` items (`add` them
        again), and the number of the last item before them.

        Raises ValueError if `received` exceeds the number of items sent.
        """
        if received > self.sent:
            raise ValueError(f"{received} items are more than the {self.sent} that were sent")
        again = [one for one in self._frames if one.last > received]
        self._frames.clear()
        if again:
            self.sent = again[0].last - again[0].items
        return self.sent, again


class ClientConnection:
    """The state of one connection: unanswered requests, credit, and pending output."""

    def __init__(self, number: int, counters: Counters, queue: int, pid: int) -> None:
        """`queue`: bytes of deliveries that may wait for its credit; `pid`: the program's process,
        or 0."""
        self.number = number
        self.pid = pid
        self.outlet = Outlet(counters)
        self.window = CreditWindow(CREDIT, queue, CLIENT_FRAME)
        self.packing = 0  # bytes in `fresh`
        self.unanswered: dict[int, tuple[bool, int, int]] = {}
        """By request number: whether it publishes, and how many events it publishes and appends."""
        self.publishes = self.events = self.appends = 0  # unanswered
        self.requests = 0  # that were read
        self.fresh: list[bytes] = []  # encoded deliveries of this turn, within its credit
        self.room = trio.lowlevel.ParkingLot()  # the reader waits here
        self.scope = trio.CancelScope()  # of its connection's tasks
        self.remote: AdmittedProgram | None = None
        """The token that admitted a program on another machine; None: the program is on this
        one."""
        self.session = ""
        """The name by which another connection resumes the session; "": it ends with this
        connection."""
        self.replay: ReplayBuffer | None = None  # of a session
        self.parked_at: float | None = None
        """When the connection was lost; None unless only the session is kept."""
        self.is_overfull = False  # so many notices came since that not all can be kept
        self.is_resumed = False
        self.resumed_after = 0  # number of the last item before those that are sent again
        self._again: list[SentFrame] = []  # to be sent when the program has its answer

    @property
    def is_full(self) -> bool:
        """Whether the client has so many unanswered requests that the node stops reading from
        it."""
        return (
            self.publishes >= CLIENT_PUBLISHES
            or self.events >= CLIENT_EVENTS
            or self.appends >= CLIENT_APPENDS
            or len(self.unanswered) >= CLIENT_REQUESTS
        )

    def asked(self, command: Command) -> None:
        """Note a command that was read. Its request number must not be in use, or two replies would
        be mixed up."""
        publish = append = 0
        if isinstance(command, Publish):
            publish = len(command.events)
            self.publishes += 1
        elif isinstance(command, AppendEvents | PrepareEvents):
            append = len(command.events)
        self.events += publish
        self.appends += append
        self.unanswered[command.request] = (isinstance(command, Publish), publish, append)
        self.requests += 1

    @property
    def holder(self) -> str:
        """The name of the program's token; "": it is on this machine."""
        return "" if self.remote is None else self.remote.token.name

    @property
    def is_new(self) -> bool:
        """Whether the client has made no request except the one being carried out."""
        return not self.session and len(self.unanswered) == 1 and self.requests == 1

    def wants(self, request: int) -> bool:
        """Return whether a reply is for this connection, and not for an earlier one of the
        session."""
        return self.parked_at is None and (not self.is_resumed or request in self.unanswered)

    def answered(self, request: int) -> None:
        """Note that `request` is answered; the reader continues unless `is_full`."""
        is_publish, publish, append = self.unanswered.pop(request, (False, 0, 0))
        self.publishes -= is_publish
        self.events -= publish
        self.appends -= append
        if self.room and not self.is_full:
            self.room.unpark_all()

    # --- what is sent unasked ---

    def send(self, frame: bytes, items: int) -> None:
        """Send a frame with `items` deliveries or events, within the credit."""
        self.window.note_sent(len(frame))
        self.outlet.put(frame)
        if self.replay is not None:
            self.replay.add(frame, items, self.window.sent)

    def notify(self, frame: bytes) -> None:
        """Send a notice, which needs no credit."""
        if self.parked_at is not None:
            self.is_overfull = True
            return
        self.outlet.put(frame)
        if self.replay is not None:
            self.replay.add(frame, 1, self.window.sent, is_notice=True)

    def grant(self, consumed: int, credit: int) -> None:
        """Handle a grant, as `CreditWindow.grant`; raises ValueError as it does."""
        self.window.grant(consumed, credit)
        if self.replay is not None:
            self.replay.consumed(consumed)

    # --- its session ---

    def open_session(self, token: str) -> None:
        """Begin a session, which outlives the connection."""
        self.session = token
        self.replay = ReplayBuffer()

    def close_session(self) -> None:
        """End the session: the client now ends with its connection."""
        self.session = ""
        self.replay = None

    def park(self, now: float) -> None:
        """Park a session whose connection is lost: keep its items, and send nothing."""
        self.parked_at = now
        self.window.hold()
        self.outlet.close()
        self.unanswered.clear()
        self.publishes = self.events = 0

    def adopt(self, former: ClientConnection, received: int) -> None:
        """Continue the session of `former` on this connection, as its client. Items after the first
        `received` are sent again by `send_again`. Raises ValueError if `received` exceeds the
        number of items sent."""
        assert former.replay is not None, "it has a session"
        self.resumed_after, self._again = former.replay.take_after(received)
        self.number, self.session, self.replay = former.number, former.session, former.replay
        self.window = former.window
        self.window.hold()
        self.is_resumed = True

    def send_again(self) -> None:
        """Send the kept items on this connection, ahead of all waiting ones."""
        self.window.restart()
        again, self._again = self._again, []
        for one in again:
            if one.is_notice:
                self.notify(one.frame)
            else:
                self.send(one.frame, one.items)

    def info(self, now: float) -> ClientInfo:
        """The client as `canopy status` shows it; sizes in bytes."""
        window = self.window
        return ClientInfo(
            self.number,
            self.pid,
            window.credit,
            window.under_way + self.packing,
            window.waiting_bytes,
            window.dropped,
            -1.0 if self.parked_at is None else now - self.parked_at,
        )


def process_of(stream: trio.SocketStream) -> int:
    """Return the process id of the program at the other end; 0 if the system does not tell."""
    return _credentials(stream)[0]


def is_own_user(stream: trio.SocketStream) -> bool:
    """Return whether the program at the other end is this user's, or root's, as far as the system
    tells. The socket's mode ensures the same if the file system keeps modes."""
    return _credentials(stream)[1] in (os.getuid(), 0)


def _credentials(stream: trio.SocketStream) -> tuple[int, int]:
    """Return process and user at the other end; 0 and this user if the system does not tell."""
    option = getattr(socket, "SO_PEERCRED", None)  # Linux
    if option is None:
        return 0, os.getuid()
    layout = struct.Struct("3i")
    pid, user, _ = layout.unpack(stream.getsockopt(socket.SOL_SOCKET, option, layout.size))
    return int(pid), int(user)
