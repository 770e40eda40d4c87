"""MQTT messages as events, and events as MQTT messages.

Attributes are, where names meet the first wins: ``topic``; the user properties; the scalar fields
of a payload that is a JSON object. The payload itself stays as it is. A user property is a text, so
one that is a JSON number, true, false or null is that value, and one in double quotes a JSON text:
`"5"` is the text 5, and a text with line ends comes so.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import mqtt5

from canopy.feeds.context import FORBIDDEN
from canopy.feeds.drafts import BadEventError, check_fields, check_size, set_type, split_fields
from canopy.feeds.jsontext import JSON, is_json_type, parse
from canopy.gateway.mqtt.topics import TOPIC
from matching import Value
from overlay.client import Draft, Event

JSON_VALUE: Final = re.compile(r'-?\d[\d.eE+-]*|true|false|null|".*"', re.DOTALL)
BAD_TOPIC: Final = re.compile(f"[+#]|{FORBIDDEN.pattern}")
TEXT_MOST: Final = 65_535
"""Bytes of a text of MQTT."""

PROPERTIES: Final = 128
"""User properties of one message. Guess."""


def draft_of(
    topic: str, payload: bytes, content_type: str | None, properties: list[tuple[str, str]]
) -> Draft:
    """The event in a message. Raises BadEventError."""
    if len(properties) > PROPERTIES:
        raise BadEventError(f"more than {PROPERTIES} user properties")
    named: dict[str, Any] = {}
    for name, text in properties:
        if name in named:
            raise BadEventError(f"the user property {name[:60]!r} is given twice")
        if not name or name.startswith("$"):
            raise BadEventError(f"the user property {name[:60]!r}: such a name is reserved")
        named[name] = _value(text)
    fields = _fields(payload, content_type or "")
    if fields and not content_type:
        content_type = JSON
    attributes, rest = split_fields(fields)
    found: dict[str, Value | None] = {**attributes, **named, TOPIC: topic}
    check_fields(found)
    set_type(found, rest)
    draft = Draft(found, payload=payload, payload_type=content_type or "")
    check_size(draft)
    return draft


def topic_of(event: Event) -> str:
    """The topic under which an event is sent: its own, else by its type."""
    topic = event.attributes.get(TOPIC)
    if not isinstance(topic, str) or not topic:
        topic = f"events/{event.attributes.get('type') or 'event'}"
    return BAD_TOPIC.sub("_", topic)[:1024]


def properties_of(event: Event) -> list[tuple[str, str]]:
    """An event's attributes as user properties. Those of a JSON payload are among them, since
    clients look at one or the other. What MQTT cannot carry is left out: a text that is too long, a
    name with characters that it forbids."""
    found = [
        (name, _text(value))
        for name, value in event.attributes.items()
        if name != TOPIC and value is not None
    ]
    return [(name, text) for name, text in found if _fits(name) and _fits(text)]


def publish_packet(
    event: Event, qos: mqtt5.QoS, packet_id: int | None, subscription_id: int | None
) -> mqtt5.PublishPacket:
    """The message for an event."""
    kind = event.payload_type
    return mqtt5.PublishPacket(
        topic_of(event),
        event.payload,
        qos=qos,
        packet_id=packet_id,
        content_type=kind if kind and _fits(kind) else None,
        subscription_ids=[] if subscription_id is None else [subscription_id],
        user_properties=properties_of(event),
    )


def _fields(payload: bytes, content_type: str) -> dict[str, Any]:
    """The fields of a payload that is a JSON object; a sender need not say that it is one."""
    if content_type and not is_json_type(content_type):
        return {}
    if not payload.lstrip().startswith(b"{"):
        return {}
    try:
        value = parse(payload)
        if not isinstance(value, dict):
            return {}
        check_fields(value)
    except BadEventError:
        if is_json_type(content_type):
            raise
        return {}
    return value


def _value(text: str) -> Value | None:
    if JSON_VALUE.fullmatch(text):
        try:
            found = parse(text.encode("utf-8", "surrogatepass"))
        except BadEventError:
            return text
        return found if found is None or isinstance(found, bool | int | float | str) else text
    return text


def _text(value: Value) -> str:
    if isinstance(value, str):
        if FORBIDDEN.search(value):  # as a JSON text, in which they are escaped
            return json.dumps(value).replace("\x7f", "\\u007f")
        return json.dumps(value, ensure_ascii=False) if JSON_VALUE.fullmatch(value) else value
    return json.dumps(value)


def _fits(text: str) -> bool:
    """Whether MQTT carries this text as it is."""
    return not FORBIDDEN.search(text) and len(text.encode()) <= TEXT_MOST
