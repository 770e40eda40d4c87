"""MQTT messages as events, and events as MQTT messages.

An event's attributes come from ``topic``, the user properties, and the scalar fields of a payload
that is a JSON object; if a name occurs twice the first wins. The payload stays unchanged. The text
of a user property that is a JSON number, true, false or null becomes that value, and a text in
double quotes is decoded as a JSON text: `"5"` is the text 5, and texts with line ends are sent so.

A property that cannot be an attribute is left out, the message is published without it, and its
sender is told. Further parts of a message that MQTT passes on are the attributes ``mqtt…``
(`PASSED`), which become properties again when the event leaves.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from typing import Final

import mqtt5
import msgspec

from canopy.feeds.context import FORBIDDEN
from canopy.feeds.drafts import (
    BadEventError,
    Faulty,
    check_size,
    is_attribute,
    is_scalar,
    show,
)
from canopy.feeds.jsontext import JSON, is_json_type, parse
from canopy.feeds.lines import MARK
from canopy.gateway.mqtt.packet_check import is_wild
from canopy.gateway.mqtt.topics import GAP, TOPIC
from matching import Value, check_value
from overlay.client import Draft, Event

JSON_VALUE: Final = re.compile(r'-?\d[\d.eE+-]*|true|false|null|".*"', re.DOTALL)
BAD_TOPIC: Final = re.compile(f"[+#]|{FORBIDDEN.pattern}")
TEXT_MOST: Final = 65_535
"""The largest text of MQTT, in bytes."""

RESPONSE: Final = "mqttresponsetopic"
CORRELATION: Final = "mqttcorrelation"
EXPIRY: Final = "mqttexpiry"
FORMAT: Final = "mqttformat"
PROPERTIES_AS_SENT: Final = "mqttproperties"
PASSED: Final = (RESPONSE, CORRELATION, EXPIRY, FORMAT, PROPERTIES_AS_SENT)
"""Attributes for the parts of a message that MQTT passes on unaltered: the response topic, the
correlation data in Base64, the message expiry interval in seconds, 1 for a payload that is a text,
and the user properties as JSON if the attributes alone would not reproduce them."""

PROPERTIES: Final = 128
"""The most user properties of one message. Guess."""


class TopicError(BadEventError):
    """A topic cannot be passed on; the message says why."""


class MqttEvent(msgspec.Struct, frozen=True):
    """The event in a message. `told`: a text for its sender about parts that became no attribute;
    "": none."""

    draft: Draft
    told: str = ""


def message_of(topic: str, payload: bytes, sent: mqtt5.PublishPacket | mqtt5.Will) -> MqttEvent:
    """Return the event in a message, or in a will. Raises BadEventError."""
    if FORBIDDEN.search(topic):
        raise TopicError("a topic with a character that MQTT forbids, or advises against")
    passed: dict[str, Value] = {}
    if sent.response_topic is not None:
        if FORBIDDEN.search(sent.response_topic) or is_wild(sent.response_topic):
            raise TopicError("a response topic with a character that MQTT forbids")
        passed[RESPONSE] = sent.response_topic
    if sent.correlation_data is not None:
        passed[CORRELATION] = base64.b64encode(sent.correlation_data).decode("ascii")
    if sent.message_expiry_interval is not None:
        passed[EXPIRY] = sent.message_expiry_interval
    if sent.payload_format_indicator:
        passed[FORMAT] = 1
    content_type, properties = sent.content_type, sent.user_properties
    if len(properties) > PROPERTIES:
        raise BadEventError(f"more than {PROPERTIES} user properties")
    texts = [content_type or "", *(text for pair in properties for text in pair)]
    if FORBIDDEN.search("".join(texts)):
        raise BadEventError("a property with a character that MQTT advises against")
    left: dict[str, str] = {}  # why, by name
    named = _named(properties, left)
    fields = _fields(payload, content_type or "", named, left)
    if fields is not None and not content_type:
        content_type = JSON
    own = fields or {}
    if [(name, _text(value)) for name, value in named.items() if value is not None] != properties:
        passed = {**passed, PROPERTIES_AS_SENT: json.dumps(properties, ensure_ascii=False)}
    found: dict[str, Value | None] = {**own, **named, **passed, TOPIC: topic}
    if not isinstance(found.get("type"), str):
        if found.get("type") is not None:
            left["type"] = "it is no text"
        found["type"] = "event"
    draft = Draft(found, payload=payload, payload_type=content_type or "")
    check_size(draft)
    reasons = ", ".join(f"{show(name)} ({why})" if why else name for name, why in left.items())
    return MqttEvent(draft, f"published; no attributes are: {reasons}" if reasons else "")


def _named(properties: list[tuple[str, str]], left: dict[str, str]) -> dict[str, Value | None]:
    """Return the attributes among the user properties; add the others to `left` with the reason."""
    named: dict[str, Value | None] = {}
    for name, text in properties:
        if name in named or name in left:
            named.pop(name, None)
            left[name] = "given twice"
        elif not is_attribute(name, text) or name in PASSED:
            left[name] = "the name is reserved"
        else:
            named[name] = _value(text)
    return named


def topic_of(event: Event) -> str:
    """Return the topic under which an event is sent: its attribute `topic`, else one made of its
    type."""
    topic = event.attributes.get(TOPIC)
    if not isinstance(topic, str) or not topic:
        topic = f"events/{event.attributes.get('type') or 'event'}"
    topic = BAD_TOPIC.sub("_", topic)
    if len(topic) * 4 <= TEXT_MOST:
        return topic
    return topic.encode()[:TEXT_MOST].decode("utf-8", "ignore")


def properties_of(event: Event) -> list[tuple[str, str]]:
    """Return an event's user properties: those with which it was published, in their order, and its
    attributes, those of a JSON payload included, since clients look at one or the other. Attributes
    that MQTT cannot carry are left out: texts that are too long, names with characters that it
    forbids."""
    came = _as_sent(event)
    names = {name for name, _ in came}
    found = [
        (name, _text(value))
        for name, value in event.attributes.items()
        if name != TOPIC and value is not None and name not in names and not _is_passed(name, value)
    ]
    return [*came, *((name, text) for name, text in found if _fits(name) and _fits(text))]


def remaining(event: Event, now: float) -> int | None:
    """Return for how many seconds an event may still be passed on: the expiry interval of its
    message minus the time since it was published, by the wall clock (MQTT 5.0, 3.3.2.3.3). None:
    for ever."""
    asked = event.attributes.get(EXPIRY)
    if not _is_passed(EXPIRY, asked) or not isinstance(asked, int):
        return None
    waited = max(0.0, now - event.time) if event.time else 0.0
    return max(0, math.ceil(asked - waited))


def publish_packet(
    event: Event,
    qos: mqtt5.QoS,
    packet_id: int | None,
    subscription_id: int | None,
    expiry: int | None = None,
) -> mqtt5.PublishPacket:
    """Return the PUBLISH packet for an event. `expiry`: see `remaining`."""
    kind = event.payload_type
    passed = {name: value for name, value in event.attributes.items() if _is_passed(name, value)}
    correlation = passed.get(CORRELATION)
    topic = topic_of(event)
    return mqtt5.PublishPacket(
        topic if topic != GAP else "_gap",  # the gateway's own, which no publisher imitates
        event.payload,
        qos=qos,
        packet_id=packet_id,
        content_type=kind if kind and _fits(kind) else None,
        subscription_ids=[] if subscription_id is None else [subscription_id],
        user_properties=properties_of(event),
        response_topic=passed.get(RESPONSE),  # type: ignore[arg-type]
        correlation_data=None if correlation is None else _binary(correlation),
        message_expiry_interval=expiry,
        payload_format_indicator=1 if FORMAT in passed else 0,
    )


def _is_passed(name: str, value: object) -> bool:
    """Return whether an attribute becomes a property of MQTT other than a user property."""
    match name, value:
        case "mqttresponsetopic", str(topic):
            return _fits(topic) and not is_wild(topic)
        case "mqttcorrelation", str():
            return _binary(value) is not None
        case "mqttexpiry", int():
            return value is not True and 0 <= value < 1 << 32
        case "mqttformat", 1:
            return True
        case "mqttproperties", str(text):
            return _pairs(text) is not None
    return False


def _binary(value: object) -> bytes | None:
    """Decode the attribute of correlation data; None if it is invalid."""
    try:
        found = base64.b64decode(str(value), validate=True)
    except (binascii.Error, ValueError):
        return None
    return found if len(found) <= TEXT_MOST else None


def _as_sent(event: Event) -> list[tuple[str, str]]:
    text = event.attributes.get(PROPERTIES_AS_SENT)
    return (_pairs(text) or []) if isinstance(text, str) else []


def _pairs(text: str) -> list[tuple[str, str]] | None:
    """Decode the attribute of user properties; None if it is invalid."""
    try:
        found = msgspec.json.decode(text, type=list[tuple[str, str]])
    except (msgspec.DecodeError, UnicodeError):
        return None
    return found if all(_fits(part) for pair in found for part in pair) else None


def _fields(
    payload: bytes, content_type: str, named: Mapping[str, object], left: dict[str, str]
) -> dict[str, Value | None] | None:
    """Return the attributes in a payload that is a JSON object, without those in `named`; None if
    it is no object. The content type may be missing. Fields that cannot be attributes are added to
    `left` with the reason. Raises BadEventError for a payload that is declared as JSON and is
    not."""
    if content_type and not is_json_type(content_type):
        return None
    text = payload.removeprefix(MARK)
    if not text.lstrip().startswith(b"{") and not content_type:
        return None
    try:
        value = parse(text, loosely=True)
    except BadEventError as error:
        if content_type:
            raise
        left["$payload"] = str(error)
        return None
    if not isinstance(value, dict):
        return None
    found: dict[str, Value | None] = {}
    twice = value.twice if isinstance(value, Faulty) else frozenset()
    for name, field in value.items():
        if not is_attribute(name, field) or name in named or name in left:
            continue
        why = check_value(name) or (None if field is None else check_value(field))
        if name in twice:
            why = "given twice"
        elif name in PASSED:
            why = "the name is reserved"
        if why is None:
            found[name] = field
        else:
            left[name] = why
    return found


def _value(text: str) -> Value | None:
    if JSON_VALUE.fullmatch(text):
        try:
            found = parse(text.encode("utf-8", "surrogatepass"))
        except BadEventError:
            return text
        if found is None or (is_scalar(found) and check_value(found) is None):
            return found  # type: ignore[no-any-return]
    return text


def _text(value: Value) -> str:
    if isinstance(value, str):
        if FORBIDDEN.search(value):  # as a JSON text, in which they are escaped
            return json.dumps(value).replace("\x7f", "\\u007f")
        return json.dumps(value, ensure_ascii=False) if JSON_VALUE.fullmatch(value) else value
    return json.dumps(value)


def _fits(text: str) -> bool:
    """Return whether MQTT can carry this text unchanged."""
    return not FORBIDDEN.search(text) and len(text.encode()) <= TEXT_MOST
