"""What a feed is read as, for the tests of its formats."""

from __future__ import annotations

import io
from typing import Any

from canopy.feeds import FeedEvent, Item, Refusal, read_feed
from overlay.client import Draft


def read(data: bytes | str, format: str = "auto") -> list[Item]:
    """All events and refusals of a feed."""
    raw = data.encode() if isinstance(data, str) else data
    return list(read_feed(io.BytesIO(raw), format))


def one(data: bytes | str, format: str = "auto") -> Draft:
    """The only event of a feed."""
    (item,) = read(data, format)
    assert isinstance(item, FeedEvent), item
    return item.draft


def reason(data: bytes | str, format: str = "auto") -> str:
    """Why the only item of a feed is refused."""
    (item,) = read(data, format)
    assert isinstance(item, Refusal), item
    return item.reason


def exactly(value: Any) -> Any:
    """A form in which 1, 1.0 and True differ, and the order of names does not matter."""
    if isinstance(value, dict):
        return {name: exactly(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [exactly(inner) for inner in value]
    return (type(value), value)
