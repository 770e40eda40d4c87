"""Feeds: nothing of a valid event is lost, everything else is refused with number and reason."""

from __future__ import annotations

import gzip
import json
import os
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canopy.feeds import FeedEvent, Item, Refusal, id_text, read_feed
from canopy.feeds.constants import EVENT_LIMIT
from tests.canopy.feeds.feed_items import exactly, one, read, reason


class TestFlatObjects:
    def test_numbers_keep_kind_and_digits(self) -> None:
        found = one('{"a": 1, "b": 1.0, "c": 9223372036854775807, "d": -9223372036854775808}')
        expected = {"a": 1, "b": 1.0, "c": 2**63 - 1, "d": -(2**63), "id": "1", "type": "event"}
        assert exactly(found.attributes) == exactly(expected)
        assert found.payload == b""

    def test_null_is_kept_as_null(self) -> None:
        assert one('{"a": null}').attributes["a"] is None

    def test_an_own_id_keeps_its_type(self) -> None:
        assert exactly(one('{"id": 17}').attributes["id"]) == (int, 17)
        assert one('{"id": "x"}').attributes["id"] == "x"

    def test_without_an_id_the_line_number_is_one(self) -> None:
        items = read('\n{"a": 1}\n\n{"a": 2}\n{"id": null}')
        assert [
            (i.number, i.draft.attributes["id"]) for i in items if isinstance(i, FeedEvent)
        ] == [
            (2, "2"),
            (4, "4"),
            (5, "5"),
        ]

    def test_type_is_event_unless_it_is_a_text(self) -> None:
        assert one('{"type": "quake"}').attributes["type"] == "quake"
        found = one('{"type": 7}')
        assert found.attributes["type"] == "event"
        assert json.loads(found.payload) == {"type": 7}

    def test_nested_values_and_reserved_names_travel_in_the_payload(self) -> None:
        found = one('{"a": 1, "b": {"c": [1, 2.0]}, "$d": 3, "": 4, "id": [5]}')
        assert found.attributes == {"a": 1, "id": "1", "type": "event"}
        rest = {"b": {"c": [1, 2.0]}, "$d": 3, "": 4, "id": [5]}
        assert exactly(json.loads(found.payload)) == exactly(rest)
        assert found.payload_type == "application/json"

    def test_a_nested_integer_of_any_size_is_exact(self) -> None:
        assert json.loads(one('{"a": [123456789012345678901234567890]}').payload) == {
            "a": [123456789012345678901234567890]
        }

    values = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
        max_leaves=8,
    )

    @settings(max_examples=150, deadline=None)
    @given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), values))
    def test_nothing_is_lost(self, event: dict[str, Any]) -> None:
        found = one(json.dumps(event))
        back: dict[str, Any] = dict(found.attributes)
        if found.payload:
            back |= json.loads(found.payload)
        for name, assigned in (("id", "1"), ("type", "event")):
            if event.get(name) is None and back[name] == assigned:
                event[name] = assigned
        assert exactly(back) == exactly(event)
        assert all(n and not n.startswith("$") for n in found.attributes)


class TestBrokenLines:
    @pytest.mark.parametrize(
        ("line", "says"),
        [
            (b'{"a": 1', "not JSON"),
            (b'{"a": NaN}', '"a": NaN is no value'),
            (b'{"a": -Infinity}', "infinity"),
            (b'{"a": 1e999}', "infinity"),
            (b'{"a": [1e999]}', "infinity"),
            (b'{"a": 9223372036854775808}', "64 bits"),
            (b'{"a": -9223372036854775809}', "64 bits"),
            (b'{"a": ' + b"9" * 5000 + b"}", "64 bits"),
            (b'{"a": "\xff"}', "invalid UTF-8 at byte 8"),
            (b'{"a": "\\ud800"}', "surrogate"),
            (b'{"\\ud800": 1}', "surrogate"),
            (b'{"a": ["\\ud800"]}', "surrogate"),
            (b'{"a": 1, "a": 2}', '"a" is given twice'),
            (b'{"b": {"a": 1, "a": 2}}', '"a" is given twice'),
            (b"[1]", "not an object"),
            (b"17", "not an object"),
            (b'{"a": 1} {"a": 2}', "more text"),
            (b'{"a": ' + b"[" * 100_000 + b"}", "nested"),
            (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "nested"),
            (b'{"a": "' + b"x" * EVENT_LIMIT + b'"}', "longer than"),
            (b"\xff\xfe{\x00}\x00", "invalid UTF-8"),
        ],
        ids=range(21),
    )
    def test_are_refused_with_number_and_reason_and_the_rest_is_read(
        self, line: bytes, says: str
    ) -> None:
        bad = read(b'{"n": 1}\n' + line + b'\n{"n": 3}\r\n{"n": 4}', "jsonl")
        assert [item.number for item in bad] == [1, 2, 3, 4]
        refusal = bad.pop(1)
        assert isinstance(refusal, Refusal)
        assert says in refusal.reason
        assert [i.draft.attributes["n"] for i in bad if isinstance(i, FeedEvent)] == [1, 3, 4]

    def test_the_place_in_the_line_is_named(self) -> None:
        assert "column 9" in reason('{"a": 1 "b": 2}')

    @settings(max_examples=200, deadline=None)
    @given(st.binary(max_size=60))
    def test_no_bytes_break_the_reader(self, data: bytes) -> None:
        for format in ("auto", "jsonl", "geojson", "cloudevents", "msgpack"):
            for item in read(data, format):
                assert isinstance(item, FeedEvent) or item.reason


class TestJsonOfAnyLayout:
    def test_an_array_on_a_line_is_as_many_events(self) -> None:
        items = read('{"n": 0}\n[{"n": 1}, 2, {"n": 3, "id": "x"}]\n')
        assert [item.number for item in items] == [1, 2, 2, 2]
        drafts = [item.draft.attributes for item in items if isinstance(item, FeedEvent)]
        assert [draft["id"] for draft in drafts] == ["1", "2.1", "x"]

    @pytest.mark.parametrize("indent", [None, 0, 2])
    def test_an_array_over_many_lines(self, indent: int | None) -> None:
        made = [{"n": n, "inner": {"m": [n]}} for n in range(3)]
        text = json.dumps(made, indent=indent).replace("}, {", "},\n{")
        items = read(text)
        assert [item.draft.attributes["n"] for item in items if isinstance(item, FeedEvent)] == [
            0,
            1,
            2,
        ]
        assert len(items) == 3

    def test_pretty_printed_objects_one_after_another(self) -> None:
        text = "\n".join(json.dumps({"n": n, "m": {"k": 1}}, indent=4) for n in range(3))
        items = read(text)
        assert [item.draft.attributes["id"] for item in items if isinstance(item, FeedEvent)] == [
            "1",
            "2",
            "3",
        ]

    def test_a_batch_of_cloudevents(self) -> None:
        base = {"specversion": "1.0", "source": "/s", "type": "t"}
        text = json.dumps([{**base, "id": f"e{n}", "data": {"n": n}} for n in range(2)], indent=1)
        items = read(text)
        found = [item.draft.attributes for item in items if isinstance(item, FeedEvent)]
        assert [(draft["id"], draft["n"]) for draft in found] == [("e0", 0), ("e1", 1)]

    def test_what_is_broken_is_one_refusal_with_its_place(self) -> None:
        first, second = read('[\n {"a": 1},\n {"a": 2,}\n]')[0], read('{"a": 1}\n[\n3', "json")
        assert isinstance(first, Refusal)
        assert "line 3, column" in first.reason
        assert isinstance(second[0], FeedEvent)
        assert isinstance(second[1], Refusal)
        assert second[1].number == 2


class TestPacked:
    @pytest.mark.parametrize("text", ['{"n": 1}\n{"n": 2}\n', "n,m\n1,1\n2,2\n"])
    def test_gzip_is_unpacked(self, text: str) -> None:
        items = read(gzip.compress(text.encode()))
        assert [item.draft.attributes["n"] for item in items if isinstance(item, FeedEvent)] == [
            1,
            2,
        ]

    def test_a_damaged_file_is_a_refusal_behind_what_could_be_read(self) -> None:
        packed = gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(9_000)))
        items = read(packed[: len(packed) // 2])
        assert isinstance(items[0], FeedEvent)
        assert isinstance(items[-1], Refusal)
        assert "damaged gzip" in items[-1].reason


@pytest.mark.parametrize(
    ("raw", "name"), [(b"PK\x03\x04\x14\x00", "zip"), (b"<?xml version='1.0'?>", "XML")]
)
def test_a_file_of_another_kind_is_said_to_be_one(raw: bytes, name: str) -> None:
    assert "this looks like" in reason(raw)
    assert name in reason(raw)


def test_events_are_handed_out_as_they_come() -> None:
    reading, writing = os.pipe()
    come = threading.Event()
    found: list[Item] = []

    def read_all() -> None:
        with os.fdopen(reading, "rb") as stream:
            for item in read_feed(stream):
                found.append(item)
                come.set()

    reader = threading.Thread(target=read_all)
    reader.start()
    os.write(writing, b'{"a": 1}\n{"a"')
    assert come.wait(30)  # though the stream goes on
    assert [item.number for item in found] == [1]
    os.write(writing, b": 2}\n")
    os.close(writing)
    reader.join()
    assert [item.number for item in found] == [1, 2]


def test_ids_as_text() -> None:
    assert [id_text(v) for v in ("a", 17, 1.0, True, None)] == ["a", "17", "1.0", "true", ""]
