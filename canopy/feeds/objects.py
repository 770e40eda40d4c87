"""Deliveries as the JSON objects that `canopy sub --json`, the TUI and the gateway write."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from canopy.feeds.drafts import BadEventError, check_nested, id_text
from canopy.feeds.jsontext import is_json_type, parse

if TYPE_CHECKING:
    from overlay.client import Delivery, Event, StreamEvent
    from overlay.stream_client import GroupRow


def delivery_object(delivery: Delivery) -> dict[str, Any]:
    """Return the JSON object of `sub --json` for one event of a subscription."""
    event = delivery.event
    found: dict[str, Any] = {
        "id": id_text(event.attributes.get("id")),
        "event": event.identity,
        "subscription": delivery.subscription,
        "type": event.attributes.get("type"),
        "time": event.time,
        "latency_ms": round(delivery.latency_ms, 3),
        "hops": delivery.hops,
        "attributes": event.attributes,
    }
    return found | _payload(event)


def stream_object(stream: str, event: StreamEvent | GroupRow) -> dict[str, Any]:
    """Return the JSON object of `sub --stream --json` for one event."""
    found: dict[str, Any] = {
        "stream": stream,
        "shard": event.shard,
        "offset": event.offset,
        "time": event.time,
        "attributes": event.attributes,
    }
    return found | _payload(event)


def _payload(event: Event | StreamEvent | GroupRow) -> dict[str, Any]:
    """Return the fields of an event's payload, and of its seal if the program has a seal file."""
    found: dict[str, Any] = {}
    if event.payload or event.payload_type:
        found |= payload_fields(event.payload, event.payload_type)
    if seal := getattr(event, "seal", None):
        found["seal"] = seal
    return found


def payload_fields(payload: bytes, kind: str) -> dict[str, Any]:
    """Return a payload as JSON fields: a JSON value or a text if `kind` is such a media type and
    the payload is valid, else Base64."""
    media = kind.partition(";")[0].strip().lower()
    try:
        if is_json_type(kind):
            value = parse(payload)
            check_nested("payload", value)
            return {"payload": value, "payload_type": kind}
        if media.startswith("text/") or media.endswith(("/xml", "+xml")):
            return {"payload": payload.decode("utf-8"), "payload_type": kind}
    except (BadEventError, UnicodeDecodeError):
        pass
    encoded = base64.b64encode(payload).decode("ascii")
    return {"payload_base64": encoded, "payload_type": kind}


def payload_text(payload: bytes) -> str:
    """Return a payload as text: decoded if it is UTF-8, else in Base64."""
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode("ascii")
