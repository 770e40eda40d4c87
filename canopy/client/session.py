"""One connection to a node, without IO: bytes in, replies, deliveries and notices out; commands in,
bytes out.

The owner of a `ControlSession` moves its bytes: it calls `encode` and sends the command, calls
`decode` for bytes that it has read and `accept` for the frames, and sends the grant when
`grant_due` is set. canopy/client/blocking.py does so with a blocking socket and threads,
canopy/client/async_link.py with trio or asyncio. A `ControlSession` ends with its connection. If
the node keeps a session for the program (M5), the next connection resumes it at `position`
(canopy/client/resubscription.py).
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeVar

import msgspec

from canopy.client.arrivals import Arrivals
from canopy.client.command_check import check, misfit, unfit_value
from canopy.client.errors import (
    CommandFailed,
    CommandTimeoutError,
    ControlError,
    DeniedError,
    NodeFullError,
    UnreachableError,
    failure,
)
from canopy.client.frames import CLIENT_FRAMES, GatheredOpaque, OpaqueEvent, Sized
from canopy.client.seals import Sealer, opened, opened_delivery, opened_reply, sealed
from canopy.wire.transport.framing import COMMAND_FRAMES, FrameReader
from overlay.client import (
    CREDIT,
    DENIED,
    ENDED,
    FULL,
    GAP,
    LEAVING,
    CloseSession,
    Command,
    CompleteUntil,
    Delivered,
    Delivery,
    Dropped,
    Failed,
    Grant,
    Reply,
    SessionOpened,
    SessionResumed,
)

READ_SIZE: Final = 256 * 1024
"""Bytes of one read: several batches of events at once. Larger reads were no faster."""

DELIVERIES: Final = (GatheredOpaque, Delivered, Dropped)
"""Frames that keep their order among themselves; replies to commands overtake them."""

GOODBYE: Final = COMMAND_FRAMES.encode(CloseSession(0))

R = TypeVar("R", bound=Reply)
T = TypeVar("T")


class SessionPosition(msgspec.Struct, frozen=True):
    """A program's position in a session that its node keeps: the name of the session, the number of
    numbered items (deliveries, gathered events, notices) received, and the number of the last
    request."""

    session: str
    received: int
    last_request: int = 0


def expected(reply: Reply, kind: type[R], where: str = "") -> R:
    """Return `reply`, which must be of the type `kind`; ControlError if it is not. `where`: the
    node's path."""
    if not isinstance(reply, kind):
        node = f"the node at {where}" if where else "the node"
        raise ControlError(f"{node} answered {type(reply).__name__}, not {kind.__name__}")
    return reply


class ControlSession:
    """The state of one connection: unanswered requests, arrivals, credit, and why it ended."""

    def __init__(self, where: str, credit: int = CREDIT, sealer: Sealer | None = None) -> None:
        """`where`: the socket's path, for messages; `credit`: bytes of deliveries that may arrive
        before the program takes any, at most CREDIT; `sealer`: seals payloads that leave, and opens
        those that arrive."""
        self.where = where
        self._sealer = sealer
        self.gone: str | None = None
        """Why the connection has ended; None while it is open."""
        self._refusal: Failed | None = None  # the node does not serve this program
        self.complete_until = 0.0
        """The time up to which the received deliveries are complete, by the node's wall clock in
        seconds since 1970; 0: unknown."""
        self.arrivals = Arrivals(min(credit, CREDIT))
        self._reader = FrameReader(CLIENT_FRAMES)
        self._last_request = 0
        self._session = ""
        self._received = 0  # numbered items of the session
        self._skip = 0  # of those to come, which the program has
        self._replies: dict[int, Reply | None] = {}  # None: asked and not answered

    @property
    def notices(self) -> deque[Failed]:
        """Notices whose place among the deliveries was reached, the oldest first."""
        return self.arrivals.notices

    # The session that the node keeps.

    @property
    def position(self) -> SessionPosition | None:
        """The position at which the next connection resumes the session; None if the node keeps
        none."""
        if not self._session:
            return None
        return SessionPosition(self._session, self._received, self._last_request)

    @property
    def taken(self) -> SessionPosition | None:
        """The position after the last item that the program has taken; None if the node keeps no
        session."""
        received = max(0, self._received - len(self.arrivals))
        found = self.position
        return found and msgspec.structs.replace(found, received=received)

    def go_on(self, position: SessionPosition) -> None:
        """Continue from `position` on this connection once `ResumeSession` is answered."""
        self._last_request = position.last_request
        self._session, self._received = position.session, position.received

    def end_session(self) -> None:
        """Note that the node no longer keeps a session."""
        self._session = ""

    # Commands out.

    def number(self) -> int:
        """Begin a request, and return its number, for `encode`."""
        self._last_request += 1
        self._replies[self._last_request] = None
        return self._last_request

    def encode(self, command: Command, number: int) -> bytes:
        """Return the frame of `command` as request `number`. Raises EventRefusedError if one of its
        events cannot be encoded, CommandFailed if another argument is invalid or the frame would be
        too large: a node ends the connection of a client that sends such a frame."""
        try:
            if self._sealer is not None:
                command = sealed(self._sealer, command)
            check(command)
            return COMMAND_FRAMES.encode(msgspec.structs.replace(command, request=number))
        except msgspec.ValidationError as error:
            raise CommandFailed("usage", misfit(command, str(error))) from None
        except (ValueError, OverflowError, TypeError, UnicodeEncodeError) as error:
            unfit_value(command)
            raise CommandFailed("usage", f"this command cannot be sent: {error}") from None

    def encode_grant(self) -> tuple[Grant, bytes]:
        """Return the grant that is due, and its frame; call `arrivals.granted` after sending it."""
        grant = self.arrivals.grant()
        return grant, COMMAND_FRAMES.encode(grant)

    # Bytes in.

    def decode(self, data: bytes) -> list[Sized]:
        """Return the frames that `data` completes. Uses only the reader, so a thread may call it
        while others use the session."""
        return self._reader.feed(data)

    @property
    def fault(self) -> str | None:
        """Return why the bytes read are not a valid frame, or None."""
        return self._reader.error

    def accept(self, frames: list[Sized]) -> None:
        """Sort decoded frames into replies and deliveries."""
        for reply, size in frames:
            if isinstance(reply, DELIVERIES):
                self.arrivals.add(self._counted(reply), size)
            elif reply.request == 0 and isinstance(reply, Failed):
                self._received += 1
                if reply.code in (GAP, ENDED, LEAVING):
                    self.arrivals.add(reply, size)
                elif reply.code in (FULL, DENIED):
                    self._refusal = reply
                    self.lose(reply.reason)
                else:
                    self.notices.append(reply)
            elif isinstance(reply, CompleteUntil):
                self.complete_until = reply.until
            elif reply.request in self._replies:  # else it came after its time-out
                self._replies[reply.request] = reply
                if isinstance(reply, SessionOpened):
                    self._session, self._received = reply.session, 0
                elif isinstance(reply, SessionResumed):
                    self._skip = max(0, self._received - reply.after)
                    self._received = reply.after

    def _counted(
        self, frame: GatheredOpaque | Delivered | Dropped
    ) -> GatheredOpaque | Delivered | Dropped:
        """Count the items of a frame, and return it without the items that the program received
        before."""
        items = items_of(frame)
        self._received += items
        if self._skip:
            skip = min(self._skip, items)
            self._skip -= skip
            if isinstance(frame, Delivered):
                frame = Delivered(0, frame.deliveries[skip:])
            elif isinstance(frame, GatheredOpaque):
                frame = GatheredOpaque(0, frame.events[skip:])
        return frame

    def receive(self, data: bytes) -> None:
        """Call `decode` and `accept`; empty `data` is the end of the connection."""
        if not data:
            self.lose("it closed the connection")
            return
        self.accept(self.decode(data))
        if self.fault is not None:
            self.lose(self.fault)

    def lose(self, reason: str) -> None:
        """Note that the connection has ended; the first reason stays."""
        self.gone = self.gone or reason

    # Replies and deliveries out.

    def is_answered(self, number: int) -> bool:
        """Return whether the reply to request `number` has arrived."""
        return self._replies.get(number) is not None

    def forget(self, number: int) -> None:
        """Abandon a request: its reply is ignored."""
        self._replies.pop(number, None)

    def answer(self, number: int, timeout: float) -> Reply:
        """Return the reply to request `number`, and end the request.

        Raises CommandFailed for a `Failed` reply, UnreachableError if the connection has ended
        without a reply, and else CommandTimeoutError: `timeout` (seconds) is over.
        """
        reply = self._replies.pop(number, None)
        if reply is None:
            if self.gone is not None:
                raise self.unreachable()
            raise CommandTimeoutError(
                f"no answer from the node at {self.where} within {timeout:g} s"
            )
        if isinstance(reply, Failed):
            raise failure(reply.code, reply.reason)
        return reply if self._sealer is None else opened_reply(self._sealer, reply)

    def take_deliveries(self) -> list[Delivery]:
        """Return the deliveries up to the next notice (`Arrivals.take_delivered`). UnreachableError
        if the connection has ended and nothing is left."""
        found = self._taken(*self.arrivals.take_delivered())
        sealer = self._sealer
        return found if sealer is None else [opened_delivery(sealer, each) for each in found]

    def take_gathered(self) -> list[OpaqueEvent]:
        """Return the gathered events up to the next notice, as `take_deliveries`."""
        found = self._taken(*self.arrivals.take_gathered())
        sealer = self._sealer
        return found if sealer is None else [opened(sealer, each) for each in found]

    def _taken(self, found: list[T], is_notice: bool) -> list[T]:
        if self.gone is not None and not found and not is_notice:
            raise self.unreachable()
        return found

    def unreachable(self) -> UnreachableError | DeniedError:
        """Return the error for a connection that has ended, with the reason."""
        if self._refusal is not None:
            text = f"the node at {self.where} refuses: {self._refusal.reason}"
            return NodeFullError(text) if self._refusal.code == FULL else DeniedError(text)
        return UnreachableError(f"the node at {self.where} has gone: {self.gone}")


class ResumableConnection:
    """Session state that the blocking and the asynchronous connection share."""

    _session: ControlSession

    @property
    def position(self) -> SessionPosition | None:
        """The position at which another connection resumes the session; None if the node keeps
        none."""
        return self._session.position

    @property
    def taken(self) -> SessionPosition | None:
        """The position after the last item that the program has taken; None if the node keeps no
        session."""
        return self._session.taken

    @property
    def complete_until(self) -> float:
        """The time up to which the received deliveries are complete, by the node's wall clock in
        seconds since 1970; 0: unknown."""
        return self._session.complete_until

    def go_on(self, position: SessionPosition) -> None:
        """Resume the session at `position` on this connection. Call it before the first request."""
        self._session.go_on(position)

    def end_session(self) -> None:
        """Note that the node no longer keeps a session."""
        self._session.end_session()


def items_of(frame: Reply) -> int:
    """Return the number of numbered items in an unrequested frame."""
    if isinstance(frame, Delivered):
        return len(frame.deliveries)
    return len(frame.events) if isinstance(frame, GatheredOpaque) else 1
