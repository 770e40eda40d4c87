"""Sealing and opening of payloads in a program with a seal file (no IO).

The cipher and the file are in canopy/wire/keys/seals.py. Events that a program with a seal file
receives are of the classes below, whose `seal` has the result of opening the payload. An event
whose payload cannot be opened is delivered with its payload unchanged; that is not an error.
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
        """Return the envelope of a payload, and its type."""

    def open(
        self, attributes: Mapping[str, Any], payload: bytes, payload_type: str
    ) -> OpenedPayload:
        """Open an envelope and return its contents."""


class UnsealedEvent(Event, frozen=True):
    """An event as a program with a seal file receives it."""

    seal: str = ""


class UnsealedOpaque(OpaqueEvent, frozen=True):
    """An event with attributes decoded on access, as a program with a seal file receives it."""

    seal: str = ""


class UnsealedRow(StreamEvent, frozen=True):
    """An event of a stream, as a program with a seal file receives it."""

    seal: str = ""


class UnsealedGroupRow(GroupRow, frozen=True):
    """A row of a group, as a program with a seal file receives it."""

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
"""The states of a seal in words, to follow "the payload"."""

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
    """Return the event with the state of its seal; None: return it unchanged."""
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
    """Return the keys of the seal file `path`; None for None. Raises DeniedError if others can read
    the file too, and ControlError if it is invalid."""
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
    """Return `command` with the payloads of its events sealed. Raises as `Sealer.seal`."""
    if not isinstance(command, SEALING):
        return command
    return replace(command, events=tuple([_sealed(sealer, draft) for draft in command.events]))


def _sealed(sealer: Sealer, draft: Draft) -> Draft:
    payload, kind = sealer.seal(draft.attributes, draft.payload, draft.payload_type)
    return Draft(draft.attributes, payload, kind, draft.time)


def opened(sealer: Sealer, event: E) -> E:
    """Return an event with its payload opened, if possible, and the result in `seal`."""
    found = sealer.open(event.attributes, event.payload, event.payload_type)
    fields = {name: getattr(event, name) for name in event.__struct_fields__}
    fields |= {"payload": found.payload, "payload_type": found.payload_type, "seal": found.seal}
    made: E = _KINDS[type(event)](**fields)
    return made


def opened_item(sealer: Sealer, item: Delivery | OpaqueEvent) -> Delivery | OpaqueEvent:
    """Return a delivery, or a gathered event, with its payload opened."""
    if isinstance(item, Delivery):
        return replace(item, event=opened(sealer, item.event))
    return opened(sealer, item)


def opened_reply(sealer: Sealer, reply: Reply) -> Reply:
    """Return a reply with the payloads of its rows opened; packed rows stay unchanged."""
    if isinstance(reply, EventsTaken):
        return replace(reply, events=tuple([opened(sealer, one) for one in reply.events]))
    if isinstance(reply, RowsTaken):
        return replace(reply, rows=tuple([opened(sealer, one) for one in reply.rows]))
    return reply
