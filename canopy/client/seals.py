"""What a program with a seal file sends and gets: payloads are sealed and opened here (no IO).

The cipher and the file are in canopy/wire/keys/seals.py. An event that comes to a program with a
seal file is one of the classes below, which say what became of its payload; nothing that cannot be
opened is dropped, and nothing is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec.structs import replace

from canopy.client.errors import ControlError, DeniedError
from canopy.client.frames import OpaqueEvent
from canopy.wire.constants import SEALED
from overlay.client import (
    AppendEvents,
    Command,
    Delivery,
    Draft,
    DryRun,
    Event,
    EventsTaken,
    Publish,
    Reply,
    StreamEvent,
)
from overlay.stream_client import GroupRow, PrepareEvents, RowsTaken

if TYPE_CHECKING:
    from canopy.wire.keys.seals import OpenedPayload, Seal

SEALING: Final = (Publish, DryRun, AppendEvents, PrepareEvents)
"""Commands whose events have payloads."""


class Sealer(Protocol):
    """Seals payloads, and opens them: `canopy.wire.keys.seals.Seals`."""

    def seal(
        self, attributes: Mapping[str, Any], payload: bytes, payload_type: str
    ) -> tuple[bytes, str]:
        """The envelope of a payload, and its type."""

    def open(
        self, attributes: Mapping[str, Any], payload: bytes, payload_type: str
    ) -> OpenedPayload:
        """Open an envelope and return its contents."""


class UnsealedEvent(Event, frozen=True):
    """An event as it came to a program with a seal file."""

    seal: str = ""


class UnsealedOpaque(OpaqueEvent, frozen=True):
    """The same of an event whose attributes are decoded on demand."""

    seal: str = ""


class UnsealedRow(StreamEvent, frozen=True):
    """The same of a stream's event."""

    seal: str = ""


class UnsealedGroupRow(GroupRow, frozen=True):
    """The same of a group's row."""

    seal: str = ""


_KINDS: Final[dict[type, type]] = {
    Event: UnsealedEvent,
    OpaqueEvent: UnsealedOpaque,
    StreamEvent: UnsealedRow,
    GroupRow: UnsealedGroupRow,
}

WORDS: Final[dict[Seal, str]] = {
    "opened": "was sealed, and is opened",
    "no-key": "is sealed, and the seal file has not the key",
    "false": "is false: not what was sealed with these attributes",
    "none": "came without a seal",
}
"""For people, with "the payload" before it."""

E = TypeVar("E", Event, OpaqueEvent, StreamEvent, GroupRow)


def seal_of(event: Event | OpaqueEvent | StreamEvent | GroupRow) -> Seal | None:
    """Return the state of the seal on an event's payload.

    "opened": the payload was sealed with these attributes. "no-key": the seal file lacks the key.
    "false": the payload was not sealed with these attributes. "none": the payload had no seal.
    None: the program has no seal file, and the payload is unchanged.
    """
    found: Seal | None = getattr(event, "seal", None)
    return found


def labelled(event: Event, seal: Seal | None) -> Event:
    """The event with what became of its payload; None: as it is."""
    if seal is None:
        return event
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    return UnsealedEvent(**(fields | {"seal": seal}))


def said_of(event: Event) -> str:
    """Describe the seal of an event's payload; "" if there is nothing to report."""
    seal = seal_of(event)
    if seal is None and event.payload_type != SEALED:
        return ""
    if seal not in (None, "no-key"):
        return WORDS[seal]
    from canopy.wire.keys.seals import key_named

    key = key_named(event.payload) or "unknown"
    return f"is sealed with the key {key}" + (", which the seal file has not" if seal else "")


def open_seals(path: str | Path | None) -> Sealer | None:
    """The keys of the seal file `path`; None without one. Raises DeniedError if others can read it
    too, and ControlError if it is none."""
    if path is None:
        return None
    from canopy.wire.keys.seals import SealFileDeniedError, SealFileError, Seals

    try:
        return Seals(Path(path))
    except SealFileDeniedError as error:
        raise DeniedError(str(error)) from None
    except SealFileError as error:
        raise ControlError(str(error)) from None


def sealed(sealer: Sealer, command: Command) -> Command:
    """`command` with the payloads of its events sealed. Raises as `Sealer.seal`."""
    if not isinstance(command, SEALING):
        return command
    return replace(command, events=tuple([_sealed(sealer, draft) for draft in command.events]))


def _sealed(sealer: Sealer, draft: Draft) -> Draft:
    payload, kind = sealer.seal(draft.attributes, draft.payload, draft.payload_type)
    return Draft(draft.attributes, payload, kind, draft.time)


def opened(sealer: Sealer, event: E) -> E:
    """An event with its payload decrypted, if possible, and with the result in `seal`."""
    found = sealer.open(event.attributes, event.payload, event.payload_type)
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    fields |= {"payload": found.payload, "payload_type": found.payload_type, "seal": found.seal}
    made: E = _KINDS[type(event)](**fields)
    return made


def opened_delivery(sealer: Sealer, delivery: Delivery) -> Delivery:
    """The same of a delivery's event."""
    return replace(delivery, event=opened(sealer, delivery.event))


def opened_reply(sealer: Sealer, reply: Reply) -> Reply:
    """A reply with the payloads of its rows opened; packed ones stay as they are."""
    if isinstance(reply, EventsTaken):
        return replace(reply, events=tuple([opened(sealer, one) for one in reply.events]))
    if isinstance(reply, RowsTaken):
        return replace(reply, rows=tuple([opened(sealer, one) for one in reply.rows]))
    return reply
