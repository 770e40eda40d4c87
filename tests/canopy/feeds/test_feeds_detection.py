"""The format of a feed is that of what is really there, however it is laid out and it comes.

Each feed is read whole, in pieces of every size, and from a pipe whose writer is slow: what comes
out is the same.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canopy.feeds import FeedEvent, Item, Refusal, read_feed
from canopy.feeds.constants import EVENT_LIMIT
from canopy.feeds.formats import detect
from canopy.feeds.lines import extends
from canopy.feeds.source import FeedSource
from tests.canopy.feeds.feed_items import exactly, read


class Slow(io.RawIOBase):
    """A pipe whose writer hands out these pieces, each in a write of its own."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        while self._pieces and not self._pieces[0]:
            self._pieces.pop(0)
        if not self._pieces:
            return 0
        piece = self._pieces[0][: len(room)]
        room[: len(piece)] = piece
        self._pieces[0] = self._pieces[0][len(piece) :]
        return len(piece)


def in_pieces(raw: bytes, size: int) -> list[Item]:
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    return list(read_feed(cast(BinaryIO, Slow(pieces))))


def feature(number: int, **more: Any) -> dict[str, Any]:
    point = {"type": "Point", "coordinates": [1.0, 2.0, float(number)]}
    return {"geometry": point, "properties": {"n": number, **more}, "type": "Feature"}


def numbers(items: list[Item]) -> list[Any]:
    """The attribute `n` of each event; the reason of each refusal."""
    return [i.draft.attributes.get("n") if isinstance(i, FeedEvent) else i.reason for i in items]


COLLECTION = {"features": [feature(n) for n in range(3)], "type": "FeatureCollection"}
FLAT = [{"n": n, "text": "x"} for n in range(3)]
LINES = "".join(json.dumps(one) + "\n" for one in FLAT)
WIDE = ",".join(["n", *(f"column_{place:05}" for place in range(900))])
PADDED = json.dumps({"n": 0, "inner": {"pad": "y" * 70_000}})

FEEDS = {
    "lines": LINES,
    "lines whose first value is long": f'{PADDED}\n{{"n": 1}}\n{{"n": 2}}',
    "lines behind blank ones": f"\n \r\n{LINES}",
    "a collection whose type is last": json.dumps(COLLECTION),
    "one with line ends": json.dumps(COLLECTION, indent=1),
    "one beyond all looks": json.dumps(
        {"features": [feature(n, pad="z" * 200_000) for n in range(3)], "type": "FeatureCollection"}
    ),
    "its members in lines": "\n".join(json.dumps(one) for one in COLLECTION["features"]),
    "collections in lines": "\n".join(
        json.dumps({"type": "FeatureCollection", "features": [feature(n)]}) for n in range(3)
    ),
    "a collection within an object": "".join(
        json.dumps({"n": n, "inner": COLLECTION}) + "\n" for n in range(3)
    ),
    "an array on a line": json.dumps(FLAT),
    "an array of any length on a line": json.dumps([{**one, "pad": "z" * 300_000} for one in FLAT]),
    "an array in lines": json.dumps(FLAT).replace("}, {", "},\n{"),
    "pretty values": "\n".join(json.dumps(one, indent=3) for one in FLAT),
    "values without indentation": "\n".join(json.dumps(one, indent=0) for one in FLAT),
    "a sequence": "".join(f"\x1e{json.dumps(one)}\n" for one in FLAT),
    "a sequence of pretty values": "".join(
        f"\x1e\x1e{json.dumps(one, indent=2)}\n" for one in FLAT
    ),
    "a table": "n,text\r\n0,a\r\n1,b\r\n2,c\r\n",
    "a table whose row is long": "n,text\n0," + "a" * 70_000 + "\n1,b\n2,c",
    "a wide table": f"{WIDE}\n" + "".join(f"{n}" + "," * 900 + "\n" for n in range(3)),
    "a table with line ends in its names": '"n","a ""long""\r\nname"\r\n0,"b\r\n,c"\r\n1,d\r\n2,e',
    "a table with other separators in its names": '"n","a;b;c|d"\n0,x\n1,y\n2,z\n',
}


@pytest.mark.parametrize("name", FEEDS)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "with a byte order mark"])
def test_a_feed_is_what_it_is_however_it_comes(name: str, mark: str) -> None:
    raw = (mark + FEEDS[name]).encode()
    whole = read(raw)
    assert numbers(whole) == [0, 1, 2]
    assert in_pieces(raw, 61 if len(raw) < 5000 else 4099) == whole
    assert read(gzip.compress(raw)) == whole


def test_messagepack_is_known_by_its_first_map() -> None:
    for maps in ([{"n": 0, "é": 1}], [{str(n): n for n in range(20)}], [{}, {"n": 1}]):
        raw = b"".join(msgpack.packb(one) for one in maps)
        assert in_pieces(raw, 1) == read(raw) == read(raw, "msgpack")
    for text in ("ހ,n\nހ,1\n", "\u07ff\u07ff,n\n1,2\n"):  # their first byte begins a map, too
        assert detect(FeedSource(io.BytesIO(text.encode()))) == "csv"


def test_a_member_that_is_no_feature_is_refused_and_the_rest_is_read() -> None:
    bad: list[Any] = [COLLECTION, 17, {"type": "Feature", "properties": [1]}]
    whole = {"features": [feature(0), *bad, feature(4)], "type": "FeatureCollection"}
    items = read(json.dumps(whole))
    assert [item.number for item in items] == [1, 2, 3, 4, 5]
    assert [type(item) for item in items] == [FeedEvent, Refusal, Refusal, Refusal, FeedEvent]


def test_what_a_file_is_called_counts() -> None:
    def named(raw: bytes, name: str) -> list[Item]:
        return list(read_feed(io.BytesIO(raw), name=name))

    assert numbers(named(b"n\n5\n", "one-column.CSV")) == [5]
    assert numbers(named(gzip.compress(b"n\n5\n"), "one-column.tsv.gz")) == [5]
    (refused,) = named(b'{"a": 1}\n{"a": 2}', "a.geojson")[:1]
    assert isinstance(refused, Refusal)
    assert "not GeoJSON" in refused.reason
    assert numbers(named(json.dumps(feature(7), indent=1).encode(), "a.geojson")) == [7]
    (refused,) = named(b'{"a": 1,\n', "a.ndjson")
    assert isinstance(refused, Refusal)
    assert numbers(named(json.dumps(COLLECTION).encode(), "quakes.json")) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"n": 0', ["not JSON: expecting ',' delimiter at column 8"]),
        ('{"n": 0\n{"n": 1}\n{"n": 2}\n', ["not JSON: expecting ',' delimiter at column 8", 1, 2]),
        ('{"n": 0 "m"}\n{"n": 1}\n', ["not JSON: expecting ',' delimiter at column 9", 1]),
        ('{"n": "a\nb"}\n{"n": 1}', None),
        ('{"n": 1}\n{"n": 1,\n"m": 2}\n', None),
    ],
)
def test_a_broken_line_is_refused_by_itself(text: str, expected: list[Any] | None) -> None:
    found = numbers(read(text))
    if expected is not None:
        assert found == expected
    assert 1 in found or len(found) == 1


def test_a_line_that_is_too_long_is_one_refusal() -> None:
    long = json.dumps({"n": "x" * EVENT_LIMIT})
    for text in (f'{long}\n{{"n": 1}}\n', f'{{"n": 1}}\n{long}\n'):
        assert sorted(map(str, numbers(read(text)))) == ["1", f"longer than {EVENT_LIMIT} bytes"]
    whole = json.dumps([{"n": 1}, {"n": "x" * EVENT_LIMIT}])
    assert numbers(read(whole)) == [1, f"larger than {EVENT_LIMIT} bytes"]
    text = json.dumps({"n": 1, "text": "x" * 300_000}, indent=1)  # of characters of one byte
    assert numbers(read(text)) == [1]


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text('ab"\\{[,:\n'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab{"), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUE), min_size=1, max_size=4), st.data())
def test_every_layout_of_the_same_values_is_the_same_events(
    values: list[dict[str, Any]], data: st.DataObject
) -> None:
    indent = data.draw(st.sampled_from([None, 0, 1, 4]))
    texts = [json.dumps(one, indent=indent) for one in values]
    expected = [exactly(one) for one in values]
    layouts = [
        "\n".join(texts),
        json.dumps(values, indent=indent),
        "".join(f"\x1e{t}\n" for t in texts),
    ]
    for text in layouts:
        items = in_pieces(text.encode(), data.draw(st.integers(1, 9)))
        found: list[Any] = []
        for item in items:
            assert isinstance(item, FeedEvent), (text, item)
            rest = json.loads(item.draft.payload) if item.draft.payload else {}
            both = {**item.draft.attributes, **rest}
            found.append(exactly({n: v for n, v in both.items() if n not in ("id", "type")}))
        assert found == expected


def test_a_value_is_not_waited_for_when_it_is_whole() -> None:
    """What a slow writer has written comes out at once, whatever the layout lets be known."""
    for first, rest in (
        (b'{"n": 0}\n', b'{"n": 1}\n'),
        (b'\x1e{"n": 0}\n', b'\x1e{"n": 1}\n'),
        (b'\x1e{\n "n": 0\n}\n', b'\x1e{"n": 1}\n'),
        (b"n,m\n0,0\n", b"1,1\n"),
        (msgpack.packb({"n": 0}), msgpack.packb({"n": 1})),
        (
            json.dumps({"features": [feature(0)], "type": "FeatureCollection"}).encode() + b"\n",
            b"\n",
        ),
    ):
        reading, writing = os.pipe()
        os.write(writing, first)
        with os.fdopen(reading, "rb") as stream:
            items: Iterator[Item] = read_feed(stream)
            item = next(items)  # would wait for ever
            assert isinstance(item, FeedEvent)
            assert item.draft.attributes["n"] == 0
            os.write(writing, rest)
            os.close(writing)
            assert len(list(items)) == (rest != b"\n")


def test_a_sequence_is_read_on_behind_what_is_broken() -> None:
    broken = '\x1e{"n": \x1e\x1e{"n": 1}{"n": 2}\n\x1e17\n\x1e{"n": 3}\n {"n": 4}\n'
    text = f'junk\x1e{{"n": 0}}\n{broken}\x1e{{"n": 5}}'
    found = numbers(read(text, "json-seq"))
    assert [one for one in found if isinstance(one, int)] == [0, 3, 5]
    assert len(found) == 8
    long = f'\x1e{{"n": "{"x" * EVENT_LIMIT}"}}\n\x1e{{"n": 1}}\n'
    assert numbers(read(long)) == [f"longer than {EVENT_LIMIT} bytes", 1]


def test_the_first_value_extends_as_far_as_it_does() -> None:
    cases = {'{\n"a": 1}': True, '{"a": 1}\n{': False, '[{"a": 1},\n{"a": 2}]': True, "{": False}
    for text, expected in cases.items():
        assert extends(FeedSource(io.BytesIO(text.encode()))) is expected
