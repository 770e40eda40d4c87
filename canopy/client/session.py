"""One connection to a node, without IO: bytes in, replies, deliveries and notices out; commands in,
bytes out.

The owner of a `ControlSession` moves its bytes: it calls `encode` and sends the command, calls
`decode` for bytes that it has read and `accept` for the frames, and sends the grant when
`grant_due` is set. canopy/client/blocking.py does so with a blocking socket and threads,
canopy/client/async_link.py with trio or asyncio. A `ControlSession` ends with its connection. If
the node keeps a session for the program (M5), the next connection resumes it at `position`
(canopy/client/resubscription.py).

Commands and events are checked before they are sent (`check`): a program gets an error at once,
while a node would end the connection of a client whose frame it cannot decode.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from enum import Enum
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec

from canopy.client.errors import (
    CommandFailed,
    CommandTimeoutError,
    ControlError,
    DeniedError,
    NodeFullError,
    UnreachableError,
    failure,
    unfit_event,
)
from canopy.client.frames import CLIENT_FRAMES, GatheredOpaque, OpaqueEvent, Sized
from canopy.client.seals import Sealer, opened_item, opened_reply, sealed
from canopy.wire.constants import CONTROL_LIMIT
from canopy.wire.transport.framing import COMMAND_FRAMES, FrameReader
from matching import check_value
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
    Draft,
    Dropped,
    Failed,
    Grant,
    Reply,
    SessionOpened,
    SessionResumed,
)
from overlay.client_types import COMMANDS
from overlay.command_faults import fault_in

PLAIN: Final = frozenset((bool, int, float, str, type(None)))
"""Types of values that are sent as they are."""

_NAMES: Final = frozenset((str,))
_REST: Final = frozenset(((bytes, str, float),))
"""Types of payload, payload type and time in most events."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Command]] = msgspec.msgpack.Decoder(COMMANDS)
_PLACE: Final = re.compile(r" - at `\$\[(\d+)\](.*)`")


def check(command: Command) -> None:
    """Check that a node can decode and accept a command, as far as the command alone shows it.
    Raises EventRefusedError for an invalid event, CommandFailed with a node's text for a selector
    or a name, msgspec.ValidationError for other fields, and the errors of encoding."""
    events: Sequence[Draft] = getattr(command, "events", ())
    bare = command
    if events:
        _check_events(events)
        bare = msgspec.structs.replace(command, events=())
    _DECODER.decode(_ENCODER.encode(bare))
    if fault := fault_in(command):
        raise failure(*fault)


def _check_events(events: Sequence[Draft]) -> None:
    """Check the types of all events together, in 0.4 us for an event of ten attributes. The node
    checks the values (`matching.check_value`)."""
    attributes = [draft.attributes for draft in events]
    values = set(map(type, chain.from_iterable([each.values() for each in attributes])))
    names: set[Any] = set().union(*attributes)
    rest = {(type(one.payload), type(one.payload_type), type(one.time)) for one in events}
    if not (values <= PLAIN and _NAMES.issuperset(map(type, names)) and rest <= _REST):
        for place, draft in enumerate(events):
            if fault := _fault(draft):
                raise unfit_event(place, fault)


def _fault(draft: Draft) -> str:
    """Return why this event cannot be sent; "" if it can. Members of enumerations are sent as their
    values."""
    payload: object = draft.payload
    name: object
    value: object
    if not isinstance(payload, bytes | bytearray | memoryview):
        return f"the payload is bytes, not a {type(payload).__name__}"
    if not (type(draft.payload_type) is str and type(draft.time) in (float, int)):
        return "payload_type is a text, and time a number"
    for name, value in draft.attributes.items():
        if type(name) is not str:
            return f"attribute {name!r}: a name is a text, not a {type(name).__name__}"
        plain = value.value if isinstance(value, Enum) else value
        if type(plain) not in PLAIN:
            return f"attribute {name!r}: {check_value(plain)}; bytes and structures go as payload"
    return ""


def unfit_value(command: Command) -> None:
    """Raise EventRefusedError for the first event of a command that cannot be encoded, or is larger
    than a frame."""
    for place, draft in enumerate(getattr(command, "events", ())):
        for name, value in draft.attributes.items():
            fault = check_value(name) or (None if value is None else check_value(value))
            if fault:
                raise unfit_event(place, f"attribute {name!r}: {fault}")
        if fault := check_value(draft.payload_type):
            raise unfit_event(place, f"payload_type: {fault}")
        if (size := len(_ENCODER.encode(draft))) > CONTROL_LIMIT:
            raise unfit_event(place, f"{size:,} bytes; a frame has {CONTROL_LIMIT:,} at most")


def misfit(command: Command, reason: str) -> str:
    """Return msgspec's reason why a node would not decode `command`, with the name of the field."""
    found = _PLACE.search(reason)
    fields = ("", *type(command).__struct_fields__)
    if found is None or int(found[1]) >= len(fields):
        return reason
    return f"{fields[int(found[1])]}{found[2]}: {reason[: found.start()]}"


NOTICES: Final = 100
"""The most notices that are kept for a program that does not take them; then the oldest are
dropped. Not measured: the node sends one for each run of dropped deliveries, a few per second at
most."""


class ArrivalSegment:
    """The deliveries, or gathered events, between two notices of missing deliveries."""

    __slots__ = ("end", "items", "size")

    def __init__(self) -> None:
        self.items: list[Delivery | OpaqueEvent] = []
        self.size = 0  # bytes of the frames that they came in
        self.end: Failed | None = None


class Arrivals:
    """Deliveries in the order of their arrival, and the credit that they use.

    The program's side of canopy/wire/control/credit_window.py. Items that were read from the socket
    and not handed out use up credit. So a program that takes no deliveries holds its node back, and
    neither the node nor this library stores more for it than the credit. When half of the credit
    was handed out, the node is granted more: one grant for some thousands of deliveries.

    A notice of missing deliveries keeps its place among the deliveries. A call hands out the
    deliveries before it, and puts the notice into `notices`; the deliveries after it follow with
    the next call.
    """

    def __init__(self, credit: int = CREDIT) -> None:
        """`credit`: bytes of frames that may arrive before the program takes any."""
        self.notices: deque[Failed] = deque(maxlen=NOTICES)
        self.consumed = 0  # bytes of frames since the beginning
        self.grant_due = credit != CREDIT
        """Whether the node should be granted more credit now."""
        self._credit = credit
        self._granted = 0  # `consumed` of the last grant
        self._segments: deque[ArrivalSegment] = deque([ArrivalSegment()])

    def __bool__(self) -> bool:
        """Whether a call would hand out deliveries or a notice."""
        head = self._segments[0]
        return bool(head.items or head.end)

    def __len__(self) -> int:
        """The number of deliveries, gathered events and notices that were not taken."""
        held = sum(len(one.items) for one in self._segments)
        return held + len(self._segments) - 1 + len(self.notices)

    def add(self, frame: Delivered | GatheredOpaque | Failed, size: int) -> None:
        """Queue a frame of `size` bytes: deliveries, or the notice that some are missing at this
        place."""
        last = self._segments[-1]
        if isinstance(frame, Delivered | GatheredOpaque):
            last.items += frame.deliveries if isinstance(frame, Delivered) else frame.events
            last.size += size
        elif len(self._segments) > NOTICES:  # the program takes nothing: its place does not matter
            self.notices.append(frame)
        else:
            last.end = frame
            self._segments.append(ArrivalSegment())

    def take(self) -> tuple[list[Delivery | OpaqueEvent], bool]:
        """Return all items up to the next notice, and whether the notice was put into
        `notices`."""
        head = self._segments[0]
        found, head.items = head.items, []
        self.consumed += head.size
        head.size = 0
        if self.consumed - self._granted >= self._credit // 2:
            self.grant_due = True
        if head.end is None:
            return found, False
        self.notices.append(head.end)
        self._segments.popleft()
        return found, True

    def grant(self) -> Grant:
        """Return the grant to send now; call `granted` after sending it."""
        return Grant(0, self.consumed, self._credit)

    def granted(self, grant: Grant) -> None:
        """Note that `grant` was sent. No other is due until more has been taken."""
        self._granted = grant.consumed
        self.grant_due = False


READ_SIZE: Final = 256 * 1024
"""Bytes of one read: several batches of events at once. Larger reads were no faster."""

DELIVERIES: Final = (GatheredOpaque, Delivered, Dropped)
"""Frames that keep their order among themselves; replies to commands overtake them."""

GOODBYE: Final = COMMAND_FRAMES.encode(CloseSession(0))

R = TypeVar("R", bound=Reply)


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

    def take(self) -> list[Any]:
        """Return the deliveries, or on a connection that gathers the events, up to the next notice
        (`Arrivals.take`). UnreachableError if the connection has ended and nothing is left."""
        found, is_notice = self.arrivals.take()
        if self.gone is not None and not found and not is_notice:
            raise self.unreachable()
        sealer = self._sealer
        return found if sealer is None else [opened_item(sealer, each) for each in found]

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
