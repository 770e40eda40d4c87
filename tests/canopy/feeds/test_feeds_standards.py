"""What docs/reference/formats.md says of each rule of the standards is so: a check for each row."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from canopy.cli.streams.export import CsvFile
from canopy.client.publication import Drafting
from canopy.feeds import FeedEvent, Refusal
from canopy.feeds.objects import delivery_object
from canopy.feeds.raw import raw_object
from canopy.feeds.structured import cloudevent_object
from canopy.gateway.access import RequestRefused
from canopy.gateway.events import drafts_of
from canopy.gateway.feeds import Item
from canopy.gateway.http.paths import written
from overlay.client import Delivery, Draft, Event, StreamEvent
from tests.canopy.feeds.feed_items import exactly, one, read, reason

PAGE: Final = Path(__file__).parent / "standards.md"
Check = Callable[[], None]
CHECKS: Final[dict[str, Check]] = {}


def rule(*names: str) -> Callable[[Check], Check]:
    """Register a check for rows of the page, each `STANDARD RULE`."""

    def register(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return register


def rules() -> set[str]:
    """All rows of the page's tables of standards."""
    text = PAGE.read_text(encoding="utf-8")
    found: set[str] = set()
    for section in text.split("\n## ")[1:]:
        title, *lines = section.splitlines()
        rows = (re.match(r"\| ([^|]+) \|", line) for line in lines)
        found |= {f"{title} {row[1]}" for row in rows if row and row[1] not in ("rule", "---")}
    return found


def attributes(text: str | bytes, format: str = "auto") -> dict[str, Any]:
    return dict(one(text, format).attributes)


def same(text: str, other: str) -> None:
    """Both are the same events."""
    assert read(text) == read(other)


def refused(text: str | bytes, says: str, format: str = "auto") -> None:
    """The second of three lines is refused, for this reason, and nothing else is."""
    raw = text.encode() if isinstance(text, str) else text
    found = read(b'{"n": 0}\n' + raw + b'\n{"n": 1}\n', format)
    assert [type(item) for item in found] == [FeedEvent, Refusal, FeedEvent]
    assert isinstance(found[1], Refusal)
    assert says in found[1].reason


@rule("RFC 4180 2.1", "RFC 4180 2.2")
def rows_end() -> None:
    same("a,b\r\n1,2\r\n3,4\r\n", "a,b\n1,2\n3,4")
    assert len(read("a,b\n1,2\n3,4")) == 2
    file = io.StringIO(newline="")
    writer = CsvFile(file, exact=False)
    writer.add(StreamEvent(0, 1, 2.0, {"a": 'x,"\r\n', "b": 1}))
    writer.end()
    assert file.getvalue() == 'shard,offset,time,a,b\r\n0,1,2.0,"x,""\r\n",1\r\n'
    assert one(file.getvalue()).attributes["a"] == 'x,"\r\n'


@rule("RFC 4180 2.3")
def a_header() -> None:
    assert attributes("a,b\n1,2\n").keys() == {"a", "b", "id", "type"}


@rule("RFC 4180 2.4 fields")
def as_many_fields() -> None:
    kinds = [type(item) for item in read("a,b\n1,2\n1,2,\n1\n3,4\n")]
    assert kinds == [FeedEvent, Refusal, Refusal, FeedEvent]


@rule("RFC 4180 2.4 spaces")
def spaces() -> None:
    found = attributes("a,b\n x ,5\n 5,5\n".replace(" 5,5\n", ""))
    assert found["a"] == " x "
    assert exactly(attributes("a,b\n 5,6\n")["a"]) == (str, " 5")


@rule("RFC 4180 2.5")
def quotes_within() -> None:
    assert attributes('a,b\nthe "best",1\n')["a"] == 'the "best"'


@rule("RFC 4180 2.6")
def quoted_line_ends() -> None:
    found = attributes('"a\r\n,""","b"\r\n"1\r\n2\n3,4","x"\r\n')
    assert found['a\r\n,"'] == "1\r\n2\n3,4"


@rule("RFC 4180 2.7")
def doubled_quotes() -> None:
    assert attributes('a,b\n"x ""y""",1\n')["a"] == 'x "y"'
    kinds = [type(item) for item in read('a,b\n"x" y,1\n3,4\n')]
    assert kinds == [Refusal, FeedEvent]


@rule("RFC 4180 3")
def charset() -> None:
    same("\ufeffa,b\n1,2\n", "a,b\n1,2\n")
    assert "invalid UTF-8" in reason(b"a,b\n1,caf\xe9\n")
    assert "UTF-16" in reason("a,b\n1,2\n".encode("utf-16"))


@rule("RFC 8259 2")
def other_space() -> None:
    same('\t{ "a"\r:\n1 }\r\n', '{"a":1}')
    refused('{"a": 1}\u00a0', "more text")
    refused('{"a":\u20031}', "not JSON")


@rule("RFC 8259 3")
def literals() -> None:
    assert attributes('{"a": true, "b": null}')["b"] is None
    refused('{"a": True}', "not JSON")


@rule("RFC 8259 4")
def unique_names() -> None:
    refused('{"a": 1, "a": 1}', "given twice")
    refused('{"b": [{"a": 1, "a": 2}]}', "given twice")
    refused('{"specversion": "1.0", "id": "1", "id": "2", "source": "/s", "type": "t"}', "twice")
    point = '"type": "Point", "coordinates": [1, 2]'
    for twice in (f"{{{point}, {point}}}", '{"a": 1, "a": 1}'):
        parts = (
            f'"properties": {twice}, "geometry": {{{point}}}',
            f'"properties": {{}}, "geometry": {twice}',
        )
        for part in parts:
            refused(f'{{"type": "Feature", {part}}}', "given twice")
            (found,) = read(
                f'{{"type": "FeatureCollection", "features": [{{"type": "Feature", {part}}}]}}'
            )
            assert isinstance(found, Refusal)
    whole = '{"type": "FeatureCollection", "features": [], "features": []}'
    refused(whole, "given twice")
    (found,) = read('{"$attributes": {"a": 1, "a": 2}}')
    assert isinstance(found, Refusal)


@rule("RFC 8259 6 numbers")
def numbers() -> None:
    for text in ("01", "+1", ".5", "1.", "0x1", "1e"):
        refused(f'{{"a": {text}}}', "not JSON")
    for text in ("NaN", "-Infinity", "[NaN]"):
        refused(f'{{"a": {text}}}', "")


@rule("RFC 8259 6 range")
def number_range() -> None:
    refused('{"a": 18446744073709551615}', "64 bits")
    refused('{"a": 1e400}', "infinity")
    huge = '{"a":[18446744073709551615]}'
    assert one(huge).payload.decode() == huge


@rule("RFC 8259 7")
def control_characters() -> None:
    refused('{"a": "x\ty"}', "not JSON")
    assert attributes('{"a": "x\\ty\\u0000"}')["a"] == "x\ty\0"


@rule("RFC 8259 8.1")
def utf_8() -> None:
    same('\ufeff{"a": 1}', '{"a": 1}')
    refused('\ufeff{"a": 1}', "not JSON")  # not at the beginning
    refused(b'{"a": "\xe9"}', "invalid UTF-8")
    for kind in ("utf-16", "utf-16-le", "utf-32"):
        assert "UTF-16" in reason('{"a": 1}'.encode(kind))
    assert all(not text.startswith("\ufeff") for text in generated())


@rule("RFC 8259 8.2")
def surrogates() -> None:
    refused('{"a": "\\ud800"}', "surrogate")
    assert attributes('{"a": "\\ud83d\\ude00"}')["a"] == "😀"


@rule("RFC 8259 9")
def limits() -> None:
    refused('{"a": ' + "[" * 300 + "]" * 300 + "}", "nested")
    refused("{'a': 1}", "not JSON")
    refused('{"a": 1,}', "not JSON")
    refused('{"a": 1} // it', "not JSON")


def generated() -> list[str]:
    """A value of each kind as it is written: for `sub --json`, `sub --raw` and a follower."""
    hard = {"a": 'é"\\\n\0\x7f\u2028\ufeff', "b": 1e300, "c": -(2**63), "d": None, "e": True}
    event = Event("n", 1, 1, 0.0, {**hard, "f\n": 0.1}, b'{"x": [1]}', "application/json")
    shown = [raw_object(event), delivery_object(Delivery("s", event, "a", "b", "c", 1, 0.5))]
    texts = [json.dumps(value, ensure_ascii=False) for value in shown]
    (line,) = [x for x in written(Item("event", "", hard)).decode().split("\n") if x[:5] == "data:"]
    return [*texts, line.removeprefix("data: ")]


@rule("RFC 8259 10")
def conforming_output() -> None:
    def no_constant(name: str) -> Any:
        raise AssertionError(name)

    for text in generated():
        assert json.loads(text, parse_constant=no_constant)
        assert not re.search("[\0-\x1f\ud800-\udfff]", text)


@rule("RFC 7464 2.1")
def separated() -> None:
    same('\x1e{"n": 1}\n\x1e\x1e{"n": 2}\n', '\x1e{"n": 1}\n\x1e{\n"n": 2}\n')
    first, second = read('\x1e{"n": 1}\n{"n": 2}\n')
    assert isinstance(first, FeedEvent)
    assert isinstance(second, Refusal)


@rule("RFC 7464 2.1 errors")
def goes_on() -> None:
    kinds = [type(item) for item in read('\x1e{"n": \n\x1e{"n": 2}\n')]
    assert kinds == [Refusal, FeedEvent]


@rule("RFC 7464 2.3")
def as_they_are_completed() -> None:
    class Never(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            line = super().readline(size)
            assert line, "waited for more than the text"
            return line

    from canopy.feeds import read_feed

    assert isinstance(next(read_feed(Never(b'\x1e{\n "n": 1\n}\n'))), FeedEvent)


@rule("RFC 7464 2.4")
def cut_numbers() -> None:
    assert [type(item) for item in read("\x1e123\x1etrue")] == [Refusal, Refusal]


@rule("RFC 7464 4")
def sequences_over_http() -> None:
    for kind in ("application/json-seq", "application/geo+json-seq"):
        text = b'\x1e{"n": 1}\n\x1e{\n "n": 2\n}\n'
        assert [d.attributes["n"] for d in drafts_of({"content-type": kind}, text, Drafting())] == [
            1,
            2,
        ]


def feature(**more: Any) -> str:
    point = {"type": "Point", "coordinates": [1, 2, 3]}
    return json.dumps({"properties": {"mag": 5}, "geometry": point, "type": "Feature"} | more)


def collection(*features: str, **more: Any) -> str:
    return json.dumps(
        {**more, "features": list(map(json.loads, features)), "type": "FeatureCollection"}
    )


@rule("RFC 7946 1.4")
def type_anywhere() -> None:
    text = collection(feature(), pad="x" * 100_000)
    assert attributes(text)["mag"] == 5
    (draft,) = drafts_of({"content-type": "application/geo+json"}, text.encode(), Drafting())
    assert draft.attributes["mag"] == 5


@rule("RFC 7946 3.1.1")
def positions() -> None:
    found = attributes(feature())
    assert [found[name] for name in ("longitude", "latitude", "depth")] == [1, 2, 3]
    long = {"type": "Point", "coordinates": [1, 2, 3, 4]}
    assert json.loads(one(feature(geometry=long)).payload) == {"geometry": long}


@rule("RFC 7946 3.1")
def geometries() -> None:
    for kind in ("MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon"):
        shape = {"type": kind, "coordinates": [[1, 2], [3, 4]]}
        assert json.loads(one(feature(geometry=shape)).payload) == {"geometry": shape}
    several = {"type": "GeometryCollection", "geometries": []}
    assert json.loads(one(feature(geometry=several)).payload) == {"geometry": several}


@rule("RFC 7946 3.2")
def features() -> None:
    assert attributes(feature(geometry=None))["mag"] == 5
    assert "mag" not in attributes(feature(properties=None))
    flat = attributes('{"type": "Feature", "mag": 5}')  # no Feature: both members are absent
    assert (flat["type"], flat["mag"]) == ("Feature", 5)
    assert attributes(collection('{"type": "Feature", "properties": {"mag": 5}}'))["mag"] == 5


@rule("RFC 7946 3.2 id")
def identifiers() -> None:
    assert exactly(attributes(feature(id=7))["id"]) == (int, 7)
    assert attributes(feature(id="q7"))["id"] == "q7"


@rule("RFC 7946 3.3")
def collections() -> None:
    assert read(collection()) == []
    kinds = [type(item) for item in read(collection(feature(), collection(feature()), feature()))]
    assert kinds == [FeedEvent, Refusal, FeedEvent]


@rule("RFC 7946 4", "RFC 7946 5", "RFC 7946 6.1", "RFC 7946 7.1")
def other_members() -> None:
    more: dict[str, Any] = {
        "crs": {"type": "name"},
        "bbox": [1, 2, 3, 4],
        "title": "x",
        "features": [],
    }
    assert json.loads(one(feature(**more)).payload) == more
    assert one(collection(feature(), bbox=[1], title="x")).payload == b""


BASE: Final[dict[str, Any]] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
CE: Final = "CloudEvents 1.0.2 "
JSON: Final = "CloudEvents JSON format 1.0.2 "
HTTP: Final = "CloudEvents HTTP binding 1.0.2 "
STRUCTURED: Final = {"content-type": "application/cloudevents+json"}
BINARY: Final = {f"ce-{name}": value for name, value in BASE.items()}


def out(draft: Draft) -> dict[str, Any]:
    whole = (draft.attributes, draft.payload, draft.payload_type)
    found: dict[str, Any] = cloudevent_object(*whole, "n.1", "canopy:/nodes/n", 0.0)
    return found


def passed(**more: Any) -> None:
    """A CloudEvent comes out as it went in."""
    assert exactly(out(one(json.dumps(BASE | more)))) == exactly(BASE | more)


def bad(says: str, **more: Any) -> None:
    refused(json.dumps(BASE | more), says)


def posted(headers: dict[str, str], body: bytes = b"") -> list[Draft]:
    return drafts_of(headers, body, Drafting())


def denied(headers: dict[str, str], body: bytes = b"", status: int = 400) -> None:
    with pytest.raises(RequestRefused) as found:
        posted(headers, body)
    assert found.value.status == status


@rule(CE + "names", HTTP + "3.1.3.1")
def names() -> None:
    for name in ("partitionKey", "a-b", "é", ""):
        bad("context attribute", **{name: "x"})
        if name.isascii() and name:
            denied({**BINARY, f"ce-{name}": "x"})
    denied({**BINARY, "ce-data": "x"})
    passed(**{"x" * 30: "1"})
    assert ("x" * 21) not in out(Draft({"x" * 21: 1}, b"y", "text/plain"))


@rule(CE + "boolean, integer", CE + "extensions", JSON + "2")
def types() -> None:
    passed(a=True, b=2**31 - 1, c=-(2**31), d="", traceparent="x", data={"n": 1})
    for value in (2**31, 1.0, [1], {"a": 1}):
        bad("32 bits", a=value)


@rule(CE + "string")
def strings() -> None:
    for text in ("\t", "\x7f", "\x85", "\ufffe", "\U0001ffff"):
        bad("not allowed in it", a=text)


@rule(CE + "URI, URI reference")
def uris() -> None:
    bad("RFC 3986", source="a b")
    bad("RFC 3986", dataschema="#only")
    passed(source="#only", dataschema="urn:x")


@rule(CE + "timestamp")
def timestamps() -> None:
    bad("RFC 3339", time="2026-13-01T00:00:00Z")
    passed(time="2024-02-29T23:59:60.5-00:00")


@rule(CE + "required", CE + "specversion", CE + "subject, dataschema", CE + "datacontenttype")
def values() -> None:
    for name in ("id", "source", "type"):
        bad(f"no {name}", **{name: ""})
    bad("1.0", specversion="0.3")
    bad("empty", subject="")
    bad("empty", dataschema="")
    bad("media type", datacontenttype="json")
    passed(datacontenttype="application/vnd.acme+json", data=[1])
    found = out(Draft({"mag": 5}))
    assert [found[name] for name in ("id", "source", "type")] == ["n.1", "canopy:/nodes/n", "event"]


@rule(CE + "once")
def once() -> None:
    refused(json.dumps(BASE)[:-1] + ', "id": "2"}', "given twice")


@rule(CE + "size")
def large() -> None:
    passed(data={"text": "x" * 65_536})
    passed(data=["x" * 500_000])


@rule(JSON + "2.2")
def null() -> None:
    assert out(one(json.dumps({**BASE, "subject": None, "a": None}))) == BASE


@rule(JSON + "3")
def media_type() -> None:
    for kind in ("application/cloudevents+json", "application/json"):
        (draft,) = posted({"content-type": kind}, json.dumps({**BASE, "a": "x"}).encode())
        assert draft.attributes == {**BASE, "a": "x"}
    denied(STRUCTURED, b'{"a": 1}')


@rule(JSON + "3.1.1", JSON + "3.1.2 string", JSON + "3.1.2 absent")
def data() -> None:
    passed(data='{"a": 1}')
    passed(data={"a": [1.0, 1]}, datacontenttype="application/json")
    passed(data="a: 1", datacontenttype="application/yaml")
    passed(data_base64="eyJhIjogMX0=", datacontenttype="application/json")
    assert out(Draft({}, b"{", "application/json"))["data_base64"] == "ew=="
    assert out(Draft({}, b"\xff", "text/plain"))["data_base64"] == "/w=="
    assert out(Draft({}, b"[1]", "application/json"))["data"] == [1]


@rule(JSON + "3.1.1 null")
def null_data() -> None:
    passed(data=None)
    assert one(json.dumps({**BASE, "data": None})).payload == b"null"
    assert one(json.dumps({**BASE, "data": None, "datacontenttype": "a/b"})).payload == b""


@rule(JSON + "3.1.2 base64")
def binary_data() -> None:
    found = one(json.dumps({**BASE, "data_base64": "eyJhIjogMX0="}))
    assert (found.payload, found.attributes) == (b'{"a": 1}', BASE)


@rule(JSON + "3.1.2 other")
def other_data() -> None:
    bad("no text", data={"a": 1}, datacontenttype="application/xml")
    kind = "text/plain; charset=ISO-8859-1"
    assert one(json.dumps({**BASE, "data": "é", "datacontenttype": kind})).payload == b"\xe9"
    passed(data="é", datacontenttype=kind)


@rule(JSON + "4", HTTP + "3.3")
def batches() -> None:
    kind = {"content-type": "application/cloudevents-batch+json"}
    assert posted(kind, b"[]") == []
    assert len(posted(kind, json.dumps([BASE, BASE]).encode())) == 2
    for body in (BASE, [BASE, {"a": 1}], [BASE, {**BASE, "specversion": "0.3"}]):
        denied(kind, json.dumps(body).encode())


@rule(HTTP + "3", HTTP + "3.2")
def modes() -> None:
    whole = json.dumps({**BASE, "id": "body"}).encode()
    (draft,) = posted({**BINARY, **STRUCTURED}, whole)
    assert draft.attributes["id"] == "body"
    denied({"content-type": "application/cloudevents+avro"}, whole, 415)


@rule(HTTP + "3 batch")
def no_batches() -> None:
    assert isinstance(out(one(json.dumps(BASE))), dict)


@rule(HTTP + "3.1.1", HTTP + "3.1.2")
def bodies() -> None:
    denied({**BINARY, "ce-datacontenttype": "a/b"})
    body = b'{ "a": 1.50 }'
    (draft,) = posted({**BINARY, "content-type": "application/json"}, body)
    assert (draft.payload, draft.payload_type) == (body, "application/json")
    assert draft.attributes["a"] == 1.5
    denied({**BINARY, "content-type": "application/json"}, b"{")


@rule(HTTP + "3.1.3.2")
def header_values() -> None:
    for value, text in (("a%20b", "a b"), ('"a\\"b%25"', 'a"b%'), ("%e2%82%AC", "€")):
        (draft,) = posted({**BINARY, "ce-a": value})
        assert draft.attributes["a"] == text
    for value in ("%C0%A0", "\xe9"):
        denied({**BINARY, "ce-a": value})


def test_each_row_has_a_check() -> None:
    assert rules() == CHECKS.keys()


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_the_row_is_so(name: str) -> None:
    CHECKS[name]()
