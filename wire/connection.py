"""One TCP connection between two nodes: a reader and a writer over trio.

Costs decide the shape (issue 2, *Facts*): a `send_all` is 14 to 19 µs, a receive 9 to 12, a memory
channel 8 to 13 per message. So the reader takes as much as there is and hands all its frames over
in one call; the writer takes everything that the node's turn queued and sends it at once; between
node and writer lies a plain list with a parking lot.

A peer that does not read must not block us for ever: what waits is bounded, and each `send_all` of
a bounded piece has a time-out. A send that was cut off leaves half a frame, so the connection is
closed then; the session above resumes on the next one (M5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from overlay.links.events import REFUSED
from overlay.links.messages import Bye, Frame
from wire.framing import NODE_FRAMES, FrameReader

READ_SIZE: Final = 64 * 1024
"""Bytes asked for in one receive. Twice a frame of a busy link; larger ones were not faster."""

PIECE: Final = 256 * 1024
"""Bytes of one `send_all`: its time-out is for progress, not for a whole queue. Wild guess."""

QUEUE_LIMIT: Final = 16 << 20
"""Bytes that wait in one connection. Links grant each other 4 MiB of credit
(`LinkSettings.window`), so more than this is a peer that does not play by the rules."""

SEND_TIMEOUT: Final = 10.0
"""Seconds in which a stalled peer has to take one piece; longer than `LinkSettings.dead_after`,
so that the failure detector, not this, decides about a slow peer. Wild guess."""

LINGER: Final = 2.0
"""Seconds in which what was written before `close` may still leave. Wild guess."""


class Counters:
    """What the connections of one process have moved (shown in `canopy status` as ``wire_…``)."""

    __slots__ = ("bytes_in", "bytes_out", "errors", "frames_in", "frames_out", "sends")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.frames_in = 0
        self.frames_out = 0
        self.sends = 0
        self.errors = 0


class Connection:
    """A connection that the node knows by `number`.

    `on_frames` gets the frames of one read together, `on_garbage` the reason why what came is no
    frame. `run` returns the reason for which the
    connection ended, or None if the node had closed it itself.
    """

    def __init__(
        self,
        number: int,
        address: str,
        counters: Counters,
        on_frames: Callable[[int, list[Frame]], None],
        on_garbage: Callable[[int, str], None],
    ) -> None:
        self.number = number
        self.address = address
        self.closing = False
        """The node has closed it: nothing of it may reach the node any more."""
        self._open = False
        self._counters = counters
        self._on_frames = on_frames
        self._on_garbage = on_garbage
        self._outbox: list[bytes] = []
        self._waiting = 0  # bytes in the outbox
        self._lot = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        self._reason: str | None = None

    def write(self, frame: Frame) -> None:
        """Queue a frame. Ends the connection if too much waits (the peer does not read)."""
        if self.closing or self._reason is not None:
            return
        data = NODE_FRAMES.encode(frame)
        self._outbox.append(data)
        self._waiting += len(data)
        self._counters.frames_out += 1
        if self._waiting > QUEUE_LIMIT:
            self._fail(f"the peer does not read: {self._waiting} bytes wait")
        else:
            self._lot.unpark_all()

    def close(self) -> None:
        """End it after what was written has left, at most `LINGER` seconds from now."""
        self.closing = True
        if not self._open:
            self._scope.cancel()
        self._scope.deadline = trio.current_time() + LINGER
        self._lot.unpark_all()

    def _fail(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._scope.cancel()

    def _refuse(self, reason: str) -> None:
        """The peer sent what is no frame: tell it why (the writer still may), then end."""
        self._outbox.append(NODE_FRAMES.encode(Bye(reason)))
        self._waiting += len(self._outbox[-1])
        self._reason = self._reason or reason
        self._scope.deadline = trio.current_time() + LINGER
        self._lot.unpark_all()
        if not self.closing:
            self._on_garbage(self.number, reason)

    async def run(
        self, connect: Callable[[], Awaitable[trio.abc.Stream]], on_open: Callable[[int], None]
    ) -> str | None:
        """Connect, then read and write until the connection ends.

        Returns the reason, or None if the node closed it.
        """
        with self._scope:
            try:
                stream = await connect()
            except (OSError, ValueError) as error:  # ValueError: an address that is none
                self._reason = connect_fault(error)
                return None if self.closing else self._reason
            self._open = True
            try:
                if not self.closing:
                    on_open(self.number)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read, stream, nursery.cancel_scope)
                    nursery.start_soon(self._write, stream, nursery.cancel_scope)
            finally:
                await trio.aclose_forcefully(stream)
        return None if self.closing else self._reason or "the connection ended"

    async def _read(self, stream: trio.abc.Stream, scope: trio.CancelScope) -> None:
        reader = FrameReader(NODE_FRAMES)
        counters = self._counters
        while True:
            try:
                data = await stream.receive_some(READ_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self._reason = self._reason or f"reading failed: {error.__cause__ or error}"
                break
            if self.closing:
                if not data:
                    break
                continue  # the node does not listen any more; the writer still has to finish
            if not data:
                self._reason = self._reason or (
                    "the peer closed it in the middle of a frame"
                    if reader.buffered
                    else "the peer closed it"
                )
                break
            frames = reader.feed(data)
            counters.bytes_in += len(data)
            counters.frames_in += len(frames)
            if frames:
                self._on_frames(self.number, frames)
            if reader.error is not None:
                counters.errors += 1
                self._refuse(reader.error)
                return
        scope.cancel()

    async def _write(self, stream: trio.abc.Stream, scope: trio.CancelScope) -> None:
        while True:
            if not self._outbox:
                if self.closing or self._reason is not None:
                    break
                await self._lot.park()
                continue
            piece = self._take()
            with trio.move_on_after(SEND_TIMEOUT) as sending:
                try:
                    await stream.send_all(piece)
                except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    self._reason = self._reason or f"writing failed: {error.__cause__ or error}"
                    break
            if sending.cancelled_caught:
                self._reason = self._reason or f"the peer took nothing for {SEND_TIMEOUT:g} s"
                break
            self._counters.sends += 1
            self._counters.bytes_out += len(piece)
        scope.cancel()

    def _take(self) -> bytes:
        """Frames of the outbox in one piece, at most about `PIECE` bytes."""
        if self._waiting <= PIECE:
            piece = b"".join(self._outbox)
            self._outbox.clear()
        else:
            size = count = 0
            while count < len(self._outbox) and size < PIECE:
                size += len(self._outbox[count])
                count += 1
            piece = b"".join(self._outbox[:count])
            del self._outbox[:count]
        self._waiting -= len(piece)
        return piece


def connect_fault(error: OSError | ValueError) -> str:
    """Why a connection did not come about, in few words (trio hides the cause in a group)."""
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, ConnectionRefusedError):
        return REFUSED
    if not isinstance(cause, OSError):
        cause = error
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)
