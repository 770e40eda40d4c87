"""What programs may put into events and commands, and what is refused before it is sent."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from canopy.client.errors import CommandFailed, EventRefusedError, SelectorRefusedError
from canopy.client.publication import Drafting
from canopy.client.session import PLAIN, ControlSession
from canopy.wire.transport.framing import COMMAND_FRAMES, LENGTH
from overlay.client import AppendEvents, BeginReading, Command, Draft, Publish, Subscribe
from overlay.client_types import COMMANDS
from overlay.stream_client import (
    AddStream,
    AttachGroup,
    BeginProducer,
    EditGroup,
    PrepareEvents,
)


class Text(str):
    __slots__ = ()


class Colour(enum.Enum):
    RED = "red"
    NONE = (1,)


UNFIT: list[Any] = [
    *([1], (1,), {1}, {"b": 1}, b"x", bytearray(b"x"), object(), Text("x"), Colour.NONE),
    *(decimal.Decimal("1.5"), datetime.datetime.now(), uuid.uuid4(), 1j, 2**70, "\ud800"),
]
FIT: list[Any] = [True, 1, -(2**63), 1.5, "ä", None, Colour.RED]


def publish(draft: Any) -> Command:
    return Publish(0, (Draft({"n": 1}), draft))


def append(draft: Any) -> Command:
    return AppendEvents(0, "s", (Draft({"n": 1}), draft))


def prepare(draft: Any) -> Command:
    return PrepareEvents(0, "s", "t", "p", (Draft({"n": 1}), draft))


def sent(command: Command) -> Command:
    """What a node makes of a command that a program sends."""
    return COMMAND_FRAMES.decode(ControlSession("here").encode(command, 1)[LENGTH.size :])


def type_name(value: object) -> str:
    """Names a case the same in each process of the suite: `repr` has times and addresses."""
    return type(value).__name__


@pytest.mark.parametrize("made", [publish, append, prepare])
@pytest.mark.parametrize("value", UNFIT, ids=type_name)
def test_values_that_no_attribute_has_are_refused_by_name(
    made: Callable[[Any], Command], value: object
) -> None:
    draft: Any = Draft({"a": 1, "x": value})  # type: ignore[dict-item]
    with pytest.raises(EventRefusedError, match="event 1: attribute 'x': ") as refused:
        sent(made(draft))
    assert refused.value.place == 1
    assert refused.value.behind(512).place == 513
    assert str(refused.value.behind(512)).startswith("event 513: attribute 'x'")


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        (Draft({"a": 1, "\ud800": 1}), "attribute '.ud800': the string has a lone surrogate"),
        (Draft({"a": 1}, b"x", "text/\ud800"), "payload_type: the string has a lone surrogate"),
    ],
)
def test_texts_that_utf_8_does_not_have_are_refused_by_name(draft: Draft, says: str) -> None:
    for made in (publish, append, prepare):
        with pytest.raises(EventRefusedError, match=f"event 1: {says}"):
            sent(made(draft))


@pytest.mark.parametrize("made", [publish, append, prepare])
@pytest.mark.parametrize("value", FIT, ids=type_name)
def test_values_that_an_attribute_may_have_arrive(
    made: Callable[[Any], Command], value: Any
) -> None:
    found: Any = sent(made(Draft({"x": value})))
    plain = value.value if isinstance(value, Colour) else value
    assert found.events[1].attributes == {"x": plain}
    assert type(plain) in PLAIN


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        (Draft({3: 3}), "attribute 3: a name is a text, not a int"),  # type: ignore[dict-item]
        (Draft({None: 3}), "attribute None: a name is a text"),  # type: ignore[dict-item]
        (Draft({"x": 1}, "text"), "the payload is bytes, not a str"),  # type: ignore[arg-type]
        (Draft({"x": 1}, b"", 5), "payload_type is a text"),  # type: ignore[arg-type]
        (Draft({"x": 1}, b"", "", "now"), "time a number"),  # type: ignore[arg-type]
    ],
)
def test_names_and_payloads_that_no_event_has_are_refused(draft: Draft, said: str) -> None:
    with pytest.raises(EventRefusedError, match=said):
        sent(publish(draft))


def test_what_is_no_event_is_refused() -> None:
    drafting: Any = Drafting()
    for event in (5, "text", [1, 2], None):
        with pytest.raises(EventRefusedError, match="an event is a mapping"):
            drafting.draft(event)


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (Subscribe(0, 5), "selector"),
        (Subscribe(0, "a = 1", latency_level="high"), "latency_level"),
        (AppendEvents(0, 5, (Draft({"a": 1}),)), "stream"),
        (BeginReading(0, "s", "", "first", 0, (("one", 1),)), r"positions\[0\]\[0\]"),
        (BeginReading(0, "s", "", "sometime"), "start"),
        (AttachGroup(0, "s", ""), "group"),
        (AttachGroup(0, "s", "g", lease="long"), "lease"),
    ],
)  # fmt: skip
def test_arguments_that_no_command_has_are_refused_by_name(command: Any, field: str) -> None:
    with pytest.raises(CommandFailed, match=f"^{field}: ") as refused:
        sent(command)
    assert refused.value.code == "usage"


def test_every_command_that_is_sent_is_one_that_a_node_decodes() -> None:
    """A field of any command with a value of a strange type is refused here: no kind is passed
    over."""
    for kind in COMMANDS.__args__:  # type: ignore[attr-defined]
        fields = [f for f in msgspec.structs.fields(kind) if f.required and f.name != "request"]
        if fields and all(field.name != "events" for field in fields):
            command = kind(0, *[object for _ in fields])
            with pytest.raises(CommandFailed):
                sent(command)
        elif fields:
            command = kind(0, *[() if f.name == "events" else math for f in fields])
            if len(fields) > 1:
                with pytest.raises(CommandFailed):
                    sent(command)


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (Subscribe(0, "n > > 1"), "selector", "write one of"),
        (BeginReading(0, "s", "n > > 1"), "selector", "write one of"),
        (BeginReading(0, "s", durable="a\n"), "usage", "printable"),
        (BeginReading(0, "s", positions=((0, -1),)), "usage", "an offset is 0 or more"),
        (AttachGroup(0, "s", "g", "m", selector="n > > 1"), "selector", "write one of"),
        (AttachGroup(0, "s", "g\n", "m"), "usage", "names of groups and members"),
        (EditGroup(0, "s", "g", "n > > 1"), "selector", "write one of"),
        (BeginProducer(0, "s", "@p"), "usage", "does not begin with @"),
        (BeginProducer(0, "s", "p" * 129), "usage", "at most 128"),
        (PrepareEvents(0, "s", "t", "p", ()), "usage", "one event at least"),
        (PrepareEvents(0, "s", "", "p", (Draft({}),)), "usage", "a transaction's id"),
        (AddStream(0, "s "), "usage", "no space at its ends"),
    ],
)
def test_a_command_is_refused_before_it_is_sent(command: Command, code: str, said: str) -> None:
    """In the words of the node, which calls the same functions."""
    with pytest.raises(CommandFailed, match=said) as refused:
        ControlSession("here").encode(command, 1)
    assert refused.value.code == code
    assert isinstance(refused.value, SelectorRefusedError) == (code == "selector")
