"""One TCP connection between two nodes: a reader and a writer over trio.

Costs decide the shape (issue 2, *Facts*): a `send_all` is 14 to 19 µs, a receive 9 to 12, a memory
channel 8 to 13 per message. So the reader takes as much as there is and hands all its frames over
in one call; what the node's turn queued leaves in one piece at the turn's end
(canopy/wire/transport/outlet.py), and only what the socket does not take at once is the writer's.

A peer that does not read must not block us for ever: what waits is bounded, and a peer that takes
nothing for a while is given up. Half a frame may have left then, so the connection is closed; the
session above resumes on the next one (M5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from canopy.wire.transport.framing import NODE_FRAMES, FrameReader
from canopy.wire.transport.inlet import Inlet
from canopy.wire.transport.outlet import Counters, Outlet
from overlay.links.events import REFUSED
from overlay.links.messages import Bye, Frame

READ_SIZE: Final = 64 * 1024
"""Bytes asked for in one receive. Twice a frame of a busy link; larger ones were not faster."""

QUEUE_LIMIT: Final = 16 << 20
"""Bytes that wait in one connection. Links grant each other 4 MiB of credit
(`LinkSettings.window`), so more than this is a peer that does not play by the rules."""

SEND_TIMEOUT: Final = 10.0
"""Seconds in which a stalled peer has to take something; longer than `LinkSettings.dead_after`,
so that the failure detector, not this, decides about a slow peer. Wild guess."""

LINGER: Final = 2.0
"""Seconds in which what was written before `close` may still leave. Wild guess."""


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
        self._outlet = Outlet(counters)
        self._scope = trio.CancelScope()
        self._reason: str | None = None

    def write(self, frame: Frame) -> None:
        """Queue a frame; `send_now` has to follow. Ends the connection if too much waits (the peer
        does not read)."""
        if self.closing or self._reason is not None:
            return
        self._outlet.put(NODE_FRAMES.encode(frame))
        self._counters.frames_out += 1
        if self._outlet.waiting > QUEUE_LIMIT:
            self._fail(f"the peer does not read: {self._outlet.waiting} bytes wait")

    def send_now(self) -> None:
        """The end of a turn: what was queued leaves."""
        self._outlet.send_now()

    def close(self) -> None:
        """End it after what was written has left, at most `LINGER` seconds from now."""
        self.closing = True
        if not self._open:
            self._scope.cancel()
        self._scope.deadline = trio.current_time() + LINGER
        self._outlet.wake()

    def _fail(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._scope.cancel()

    def _refuse(self, reason: str) -> None:
        """The peer sent what is no frame: tell it why (the writer still may), then end."""
        self._outlet.put(NODE_FRAMES.encode(Bye(reason)))
        self._reason = self._reason or reason
        self._scope.deadline = trio.current_time() + LINGER
        self._outlet.wake()
        if not self.closing:
            self._on_garbage(self.number, reason)

    async def run(
        self, connect: Callable[[], Awaitable[trio.SocketStream]], on_open: Callable[[int], None]
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
            self._outlet.open(stream)
            try:
                if not self.closing:
                    on_open(self.number)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read, stream, nursery.cancel_scope)
                    nursery.start_soon(self._write, nursery.cancel_scope)
            finally:
                self._outlet.close()
                await trio.aclose_forcefully(stream)
        return None if self.closing else self._reason or "the connection ended"

    async def _read(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        reader = FrameReader(NODE_FRAMES)
        inlet = Inlet(stream)
        counters = self._counters
        while True:
            try:
                data = await inlet.read(READ_SIZE)
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

    async def _write(self, scope: trio.CancelScope) -> None:
        while True:
            if not self._outlet:
                if self.closing or self._reason is not None:
                    break
                await self._outlet.idle()
                continue
            with trio.move_on_after(SEND_TIMEOUT) as sending:
                try:
                    await self._outlet.drain()
                except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    self._reason = self._reason or f"writing failed: {error.__cause__ or error}"
                    break
            if sending.cancelled_caught:
                self._reason = self._reason or f"the peer took nothing for {SEND_TIMEOUT:g} s"
                break
        scope.cancel()


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
