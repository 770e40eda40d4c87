"""`canopy sub --format` and `--raw`, and payloads in `--json`."""

from __future__ import annotations

import io
import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canopy.cli.main import main
from canopy.cli.output import print_json
from canopy.cli.subscribe.delivery import Template, TemplateError
from canopy.feeds import FeedEvent, Refusal, read_feed
from canopy.feeds.raw import raw_object
from canopy.gateway.feeds import Item
from canopy.gateway.http.paths import written
from overlay.client import (
    Command,
    Delivered,
    Delivery,
    Draft,
    Event,
    GetStatus,
    Publish,
    Published,
    Reply,
    Status,
    Subscribe,
    Subscribed,
)
from tests.support.real.fake_control import FakeControl

JSON = "application/json"


def delivery(payload: bytes = b"", kind: str = "", **attributes: Any) -> Delivery:
    event = Event("a" * 16, 1, 7, 1_000.25, attributes, payload, kind)
    return Delivery("s1", event, "mag", "a", "b", 2, 1.5)


def rendered(template: str, payload: bytes = b"", kind: str = "", **attributes: Any) -> str:
    return Template(template).render(delivery(payload, kind, **attributes))


class TestTemplate:
    def test_names_are_attributes_and_what_is_known_of_the_delivery(self) -> None:
        assert rendered("{id}: {mag}/{n} {t}", id="q", mag=2.5, n=2**53 + 1, t=True) == (
            "q: 2.5/9007199254740993 true"
        )
        assert rendered("{event} {subscription} {hops} {latency_ms}") == (
            f"{'a' * 16}.1.7 s1 2 1.500"
        )
        assert rendered("{time}") == "1970-01-01T00:16:40.250Z"
        assert rendered("{payload} {payload_type}", b"x", "text/plain") == "x text/plain"
        assert rendered("{payload}", b"\xff") == "/w=="
        assert json.loads(rendered("{attributes}", a=1, b=None)) == {"a": 1, "b": None}

    def test_a_quoted_name_is_an_attribute(self) -> None:
        assert rendered('{"time"}|{"a ""b"" {"}', **{"time": 9, 'a "b" {': 1}) == "9|1"

    def test_absent_and_null_are_empty_and_absent_ones_are_remembered(self) -> None:
        template = Template("[{mag}{gone}{there}]")
        assert template.render(delivery(mag=None)) == "[]"
        assert template.render(delivery(there="x")) == "[x]"
        assert list(template.absent) == ["gone"]

    def test_escapes(self) -> None:
        assert rendered(r"{{{a}}}\t\\\n.", a=1) == "{1}\t\\\n."

    def test_a_value_cannot_end_the_line_or_move_the_cursor(self) -> None:
        assert rendered("{a}", a="x\n\x1b[2J") == "x\\u000a\\u001b[2J"

    @pytest.mark.parametrize(
        ("text", "place"),
        [("ab{", 3), ("}", 1), ("a {mag:.1f}", 3), ("{}", 1), ("{a b}", 1), ("\\x", 1), ("\\", 1)],
    )
    def test_what_makes_no_sense_is_refused_with_its_place(self, text: str, place: int) -> None:
        with pytest.raises(TemplateError, match=f"column {place}: "):
            Template(text)


names = st.text(min_size=1, max_size=8).filter(lambda name: not name.startswith("$"))
values = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)


def exact(draft: Draft | Event) -> Any:
    """What must survive, with the types of values (1 and 1.0 and True are equal)."""
    attributes = {name: (type(v), repr(v)) for name, v in draft.attributes.items()}
    return attributes, draft.payload, draft.payload_type


def reread(line: str) -> list[FeedEvent | Refusal]:
    return list(read_feed(io.BytesIO(line.encode() + b"\n")))


class TestRaw:
    @given(
        st.dictionaries(names, values | numbers, max_size=6),
        st.binary(max_size=40) | st.text(max_size=40).map(str.encode),
        st.sampled_from(["", JSON, "text/plain", "application/x"]),
    )
    def test_what_is_written_is_read_unchanged(
        self, attributes: dict[str, Any], payload: bytes, kind: str
    ) -> None:
        event = Event("a" * 16, 1, 1, 0.0, attributes, payload, kind)
        for ascii_only in (False, True):  # as on a terminal without these characters
            (item,) = reread(json.dumps(raw_object(event), ensure_ascii=ascii_only))
            assert isinstance(item, FeedEvent), item
            assert exact(item.draft) == exact(event)

    @pytest.mark.parametrize("payload", [b"\xff" * 500_000, b'"' * 500_000, b"\0" * 500_000])
    def test_the_largest_payload_is_read(self, payload: bytes) -> None:
        event = Event("a" * 16, 1, 1, 0.0, {"a": "\0" * 10_000}, payload)
        (item,) = reread(json.dumps(raw_object(event)))
        assert isinstance(item, FeedEvent)
        assert exact(item.draft) == exact(event)

    @pytest.mark.parametrize(
        "line",
        [
            '{"$attributes": 1}',
            '{"$attributes": {"a": []}}',
            '{"$attributes": {"$a": 1}}',
            '{"$attributes": {"a": 1, "a": 2}}',
            '{"$attributes": {"a": NaN}}',
            '{"$attributes": {}, "b": 1}',
            '{"$attributes": {}, "$payload": {}}',
            '{"$attributes": {}, "$payload": "x", "$payload_base64": "eA=="}',
            '{"$attributes": {}, "$payload_base64": "?"}',
            '{"$attributes": {}, "$payload": "\\ud800"}',
            '{"$attributes": {}, "$payload_type": 1}',
        ],
    )
    def test_what_is_no_whole_event_is_refused(self, line: str) -> None:
        (item,) = reread(line)
        assert isinstance(item, Refusal), item


EVENTS = [
    delivery(id="e1", type="t", n=1, x=1.0, b=True, s="ü\n", gone=None),
    delivery(b'{"a": [1, 2.50]}', JSON, id="e2"),
    delivery(b"\x00\xff", "image/png", only=2**63 - 1),
]


def answer(command: Command) -> Iterator[Reply]:
    n = command.request
    if isinstance(command, Subscribe):
        yield Subscribed(n, "s1")
        yield Delivered(0, tuple(EVENTS))
    elif isinstance(command, Publish):
        yield Published(n, len(command.events), "x", 1, 1)
    elif isinstance(command, GetStatus):
        yield Status(
            n, "a" * 16, "", True, False, 1, "none", "", "", 1, 1, 0, 0, 0, "pivot", {}, {}
        )


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeControl]:
    monkeypatch.setenv("CANOPY_CONNECT", str(tmp_path / "n"))
    with FakeControl(tmp_path / "n", answer) as fake:
        yield fake


def test_sub_raw_into_pub_publishes_the_same_events(
    node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sub", "TRUE", "--raw", "--count", "3"]) == 0
    (tmp_path / "kept").write_text(capsys.readouterr().out)
    assert main(["pub", str(tmp_path / "kept")]) == 0
    published = [d for c in node.commands if isinstance(c, Publish) for d in c.events]
    assert [exact(draft) for draft in published] == [exact(one.event) for one in EVENTS]


def test_json_payloads_are_json(node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sub", "TRUE", "--json", "--count", "3"]) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert "payload" not in first
    assert second["payload"] == {"a": [1, 2.5]}
    assert (third["payload_base64"], third["payload_type"]) == ("AP8=", "image/png")


@pytest.mark.parametrize("payload", [b"{", b"NaN", b'{"a": 1, "a": 2}', b"\xff", b"1e999"])
def test_a_payload_that_is_not_the_json_it_says_is_base64(payload: bytes) -> None:
    from canopy.feeds.objects import payload_fields

    assert set(payload_fields(payload, JSON)) == {"payload_base64", "payload_type"}


def test_sub_format(node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
    line = r"{id}\t{n}\t{s}\t{hops}\t{latenzy_ms}"
    assert main(["sub", "TRUE", "--format", line, "--count", "2"]) == 0
    out, err = capsys.readouterr()
    assert out == "e1\t1\tü\\u000a\t2\t\ne2\t\t\t2\t\n"
    assert "! no event had an attribute latenzy_ms; did you mean {latency_ms}?" in err


def test_a_bad_template_or_two_formats_are_usage(
    node: FakeControl, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sub", "TRUE", "--format", "{mag"]) == 2
    assert "column 1: unmatched {" in capsys.readouterr().err
    assert main(["sub", "TRUE", "--raw", "--json"]) == 2
    assert not node.commands


def test_json_has_nothing_that_a_terminal_acts_on_or_turns_text_around(
    capsys: pytest.CaptureFixture[str],
) -> None:
    turning = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    codes = [*range(0xD800), *range(0xE000, 0x10000), *range(0x1F600, 0x1F650)]
    every = "".join(map(chr, [*codes, *range(0xE0000, 0xE0080)]))
    print_json({every: every})
    text = capsys.readouterr().out.rstrip("\n")
    assert json.loads(text) == {every: every}
    for character in set(text):
        assert unicodedata.category(character) not in ("Cc", "Zl", "Zp"), ascii(character)
        assert unicodedata.bidirectional(character) not in turning
    assert not set(text) & set("\u061c\u200e\u200f\ufeff")
    assert written(Item("event", "", {every: every})).decode().count("\n") == 2
    assert text in written(Item("event", "", {every: every})).decode()
    assert all(character in text for character in "é😀ש")
