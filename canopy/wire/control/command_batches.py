"""Which commands of a program are carried out together, and what is done to one before: a long
selector is compiled, in steps; events are given the time of their arrival."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import trio

from canopy.wire.constants import LONG_SELECTOR, REGISTERED_TOGETHER
from matching import SelectorError, compile_in_steps
from overlay.client import AppendEvents, Command, Draft, Publish, Subscribe, Unsubscribe

REGISTERING: Final = frozenset({Subscribe, Unsubscribe})
"""Kinds of commands that are carried out together."""


def fits(command: Command, together: Sequence[Command]) -> bool:
    """Whether a command is carried out in one turn with those before it."""
    kind, first = type(command), together[0]
    if kind is Publish or kind is AppendEvents:
        return type(first) is kind
    if kind not in REGISTERING or type(first) not in REGISTERING:
        return False
    is_long = has_long_selector(command) or has_long_selector(first)
    return not is_long and len(together) < REGISTERED_TOGETHER


def has_long_selector(command: Command) -> bool:
    """Whether a command has a selector that takes a turn of its own."""
    return isinstance(command, Subscribe) and len(command.selector) > LONG_SELECTOR


async def compile_long(selector: str) -> None:
    """Compile a long selector before the node asks for it, with its other inputs in between. One
    that does not compile is the node's to refuse."""
    with contextlib.suppress(SelectorError):
        for _ in compile_in_steps(selector):
            await trio.lowlevel.checkpoint()


def stamp(publish: Publish, now: float) -> Publish:
    """`publish` with the time of its arrival in every draft that has none."""
    if 0.0 not in [draft.time for draft in publish.events]:
        return publish
    drafts = tuple(
        draft if draft.time else Draft(draft.attributes, draft.payload, draft.payload_type, now)
        for draft in publish.events
    )
    return Publish(publish.request, drafts, publish.receipt)
