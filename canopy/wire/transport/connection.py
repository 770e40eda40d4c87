"""One TCP connection between two nodes: a reader and a writer over trio.

It is built for few calls: in trio a `send_all` costs 14 to 19 µs, a receive 9 to 12, a memory
channel 8 to 13 per message. So the reader takes as much as there is and passes all its frames on in
one call; what the node's turn queued is written together at the end of the turn
(canopy/wire/transport/outlet.py), and the writer task sends only what the socket did not accept.

A peer that does not read must not hold resources for ever: the queue is bounded, and the connection
is closed if the peer accepts nothing for `SEND_TIMEOUT`. Part of a frame may have left then; the
session above resumes on the next connection (M5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from canopy.wire.constants import LINGER, QUEUE_LIMIT, READ_SIZE, SEND_TIMEOUT
from canopy.wire.transport.framing import NODE_FRAMES, FrameReader, opens_session
from canopy.wire.transport.inlet import Inlet
from canopy.wire.transport.outlet import Counters, Outlet
from canopy.wire.transport.tls import SecureInlet, TlsError, TlsPipe
from overlay.links.events import REFUSED
from overlay.links.messages import Bye, Frame
from overlay.rights import Principal

TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS record (RFC 8446, section 5.1): an alert, a handshake. A frame that
begins so would exceed every limit."""

SPEAKS_TLS: Final = (
    "it speaks TLS: its overlay has keys and this node has none; "
    "start it with --join and a token that 'canopy keys invite' prints there"
)


class Connection:
    """A connection that the node knows by `number`.

    `on_frames(number, frames)` is called with all frames of one read; `on_garbage(number, reason)`
    once, if the peer sends anything else.
    """

    def __init__(
        self,
        number: int,
        address: str,
        counters: Counters,
        on_frames: Callable[[int, list[Frame]], None],
        on_garbage: Callable[[int, str], None],
        tls: TlsPipe | None = None,
    ) -> None:
        """`tls` encrypts the connection, and identifies the other end (`principal`)."""
        self.number = number
        self.address = address
        self.closing = False
        """Whether the node has closed it, and gets nothing more from it."""
        self.principal: Principal | None = None
        """The identity of the other end, once it is open; None: unknown."""
        self.tls = tls
        self.is_server = False
        """Whether the other process has dialled."""
        self.first = b""
        """Bytes of it that were read already."""
        self.was_open = False
        self._has_read = False
        self._open = False
        self._counters = counters
        self._on_frames = on_frames
        self._on_garbage = on_garbage
        self._outlet = Outlet(counters)
        self._reader = FrameReader(NODE_FRAMES)
        self._scope = trio.CancelScope()
        self._reason: str | None = None

    def write(self, frame: Frame) -> None:
        """Queue a frame; `send_now` must follow. Ends the connection if more than `QUEUE_LIMIT`
        bytes are queued, since the peer does not read."""
        if self.closing or self._reason is not None:
            return
        self._outlet.put(NODE_FRAMES.encode(frame))
        self._counters.frames_out += 1
        if opens_session(frame):  # to a Hello that was accepted: the peer may send batches now
            self._reader.open()
        if self._outlet.waiting > QUEUE_LIMIT:
            self._fail(f"the peer does not read: {self._outlet.waiting} bytes wait")

    def send_now(self) -> None:
        """Write the queued output at the end of a turn."""
        self._outlet.send_now()

    def silence(self) -> None:
        """Write nothing more, even if it is queued."""
        self._outlet.close()

    def close(self) -> None:
        """Close it when everything queued has left, after at most `LINGER` seconds."""
        self.closing = True
        if not self._open:
            self._scope.cancel()
        self._scope.deadline = trio.current_time() + LINGER
        self._outlet.wake()

    def cut_off(self, reason: str) -> None:
        """Close it at once: its peer is no longer trusted."""
        self._outlet.close()
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._scope.cancel()

    def _refuse(self, reason: str) -> None:
        """Close it because of malformed input: send a Bye with the reason, then end."""
        self._outlet.put(NODE_FRAMES.encode(Bye(reason)))
        self._reason = self._reason or reason
        self._scope.deadline = trio.current_time() + LINGER
        self._outlet.wake()
        if not self.closing:
            self._on_garbage(self.number, reason)

    async def run(
        self,
        connect: Callable[[], Awaitable[trio.SocketStream]],
        on_open: Callable[[int], None],
        connect_timeout: float = 5.0,
    ) -> str | None:
        """Connect, then read and write until the connection ends. The peer has `connect_timeout`
        seconds to authenticate itself.

        Returns the reason for which it ended, or None if the node closed it.
        """
        with self._scope:
            try:
                stream = await connect()
            except (OSError, ValueError) as error:  # ValueError: a malformed address
                self._reason = connect_fault(error)
                return None if self.closing else self._reason
            try:
                if not await self._authenticate(stream, connect_timeout):
                    return None if self.closing else self._reason
                self._open = self.was_open = True
                self._outlet.open(stream, self.tls.encrypt if self.tls else None)
                if not self.closing:
                    on_open(self.number)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read, stream, nursery.cancel_scope)
                    nursery.start_soon(self._write, nursery.cancel_scope)
            finally:
                self._outlet.close()
                await trio.aclose_forcefully(stream)
        return None if self.closing else self._reason or "the connection ended"

    async def _authenticate(self, stream: trio.SocketStream, timeout: float) -> bool:
        """Do the TLS handshake, if the node has keys. Returns whether the peer is authenticated."""
        if self.tls is None:
            return True
        with trio.move_on_after(timeout):
            try:
                self.principal = await self.tls.handshake(stream, self.first)
            except TlsError as error:
                self._reason = str(error)
            else:
                return True
        self._reason = self._reason or f"no TLS handshake within {timeout:g} s"
        self._counters.tls_refused += 1
        return False

    async def _read(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        reader = self._reader
        inlet = Inlet(stream) if self.tls is None else SecureInlet(Inlet(stream), self.tls)
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
                continue  # the node has closed it; the writer still has to finish
            if not data:
                self._reason = self._reason or (
                    "the peer closed it in the middle of a frame"
                    if reader.buffered
                    else "the peer closed it"
                )
                break
            if self._is_tls(data):
                counters.errors += 1
                self._refuse(SPEAKS_TLS)
                return
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

    def _is_tls(self, data: bytes | bytearray) -> bool:
        """Return whether the first bytes are a TLS record, an alert or a handshake, instead of a
        frame."""
        is_first, self._has_read = not self._has_read, True
        return is_first and self.tls is None and bytes(data[:2]) in TLS_RECORDS

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
    """The system's reason for a failed dial, which trio wraps in an exception group."""
    cause: BaseException | None = error.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    if isinstance(cause, ConnectionRefusedError):
        return REFUSED
    if not isinstance(cause, OSError):
        cause = error
    return (cause.strerror if isinstance(cause, OSError) else None) or str(cause)
