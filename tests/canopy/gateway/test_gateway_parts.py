"""The gateway's parts without IO: topic filters, messages, CloudEvents, tokens, origins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mqtt5
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from canopy.client.errors import failure
from canopy.client.publication import Drafting
from canopy.feeds.cloudevents import cloudevent_draft
from canopy.feeds.context import FORBIDDEN
from canopy.feeds.structured import cloudevent_object
from canopy.gateway.access import GatewayRules, RequestRefused
from canopy.gateway.events import drafts_of
from canopy.gateway.feeds import Item, positions_of, refusal
from canopy.gateway.http.paths import written
from canopy.gateway.mqtt.messages import message_of, publish_packet
from canopy.gateway.mqtt.packets import packet_size
from canopy.gateway.mqtt.topics import TopicFilterError, parse_filter
from canopy.wire.token_file import TokenFile, TokensError
from matching import compile_selector
from overlay.client import Event

LEVEL = st.sampled_from(["a", "b", "%", "_", "a%", "'", "\\", "", "$x"])


def spec_matches(filter_: list[str], topic: list[str]) -> bool:
    """Section 4.7 of MQTT 5.0, level by level."""
    if topic[0].startswith("$") and filter_[0] in ("+", "#"):
        return False
    for place, level in enumerate(filter_):
        if level == "#":
            return True
        if place >= len(topic) or level not in ("+", topic[place]):
            return False
    return len(topic) == len(filter_)


@settings(max_examples=100, deadline=None)
@example(["a", "+"], False, ["a", "b", "c"])  # + is one level
@given(
    st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=4),
    st.booleans(),
    st.lists(LEVEL, min_size=1, max_size=5),
)
def test_topic_filters_mean_what_mqtt_says(levels: list[str], deep: bool, topic: list[str]) -> None:
    wanted = [*levels, "#"] if deep else levels
    text = "/".join(wanted)
    if text.startswith("$") or not text:
        return
    found = parse_filter(text)
    name = "/".join(topic)
    admitted = compile_selector(found.selector).matches({"topic": name})
    if found.admits is not None:
        admitted = admitted and found.admits(name)
    assert admitted == spec_matches(text.split("/"), name.split("/"))


@pytest.mark.parametrize("text", ["a/#/b", "a+", "a/b#", "$where/", "$SYS/x"])
def test_bad_topic_filters_are_refused(text: str) -> None:
    with pytest.raises(TopicFilterError):
        parse_filter(text)


def test_a_selector_in_a_topic_filter_may_have_its_operators() -> None:
    found = parse_filter("$where/a %2B 1 > 3 AND b LIKE '%25' OR c = '%2523'")
    assert found.selector == "a + 1 > 3 AND b LIKE '%' OR c = '%23'"


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(
        ["5", "true", '"x"', "-1e3", "null", "", "two\nlines", "\0\x7f\x9f\ufdd0\uffff"]
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["x", "y", "id", "größe"]), VALUES), st.binary(max_size=9))
def test_attributes_survive_a_round_trip_as_user_properties(
    attributes: dict[str, Any], payload: bytes
) -> None:
    attributes = {"type": "note", "topic": "t/1", **attributes}
    event = Event("n", 1, 1, 0.0, attributes, payload, "application/octet-stream")
    sent = publish_packet(event, mqtt5.QoS.AT_LEAST_ONCE, 7, None).write()
    assert packet_size(sent) + 2 == len(sent) or len(sent) > 128
    packet, size = mqtt5.read(memoryview(sent))
    assert size == len(sent)
    assert isinstance(packet, mqtt5.PublishPacket)
    assert not any(FORBIDDEN.search(text) for pair in packet.user_properties for text in pair)
    got = message_of(packet.topic, packet.payload, packet).draft
    assert got.attributes == attributes
    assert {name: type(value) for name, value in got.attributes.items()} == {
        name: type(value) for name, value in attributes.items()
    }
    assert (got.payload, got.payload_type) == (payload, "application/octet-stream")


def test_what_mqtt_cannot_carry_is_left_out_and_ends_no_subscriber() -> None:
    fields = {"long": "x" * 65_536, "bad\nname": 1, "b": 2, "topic": "a\0+#\n/b", "type": "t"}
    event = Event("n", 1, 1, 0.0, fields, b"", "text/plain; x=" + "y" * 65_536)
    packet, _ = mqtt5.read(
        memoryview(publish_packet(event, mqtt5.QoS.AT_MOST_ONCE, None, None).write())
    )
    assert isinstance(packet, mqtt5.PublishPacket)
    assert packet.topic == "a____/b"
    assert packet.user_properties == [("b", "2"), ("type", "t")]
    assert packet.content_type is None


def test_fields_of_a_json_payload_are_attributes_and_user_properties_win() -> None:
    payload = b'{"temp": 21.5, "unit": "F", "deep": {"a": 1}}'
    sent = mqtt5.PublishPacket(topic="s/1", payload=payload, user_properties=[("unit", "C")])
    found = message_of("s/1", payload, sent).draft
    assert found.attributes == {"temp": 21.5, "unit": "C", "topic": "s/1", "type": "event"}
    assert found.payload == payload


CLOUDEVENTS: list[dict[str, Any]] = [
    {"id": "1", "source": "/s", "type": "t", "data": {"mag": 5.5, "deep": {"a": [1]}}},
    {"id": "1", "source": "/s", "type": "t", "subject": "x", "time": "2026-01-01T00:00:00Z"},
    {
        "id": "1",
        "source": "/s",
        "type": "t",
        "ext": 5,
        "datacontenttype": "text/plain",
        "data": "é",
    },
    {"id": "1", "source": "/s", "type": "t", "data_base64": "AAEC", "flag": True},
    {"id": "1", "source": "/s", "type": "t", "data": [1, 2, {"a": None}]},
]


@pytest.mark.parametrize("given_", CLOUDEVENTS)
def test_a_cloudevent_leaves_as_it_came(given_: dict[str, Any]) -> None:
    whole = {"specversion": "1.0", **given_}
    draft = cloudevent_draft(whole)
    shown = cloudevent_object(
        draft.attributes, draft.payload, draft.payload_type, "n.1.1", "canopy:/nodes/n", 0.0
    )
    again = cloudevent_draft(json.loads(json.dumps(shown)))
    added = {"time", "datacontenttype"} - whole.keys()
    kept = {name: value for name, value in again.attributes.items() if name not in added}
    assert kept == {n: v for n, v in draft.attributes.items() if n not in added}
    assert again.payload == draft.payload
    assert {name: shown[name] for name in whole if name in shown} == whole


def test_attributes_beside_data_that_is_no_object_are_not_lost() -> None:
    attributes = {"id": "1", "type": "t", "Größe": 1.5, "ok": 3}
    shown = cloudevent_object(attributes, b"\0", "x/y", "n.1.1", "canopy:/nodes/n", 0.0)
    assert shown["ok"] == 3
    assert json.loads(shown["canopyattributes"]) == {"Größe": 1.5}


def test_cloudevents_in_binary_mode_have_their_context_in_headers() -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "7", "ce-type": "t", "ce-source": "/a%2520b"}
    headers["content-type"] = "application/json"
    (draft,) = drafts_of(headers, b'{"mag": 5}', Drafting())
    assert draft.attributes["source"] == "/a%20b"
    assert draft.attributes["mag"] == 5


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b'[{"a": 1}, {"a": NaN}]', 400),
        ("application/json", b'{"a": 1, "a": 2}', 400),
        ("application/json", b"[]", 400),
        ("application/x-ndjson", b'{"a": 1}\nx\n', 400),
        ("application/cloudevents+json", b'{"a": 1}', 400),
        ("application/cloudevents-batch+json", b'{"specversion": "1.0"}', 400),
        ("text/plain", b"hello", 415),
        ("", b"hello", 415),
    ],
)
def test_a_request_with_one_bad_event_is_refused_whole(kind: str, body: bytes, status: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        drafts_of({"content-type": kind}, body, Drafting())
    assert refused.value.status == status


def test_tokens_are_kept_as_hashes_in_a_private_file(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    secret = file.add("phone", ("subscribe",), subscribe="a = 1")
    assert secret not in file.path.read_text()
    assert file.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(TokensError, match="already"):
        file.add("phone", ("publish",))
    other = TokenFile(file.path)
    found = other.find(secret)
    assert found is not None
    assert found.name == "phone"
    assert other.find(secret + "x") is None
    file.remove("phone")
    assert other.find(secret) is None  # read again, since it has changed
    file.add("late", ("publish",), lifetime=-1.0)
    assert all(one.is_expired(one.created) for one in file.all())
    os.chmod(file.path, 0o644)
    with pytest.raises(TokensError, match="chmod 600"):
        other.find(secret)


def test_what_a_token_allows_is_intersected(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "tokens.json")
    access = GatewayRules(file)
    grant = access.grant(file.add("phone", ("subscribe",), subscribe="secret = FALSE"))
    confined = compile_selector(grant.confined("TRUE OR a = 1"))
    assert confined.matches({"secret": False})
    assert not confined.matches({"secret": True, "a": 1})
    assert not confined.matches({"a": 1})  # unknown does not permit
    with pytest.raises(RequestRefused, match="publish"):
        grant.check("publish")
    assert access.is_still_good(grant)
    file.remove("phone")
    assert not access.is_still_good(grant)
    with pytest.raises(RequestRefused) as refused:
        access.grant("")
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8470", "", 0),
        ("localhost:8470", "http://localhost:8470", 0),
        ("[::1]:8470", "", 0),
        ("evil.example:8470", "", 403),  # DNS rebinding
        ("", "", 403),
        ("127.0.0.1:8470", "http://evil.example", 403),
        ("127.0.0.1:8470", "null", 403),
        ("127.0.0.1:8470", "http://127.0.0.1:8471", 403),
        ("127.0.0.1:8470", "https://good.example", 0),
    ],
)
def test_pages_of_others_are_refused(host: str, origin: str, status: int) -> None:
    access = GatewayRules(None, ["https://good.example/"], ["127.0.0.1"])
    if status:
        with pytest.raises(RequestRefused) as refused:
            access.check_browser(host, origin)
        assert refused.value.status == status
    else:
        access.check_browser(host, origin)


def test_server_sent_events_are_one_line_each() -> None:
    item = Item("event", "n.1.1", {"text": "a\nb\r\nc\u2028"})
    lines = written(item).decode().split("\n")
    assert lines[0] == "id: n.1.1"
    assert json.loads(lines[1].removeprefix("data: ")) == item.data
    assert lines[2:] == ["", ""]


def test_positions_of_a_stream_are_checked() -> None:
    assert positions_of("0:17,12:4") == {0: 17, 12: 4}
    whose = positions_of("3f9a.2@0:17,12:4.1")
    assert (whose, whose.stream, whose.losses) == ({0: 17, 12: 4}, "3f9a.2", {0: 0, 12: 1})
    for text in ("x", "0:", "0:1,", "0:1;1:2", "0:99999999999999999999"):
        with pytest.raises(RequestRefused):
            positions_of(text)


def test_events_belong_to_the_trace_of_their_request_unless_they_name_another() -> None:
    one, other = (f"00-{digit * 32}-{digit * 16}-01" for digit in "12")
    body = json.dumps([{"a": 1}, {"a": 2, "traceparent": other}]).encode()
    headers = {"content-type": "application/json", "traceparent": one}
    found = drafts_of(headers, body, Drafting())
    assert [each.attributes["traceparent"] for each in found] == [one, other]
    for bad in ("", "00-xyz", f"{one}-more"):
        (plain,) = drafts_of(headers | {"traceparent": bad}, b'{"a": 1}', Drafting())
        assert "traceparent" not in plain.attributes


@pytest.mark.parametrize(("code", "status"), [("no-majority", 503), ("in-doubt", 504)])
def test_a_stream_without_a_majority_is_not_the_client_s_fault(code: str, status: int) -> None:
    """Whoever asks over HTTP, WebSockets or MQTT is told in the words of the node."""
    said = "no majority: 1 of 2 replicas of quakes answer"
    refused = refusal(failure(code, said))
    assert (refused.status, refused.reason) == (status, said)
