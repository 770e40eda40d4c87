"""Treats events that violate the schema of their type.

The driver knows the schemas (`Port.schemas`, an `EventSchemas`); nobody else looks at what is in
them. Where it has none, events cost nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from overlay.client import Draft
from overlay.machine import Port
from overlay.operator_commands import EventSchema

Otherwise = Literal["refuse", "park", "count"]


class EventSchemas(Protocol):
    """The schemas that a node has been given, by type of event."""

    otherwise: Otherwise
    """The treatment of others: they are refused; published as a parked event in their place; or
    published, and counted."""

    def fault(self, draft: Draft) -> str:
        """Return where and why an event does not conform to the schema of its type; "" if it
        conforms or there is no schema."""
        ...

    def parked(self, draft: Draft, fault: str) -> Draft:
        """The event that is published in the place of another one, and has it as its payload."""
        ...

    def listed(self) -> tuple[EventSchema, ...]:
        """All schemas, in the order of the types of their events."""
        ...


def schemas_of(port: Port) -> EventSchemas | None:
    """The schemas of a node; None: it has none."""
    found: EventSchemas | None = port.schemas
    return found


def fits(port: Port, drafts: Sequence[Draft]) -> bool:
    """Whether all events are what their schemas say."""
    schemas = schemas_of(port)
    return schemas is None or not any(map(schemas.fault, drafts))


def settled(port: Port, draft: Draft) -> tuple[Draft, str | None]:
    """Return the draft to publish for an event, and the reason if it is refused (None: it is
    not)."""
    schemas = schemas_of(port)
    fault = "" if schemas is None else schemas.fault(draft)
    if schemas is None or not fault:
        return draft, None
    if schemas.otherwise == "refuse":
        port.count("schema_refuse")
        return draft, fault
    if schemas.otherwise == "park":
        port.count("schema_park")
        return schemas.parked(draft, fault), None
    port.count("schema_count")
    return draft, None


def foreseen(port: Port, draft: Draft) -> str:
    """Return why an event would be refused if it were published; "" if it would not."""
    schemas = schemas_of(port)
    if schemas is None or schemas.otherwise != "refuse":
        return ""
    return schemas.fault(draft)


def row_refusal(port: Port, draft: Draft) -> str:
    """Return why an event cannot be appended; "" if it can. Rows of a stream have fixed places
    which another event cannot take, so an event that would be parked is refused."""
    schemas = schemas_of(port)
    fault = "" if schemas is None else schemas.fault(draft)
    if schemas is None or not fault:
        return ""
    if schemas.otherwise == "count":
        port.count("schema_count")
        return ""
    port.count("schema_refuse")
    return fault
