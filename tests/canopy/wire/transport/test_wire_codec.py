"""Messages to bytes and back: every type round, everything else refused."""

from __future__ import annotations

import types
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canopy.wire.transport.codec import BODY_LIMIT, MESSAGES, WireCodec, array_header, collect
from matching import Interval
from node import Node
from overlay.lower_random.messages import Shuffle, StalePoint, Walk, WalkMiss
from overlay.machine import Message, ProtocolError
from overlay.upper_tree.host_load import VirtualNodeLoad

CODEC = WireCodec()
NUMBERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
PLAIN: dict[type, st.SearchStrategy[Any]] = {
    int: NUMBERS,
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
    type(None): st.none(),
}


CUTS = st.tuples(st.just(0), st.booleans(), st.integers(0, 1)) | st.tuples(
    st.just(1), NUMBERS | st.floats(allow_nan=False), st.integers(0, 1)
)
"""Places of the value space; an Interval refuses everything that is none."""


def values(kind: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a field's type, from msgspec's own description of it."""
    inspect = msgspec.inspect
    if isinstance(kind, inspect.StructType) and kind.cls is Interval:
        return st.builds(Interval, CUTS, CUTS)
    if isinstance(kind, inspect.StructType):
        fields = {field.name: values(field.type) for field in kind.fields}
        if kind.cls is VirtualNodeLoad:
            fields["places"] = st.lists(CUTS, max_size=3).map(tuple)
        return st.deferred(lambda: st.builds(kind.cls, **fields))
    if isinstance(kind, inspect.UnionType):
        return st.one_of([values(one) for one in kind.types])
    if isinstance(kind, inspect.VarTupleType):
        least = kind.min_length or 0
        return st.lists(values(kind.item_type), min_size=least, max_size=least + 3).map(tuple)
    if isinstance(kind, inspect.ListType):
        return st.lists(values(kind.item_type), max_size=3)
    if isinstance(kind, inspect.TupleType):
        return st.tuples(*[values(one) for one in kind.item_types])
    if isinstance(kind, inspect.DictType):
        return st.dictionaries(values(kind.key_type), values(kind.value_type), max_size=3)
    if isinstance(kind, inspect.IntType) and kind.ge is not None:
        most = kind.lt - 1 if kind.le is None and kind.lt is not None else kind.le
        return st.integers(kind.ge, most)
    if isinstance(kind, inspect.StrType) and (kind.min_length or kind.max_length):
        least = kind.min_length or 0
        most = least + 8 if kind.max_length is None else kind.max_length
        return st.text(min_size=least, max_size=min(most, least + 8))
    if isinstance(kind, inspect.BytesType) and (kind.min_length or kind.max_length):
        least = kind.min_length or 0
        most = least + 8 if kind.max_length is None else kind.max_length
        return st.binary(min_size=least, max_size=min(most, least + 20))
    if isinstance(kind, inspect.FloatType) and kind.ge is not None:
        return st.floats(kind.ge, kind.le)
    if isinstance(kind, inspect.LiteralType):
        return st.sampled_from(kind.values)
    if isinstance(kind, inspect.EnumType):
        return st.sampled_from(kind.cls)
    plain = {
        inspect.IntType: int,
        inspect.FloatType: float,
        inspect.StrType: str,
        inspect.BytesType: bytes,
        inspect.BoolType: bool,
        inspect.NoneType: type(None),
    }
    return PLAIN[plain[type(kind)]]


@pytest.mark.parametrize("cut", [[1, "a", 0], [7, 1, 0], [2, 5, 1], [1, 5, 2], [0, 1, 0]])
def test_a_place_that_no_order_has_is_refused(cut: list[Any]) -> None:
    """Compared with a true one it would be our own fault, and end the node."""
    location = ["mag", [1, 1], [cut, [3, 0, 0]], ["id", "host:1"]]
    body = msgspec.msgpack.encode([["Accepted", 1, [], [location]]])
    with pytest.raises(ProtocolError):
        CODEC.decode(body)


@pytest.mark.parametrize("level", [-1, 6, 1.5, "1"])
def test_a_latency_level_that_there_is_not_is_refused(level: object) -> None:
    registration = ["s/0", "x", ["id", "host:1"], "x > 1", [[1, 0, 0], [3, 0, 0]], level]
    body = msgspec.msgpack.encode([["Register", 1, [registration]]])
    with pytest.raises(ProtocolError):
        CODEC.decode(body)


@pytest.mark.parametrize(
    "pace", [[-1.0, 1.0, 1], [1.0, float("nan"), 1], [1.0, float("inf"), 1], [1.0, 1.0, -1]]
)
def test_an_impossible_pace_is_refused(pace: list[Any]) -> None:
    body = msgspec.msgpack.encode([["Accepted", 1, [], [], pace]])
    with pytest.raises(ProtocolError):
        CODEC.decode(body)


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    return values(msgspec.inspect.type_info(kind))


def same(left: Any, right: Any) -> bool:
    """Equal, and of equal types: 1, 1.0 and True are three values."""
    return repr(left) == repr(right)


@pytest.mark.parametrize("tag", MESSAGES)
def test_every_message_comes_back_as_it_was(tag: str) -> None:
    @settings(max_examples=6, deadline=None)
    @given(st.lists(messages(MESSAGES[tag]), max_size=3))
    def round_trip(sent: list[Message]) -> None:
        received = CODEC.decode(CODEC.encode(sent))
        assert same(received, sent)
        assert [type(m) for m in received] == [MESSAGES[tag]] * len(sent)

    round_trip()


def test_the_whole_vocabulary_is_there() -> None:
    """The codec takes messages from the modules that are named *messages*: none is elsewhere."""
    assert Node.__module__ == "node"  # imports all machines, and so their messages
    kinds: list[type[Message]] = [Message]
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = {kind for kind in kinds if kind.__module__.startswith(("overlay.", "streams."))}
    assert ours - set(MESSAGES.values()) == {Message}
    assert "Hello" not in MESSAGES  # a frame is no message
    assert "Message" not in MESSAGES


@given(st.lists(messages(StalePoint) | messages(WalkMiss), max_size=40))
@settings(max_examples=30, deadline=None)
def test_joined_single_messages_are_the_same_bytes_as_a_list(sent: list[Message]) -> None:
    assert CODEC.join([CODEC.encode_one(m) for m in sent]) == CODEC.encode(sent)


@pytest.mark.parametrize("count", [0, 15, 16, 65_535, 65_536])
def test_an_array_header_is_messagepacks(count: int) -> None:
    assert msgspec.msgpack.encode([0] * count) == array_header(count) + bytes(count)


NOT_MESSAGES = {
    "nothing": b"",
    "no list": msgspec.msgpack.encode({"a": 1}),
    "an unknown tag": msgspec.msgpack.encode([["Nonsense", 1]]),
    "a command": msgspec.msgpack.encode([["Drain", 1]]),
    "a frame": msgspec.msgpack.encode([["Bye", "x", True]]),
    "no tag": msgspec.msgpack.encode([[1, 2]]),
    "a wrong type": msgspec.msgpack.encode([["StalePoint", 5, "x", [0, 0]]]),
    "too few fields": msgspec.msgpack.encode([["StalePoint", "a"]]),
    "trailing bytes": CODEC.encode([]) + b"\x00",
    "text that is not UTF-8": b"\x91\x94\xaaStalePoint\xa2\xff\xfe\xa1x\x92\x00\x00",
    "a list that claims four thousand million items": b"\xdd\xff\xff\xff\xff",
    "a tuple that claims as many": b"\x91\x94\xa7Shuffle\xdd\xff\xff\xff\xff",
    "depth": b"\x91" * 200_000,
    "depth in a field that is skipped":
        b"\x91\x96\xaaStalePoint\xa1a\xa1x\x92\x00\x00\xc0" + b"\x91" * 99_999,
    "size": CODEC.encode([StalePoint("a" * BODY_LIMIT, "x", (0, 0))]),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_MESSAGES)
def test_what_is_no_list_of_messages_is_refused_with_a_short_reason(name: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        CODEC.decode(NOT_MESSAGES[name])
    assert 0 < len(str(refused.value)) < 250


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_garbage_is_refused_and_nothing_else(body: bytes) -> None:
    try:
        decoded = CODEC.decode(body)
    except ProtocolError:
        return
    assert all(type(message) in MESSAGES.values() for message in decoded)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_truncated_body_is_refused(data: st.DataObject) -> None:
    sent = data.draw(st.lists(messages(Walk) | messages(Shuffle), min_size=1, max_size=3))
    body = CODEC.encode(sent)
    cut = data.draw(st.integers(min_value=0, max_value=len(body) - 1))
    with pytest.raises(ProtocolError):
        CODEC.decode(body[:cut])


def test_two_messages_with_one_tag_are_an_own_fault() -> None:
    def module(name: str) -> types.ModuleType:
        made = types.ModuleType(name)
        found = msgspec.defstruct(
            "Twice", [("a", int)], bases=(Message,), module=name, frozen=True, tag=True
        )
        made.Twice = found  # type: ignore[attr-defined]
        return made

    with pytest.raises(AssertionError, match="Twice"):
        collect([module("one"), module("two")])


def test_an_imported_message_belongs_to_the_module_that_defines_it() -> None:
    made = types.ModuleType("elsewhere")
    made.Walk = Walk  # type: ignore[attr-defined]
    assert collect([made]) == {}
