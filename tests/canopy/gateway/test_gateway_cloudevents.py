"""CloudEvents leave as they came, in whichever mode that was; oracle is the specification.

The senders here are written from the JSON format, the batch format and the HTTP binding 1.0.2.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from canopy.client.publication import Drafting
from canopy.feeds.cloudevents import cloudevent_draft
from canopy.feeds.structured import cloudevent_object
from canopy.gateway.access import RequestRefused
from canopy.gateway.events import drafts_of
from overlay.client import Draft

STRUCTURED = "application/cloudevents+json; charset=utf-8"
BATCH = "application/cloudevents-batch+json"
BASE: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}

TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufdd0\ufdef\ufffe\uffff"),
    max_size=6,
).filter(
    lambda text: not any(ord(c) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(c) <= 0xFDEF for c in text)
)
NUMBER = st.integers(-(2**31), 2**31 - 1)
NAMES = st.sampled_from(["mag", "partitionkey", "traceparent", "n1", "x" * 25])
JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e9, 1e9) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            NAMES | st.sampled_from(["deep", "Größe", "$x", "", "type"]), inner, max_size=3
        )
    ),
    max_leaves=5,
)
JSON_TYPES = ["application/json", "application/vnd.acme+json", "Text/JSON; charset=utf-8"]
TEXT_TYPES = ["text/plain", "application/xml", "application/yaml", "image/svg+xml; a=b"]


@st.composite
def cloudevents(draw: st.DrawFn) -> dict[str, Any]:
    """A valid CloudEvent in the JSON format."""
    made = dict(BASE)
    made["id"] = draw(TEXT.filter(bool))
    made["source"] = draw(
        st.sampled_from(["/s", "urn:uuid:1", "https://a.b:8/c?d#e", "1-555-123", "?"])
    )
    for name, value in (
        ("subject", TEXT.filter(bool)),
        ("time", st.sampled_from(["2026-02-28T23:59:60Z", "1990-12-31t23:00:00.52+01:30"])),
        ("dataschema", st.just("https://a.b/c#d")),
    ):
        if draw(st.booleans()):
            made[name] = draw(value)
    made |= draw(st.dictionaries(NAMES, st.booleans() | NUMBER | TEXT, max_size=3))
    match draw(st.sampled_from(["none", "json", "text", "bytes"])):
        case "json":
            kind = draw(st.sampled_from(["", *JSON_TYPES]))
            made |= {"data": draw(JSON_VALUE), **({"datacontenttype": kind} if kind else {})}
        case "text":
            made |= {"data": draw(TEXT), "datacontenttype": draw(st.sampled_from(TEXT_TYPES))}
        case "bytes":
            kind = draw(st.sampled_from(["", "image/png", "text/plain", *JSON_TYPES]))
            raw = draw(st.binary(max_size=4) | st.just(b'{"mag": 1}'))
            made["data_base64"] = base64.b64encode(raw).decode()
            made |= {"datacontenttype": kind} if kind else {}
        case _ if draw(st.booleans()):
            made["datacontenttype"] = draw(st.sampled_from([*JSON_TYPES, *TEXT_TYPES]))
    return made


def taken(headers: dict[str, str], body: bytes) -> list[Draft]:
    return drafts_of(headers, body, Drafting())


def left(draft: Draft) -> dict[str, Any]:
    """The event as a follower gets it: JSON, parsed by another parser's rules."""
    whole = (draft.attributes, draft.payload, draft.payload_type)
    shown = cloudevent_object(*whole, "n.1.1", "canopy:/nodes/n", 0.0)
    found: dict[str, Any] = json.loads(json.dumps(shown, allow_nan=False))
    return found


def encoded(value: Any) -> str:
    """A header's value (HTTP binding, 3.1.3.2)."""
    text = json.dumps(value) if isinstance(value, bool | int) else value
    return re.sub(
        r"[^!#$&-~]", lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text
    )


def binary(event: dict[str, Any]) -> tuple[dict[str, str], bytes]:
    """The headers and the body of an event in binary mode."""
    body = base64.b64decode(event.get("data_base64", ""))
    kind = event.get("datacontenttype")
    if "data" in event:
        kind = kind or "application/json"
        is_json = kind.partition(";")[0].lower().endswith("json")
        body = (json.dumps(event["data"]) if is_json else event["data"]).encode()
    members = ("data", "data_base64", "datacontenttype")
    headers = {f"ce-{name}": encoded(v) for name, v in event.items() if name not in members}
    return headers | ({"content-type": kind} if kind else {}), body


def exactly(value: Any) -> Any:
    """A form in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {name: exactly(inner) for name, inner in value.items()}
    return [exactly(inner) for inner in value] if isinstance(value, list) else (type(value), value)


@settings(max_examples=150, deadline=None)
@example({**BASE, "partitionkey": "pk-1", "data": {"mag": 7}})
@example({**BASE, "partitionkey": "pk-1", "data": {"partitionkey": "pk-1", "n": 1}})
@example({**BASE, "mag": 1, "data": {"mag": True}})
@example({**BASE, "partitionkey": "pk-1", "datacontenttype": "application/xml"})
@example({**BASE, "datacontenttype": "application/vnd.acme+json", "data": [1]})
@example({**BASE, "data": None})
@example({**BASE, "data": {}})
@given(cloudevents())
def test_a_cloudevent_leaves_as_it_came(event: dict[str, Any]) -> None:
    sent = json.dumps(event).encode()
    (one,) = taken({"content-type": STRUCTURED}, sent)
    first, second = taken({"content-type": BATCH}, b"[" + sent + b"," + sent + b"]")
    for draft in (one, first, second):
        assert exactly(left(draft)) == exactly(event)


@settings(max_examples=100, deadline=None)
@given(cloudevents())
def test_a_cloudevent_of_binary_mode_leaves_with_the_same_context_and_data(
    event: dict[str, Any],
) -> None:
    headers, body = binary(event)
    try:
        (draft,) = taken(headers, body)
    except RequestRefused:  # the sender's bytes are not the JSON that its type promises
        assert "data_base64" in event
        return
    found = left(draft)
    again_headers, again_body = binary(found)
    if not body:
        found.pop("datacontenttype", None)
        headers.pop("content-type", None)
        again_headers.pop("content-type", None)
    kind = {} if "content-type" in headers else {"content-type": again_headers.get("content-type")}
    assert again_headers == headers | {n: v for n, v in kind.items() if v}
    if "json" in headers.get("content-type", "").lower() and body:
        assert exactly(json.loads(again_body)) == exactly(json.loads(body))
    else:
        assert again_body == body


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"id": ""}, "no id"),
        ({"id": 7}, "text"),
        ({"source": "not a uri"}, "RFC 3986"),
        ({"source": "http://[::1"}, "RFC 3986"),
        ({"source": ":x"}, "RFC 3986"),
        ({"source": "/%zz"}, "RFC 3986"),
        ({"source": "/größe"}, "RFC 3986"),
        ({"dataschema": "/relative"}, "RFC 3986"),
        ({"type": ""}, "no type"),
        ({"subject": ""}, "empty"),
        ({"subject": "two\nlines"}, "U+000A"),
        ({"subject": "\ufffe"}, "U+FFFE"),
        ({"time": "yesterday"}, "RFC 3339"),
        ({"time": "2026-02-29T00:00:00Z"}, "RFC 3339"),
        ({"time": "2026-01-01 00:00:00Z"}, "RFC 3339"),
        ({"time": "2026-01-01T00:00:00"}, "RFC 3339"),
        ({"time": 17}, "text"),
        ({"datacontenttype": "json"}, "media type"),
        ({"specversion": "0.3"}, "1.0"),
        ({"partitionKey": "x"}, "a to z"),
        ({"a_b": "x"}, "a to z"),
        ({"": "x"}, "a to z"),
        ({"x": 1.5}, "32 bits"),
        ({"x": 2**31}, "32 bits"),
        ({"x": [1]}, "32 bits"),
        ({"x": "\x85"}, "U+0085"),
        ({"datacontenttype": "application/xml", "data": {"a": 1}}, "no text"),
        ({"data": 1, "data_base64": "AA=="}, "both"),
        ({"data_base64": "A"}, "Base64"),
    ],
)
def test_what_the_specification_forbids_is_refused_with_its_reason(
    more: dict[str, Any], says: str
) -> None:
    for kind, body in ((STRUCTURED, {**BASE, **more}), (BATCH, [{**BASE, **more}])):
        with pytest.raises(RequestRefused) as refused:
            taken({"content-type": kind}, json.dumps(body).encode())
        assert refused.value.status == 400
        assert says in refused.value.reason


def test_null_is_as_absent() -> None:
    event = {**BASE, "subject": None, "ext": None, "time": None, "data_base64": None}
    (draft,) = taken({"content-type": STRUCTURED}, json.dumps(event).encode())
    assert left(draft) == BASE


HEADERS = {f"ce-{name}": value for name, value in BASE.items()}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),  # the specification's own example
        ("%e2%82%ac", "€"),
        ('"a \\"b\\" c"', 'a "b" c'),
        ('"a%20b"', "a b"),
        ("%2520", "%20"),
        ("%41", "A"),
        ("%C0%A0", None),
        ("%FF", None),
        ("%0A", None),
        ("\xe9", None),
    ],
)
def test_the_values_of_headers(value: str, text: str | None) -> None:
    headers = {**HEADERS, "ce-subject": value}
    if text is None:
        with pytest.raises(RequestRefused):
            taken(headers, b"")
    else:
        (draft,) = taken(headers, b"")
        assert draft.attributes["subject"] == text


def test_the_mode_is_that_of_the_content_type() -> None:
    sent = json.dumps({**BASE, "data": {"mag": 1}}).encode()
    (draft,) = taken({**HEADERS, "content-type": STRUCTURED}, sent)  # headers may be there as well
    assert draft.attributes["mag"] == 1
    for headers, status in (
        ({**HEADERS, "content-type": "application/cloudevents+avro"}, 415),
        ({**HEADERS, "ce-datacontenttype": "text/plain"}, 400),
        ({**HEADERS, "ce-Bad_Name".lower(): "x"}, 400),
        ({**HEADERS, "ce-data": "x"}, 400),
        ({**HEADERS, "content-type": "application/json"}, 400),
    ):
        with pytest.raises(RequestRefused) as refused:
            taken(headers, b"{" if status == 400 else sent)
        assert refused.value.status == status


def test_the_trace_of_a_request_is_no_data() -> None:
    trace = f"00-{'1' * 32}-{'2' * 16}-01"
    headers = {"content-type": STRUCTURED, "traceparent": trace}
    (draft,) = taken(headers, json.dumps({**BASE, "data": {"mag": 1}}).encode())
    assert left(draft) == {**BASE, "traceparent": trace, "data": {"mag": 1}}


@pytest.mark.parametrize(
    "attributes",
    [
        {"id": 7, "type": "quake", "mag": 5.5, "time": 1_700_000_000_000},
        {"id": "a\nb", "type": "event", "time": "yesterday", "source": "my sensor"},
        {"type": "event", "subject": "", "specversion": "0.3", "datacontenttype": "text/plain"},
    ],
)
def test_another_event_leaves_as_a_valid_one_with_all_that_it_has(
    attributes: dict[str, Any],
) -> None:
    found = left(Draft(attributes))
    (again,) = taken({"content-type": STRUCTURED}, json.dumps(found).encode())
    for name, value in attributes.items():
        assert found.get(name) == value or found["data"].get(name) == value or name == "id"
    assert left(again) == found


SCALAR = JSON_VALUE.filter(lambda value: not isinstance(value, list | dict))
PAYLOADS = [
    *((b"", ""), (b'{"a": [1]}', "application/json"), (b"{", "application/json")),
    *((b"\xff", "text/plain"), (b"x", "text/plain"), (b"y", "")),
    *((b"{}", "no type/json"), (b"x", "text"), (b"", "no type"), (b"1", "a/b;canopyform=json")),
    *((b"", "text/plain"), (b"{}", "text/plain;canopyform=json"), (b'{"mag": 0}', "a/json")),
]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text("aA1_é", max_size=3) | NAMES, SCALAR, max_size=4),
    st.sampled_from(PAYLOADS),
)
def test_whatever_is_published_leaves_as_a_valid_one(
    attributes: dict[str, Any], payload: tuple[bytes, str]
) -> None:
    for more in ({}, {"specversion": "1.0"}):
        whole = {"type": "t", **attributes, **more}
        found = left(Draft(whole, *payload))
        taken({"content-type": STRUCTURED}, json.dumps(found).encode())
        data = found.get("data")
        rest = json.loads(found.get("canopyattributes", "{}"))
        everything = {**(data if isinstance(data, dict) else {}), **rest, **found}
        for name, value in whole.items():
            assert exactly(everything[name]) == exactly(value)
        if payload[0] and not isinstance(data, dict):
            sent = base64.b64decode(found.get("data_base64", ""))
            assert payload[0] in (sent, str(data).encode())


@pytest.mark.parametrize("character", ["\x01", "\x7f", "\x85", "\ufdd0", "\U0001fffe"])
@pytest.mark.parametrize("place", ["type", "text", "name"])
def test_what_no_context_attribute_may_have_is_escaped(place: str, character: str) -> None:
    """The rest of an event with bytes is JSON in a context attribute, which is allowed."""
    wrong = f"x{character}y"
    attributes = {"a": 1, **({"b": wrong} if place == "text" else {})}
    attributes |= {wrong: 2} if place == "name" else {}
    kind = wrong if place == "type" else "application/octet-stream"
    left = cloudevent_object(attributes, b"\x00\x01", kind, "n.1.1", "canopy:/nodes/n", 0.0)
    assert cloudevent_draft(left).payload == b"\x00\x01"
    kept = json.loads(left["canopyattributes"])
    assert wrong in (kept.get("$payload_type"), kept.get("b"), *kept)
