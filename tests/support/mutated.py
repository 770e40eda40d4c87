"""Messages that are changed at random, and are messages still: what a liar may send."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from overlay.machine import Message

NUMBERS = (0, 1, 2, 7, 1_000, 2**32, 2**52, 2**53 - 1)
FLOATS = (0.0, -1.0, 1e9, -1e9, float("inf"), float("-inf"), float("nan"))


def _changed(value: Any, rng: Random) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((*NUMBERS, value + 1, max(value - 1, 0), 2 * value))
    if isinstance(value, float):
        return rng.choice((*FLOATS, value + 1.0))
    if isinstance(value, bytes):
        return rng.choice((b"", value[:-1], value + b"\x00", bytes(reversed(value)), b"\xc1"))
    if isinstance(value, str):
        return rng.choice(("", "x", value + "x", value[:-1]))
    if isinstance(value, list) and value:
        place = rng.randrange(len(value))
        kind = rng.randrange(6)
        if kind == 0:
            return value[:place] + value[place + 1 :]
        if kind == 1:
            return [*value, value[place]]
        if kind == 2:
            return value[::-1]
        return [*value[:place], _changed(value[place], rng), *value[place + 1 :]]
    if isinstance(value, dict) and value:
        key = rng.choice(sorted(value))
        return {**value, key: _changed(value[key], rng)}
    return value


def mutated(message: Message, rng: Random) -> Message:
    """A message of the same type with another content, or the same if none is found."""
    encoded = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    tag, fields = encoded[0], encoded[1:]
    for _ in range(10):
        other = [tag, *_changed(fields, rng)]
        try:
            found = msgspec.msgpack.decode(msgspec.msgpack.encode(other), type=type(message))
        except msgspec.MsgspecError:
            continue
        if found != message:
            return found
    return message
