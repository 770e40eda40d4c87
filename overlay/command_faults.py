"""Finds faults of a program's command in the command alone.

The client library looks before it sends a command, and the node when it has come, with these
functions: a program is refused at once, and in the same words. A fault is the code and the reason
of a `Failed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from matching import SelectorError, compile_selector
from overlay.client import BeginReading, Command, Subscribe
from overlay.stream_client import (
    AddStream,
    AttachGroup,
    BeginProducer,
    EditGroup,
    PrepareEvents,
)

SELECTOR_MOST: Final = 16 * 1024
"""The limit of characters of a selector (`matching.selector.expression.MAX_TEXT`)."""

STREAM_NAME_MOST: Final = 200
"""The limit of characters of a stream's name. File names come from ids, never from names; the limit
is that of Kafka's topics (249), rounded down."""

PRODUCER_NAME_MOST: Final = 128
"""The limit of characters of a producer's name."""

TRANSACTION_MOST: Final = 128
"""The limit of characters of a transaction's id."""

NODE_PREFIX: Final = "@"
"""The first character of the name of a node's own producer, before the node's id. No name of a
program's producer begins with it."""

Fault = tuple[str, str]


def fault_in(command: Command) -> Fault | None:
    """The fault of a command; None: there is none that is seen in it alone."""
    look = _LOOKS.get(type(command))
    return None if look is None else look(command)


def refused_selector(error: SelectorError) -> Fault:
    """The fault of a subscription's selector that cannot be compiled."""
    return "selector", f"{error}\n{error.caret()}"


def fault_in_rows_selector(selector: str) -> Fault | None:
    """The fault of a selector of a stream's rows; "" selects all."""
    if len(selector) > SELECTOR_MOST:
        return "selector", f"a selector has at most {SELECTOR_MOST} characters"
    try:
        if selector:
            compile_selector(selector)
    except SelectorError as error:
        return "selector", error.caret()
    return None


def fault_in_reading(command: BeginReading) -> Fault | None:
    """Return why a reading cannot begin; None if it can."""
    if fault := fault_in_rows_selector(command.selector):
        return fault
    if not command.durable.isprintable():
        return "usage", "a durable consumer's name has printable characters only"
    if command.resume and not (command.durable and command.token):
        return "usage", "only a durable consumer with a token can go on"
    if command.packed and command.durable:
        return "usage", "a durable consumer's rows are not packed: which it has taken is recorded"
    if command.shard >= 0 and command.durable:
        return "usage", "a durable consumer reads all shards"
    if command.start == "keys" and command.durable:
        return "usage", "a durable consumer begins in the history, not with the newest rows"
    if any(position < 0 for _, position in (*command.positions, *command.tables)):
        return "usage", "an offset is 0 or more"
    return None


def fault_in_group(command: AttachGroup | EditGroup) -> Fault | None:
    """Return what is wrong with a command to join or to change a group, the group's options aside;
    None if nothing is."""
    if fault := fault_in_rows_selector(command.selector or ""):
        return fault
    member = command.name if isinstance(command, AttachGroup) else ""
    if not (command.group.isprintable() and member.isprintable()):
        return "usage", "names of groups and members have printable characters only"
    return None


def fault_in_producer(command: BeginProducer) -> Fault | None:
    """Return why a program cannot append as a producer; None if it can."""
    name = command.producer
    if not name or name.startswith(NODE_PREFIX):
        return "usage", f"a producer has a name that does not begin with {NODE_PREFIX}"
    if len(name) > PRODUCER_NAME_MOST or not name.isprintable():
        return "usage", f"a producer's name has at most {PRODUCER_NAME_MOST} printable characters"
    if command.resumed and not command.token:
        return "usage", "only a program with a token can go on as a producer"
    return None


def fault_in_transaction(command: PrepareEvents) -> Fault | None:
    """Return why a transaction cannot be prepared, apart from its events; None if it can."""
    if not command.events:
        return "usage", "a transaction has one event at least"
    for what, name, most in (
        ("a transaction's id", command.transaction, TRANSACTION_MOST),
        ("a producer's name", command.producer, PRODUCER_NAME_MOST),
    ):
        if not 0 < len(name) <= most or not name.isprintable() or name.startswith(NODE_PREFIX):
            said = f"{what} has 1 to {most} printable characters, the first no {NODE_PREFIX}"
            return "usage", said
    return None


def fault_in_stream_name(name: str) -> str:
    """Return why a stream cannot have this name; "" if it can."""
    if not name:
        return "a stream needs a name"
    if len(name) > STREAM_NAME_MOST:
        return (
            f"a stream's name has at most {STREAM_NAME_MOST} characters, this one has {len(name)}"
        )
    if not name.isprintable() or name != name.strip():
        return "a stream's name has no control characters, and no space at its ends"
    return ""


def _of_subscription(command: Subscribe) -> Fault | None:
    try:
        compile_selector(command.selector)
    except SelectorError as error:
        return refused_selector(error)
    return None


def _of_stream(command: AddStream) -> Fault | None:
    fault = fault_in_stream_name(command.name)
    return ("usage", fault) if fault else None


_LOOKS: Final[dict[type, Callable[[Any], Fault | None]]] = {
    Subscribe: _of_subscription,
    BeginReading: fault_in_reading,
    AttachGroup: fault_in_group,
    EditGroup: fault_in_group,
    BeginProducer: fault_in_producer,
    PrepareEvents: fault_in_transaction,
    AddStream: _of_stream,
}
