"""Divides work into messages that fit: one that no frame can carry would be lost on the link.

Weights are estimates of the encoded size that are never far too low; `BATCH_BYTES` leaves room for
a batch's one last item of the largest size, so that a message stays under the links' bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from overlay.client import Draft, Event
from overlay.links.messages import MAX_BODY
from overlay.upper_tree.messages import Registration

ITEM_MOST = MAX_BODY // 2
"""The largest event or registration that is taken, in bytes."""

BATCH_BYTES = MAX_BODY // 4
"""Bytes after which a batch is closed."""

BATCH_ITEMS = 256
"""Items after which a batch is closed: 256 was as good as more in measurements of the wire."""

MAX_BATCH = 4_096
"""Registrations or attributes in one message; a node splits longer lists. Not measured;
would be measured by the longest turn that such a message makes."""

HEAD = 16
"""Bytes around one value: tag, length and number. A generous count of MessagePack's."""

KINDS = 1_024
"""Sets of attributes whose weight is remembered. Not measured; would be measured by the kinds of
events that a busy publisher has."""

T = TypeVar("T")


def in_batches(
    items: Iterable[T], weigh: Callable[[T], int], most: int = BATCH_ITEMS
) -> Iterator[tuple[T, ...]]:
    """The items in order, cut so that each batch fits into one message."""
    batch: list[T] = []
    size = 0
    for item in items:
        batch.append(item)
        size += weigh(item)
        if size >= BATCH_BYTES or len(batch) >= most:
            yield tuple(batch)
            batch, size = [], 0
    if batch:
        yield tuple(batch)


def cut_evenly(items: Sequence[T], largest: int) -> Iterator[tuple[T, ...]]:
    """As `in_batches`, for items none of which exceeds `largest` bytes, without weighing each."""
    step = max(1, min(BATCH_ITEMS, BATCH_BYTES // max(largest, 1)))
    for start in range(0, len(items), step):
        yield tuple(items[start : start + step])


def weigh_text(text: str) -> int:
    """Estimated bytes of a text: exact for ASCII, four per character else."""
    return HEAD + (len(text) if text.isascii() else 4 * len(text))


def weigh_event(event: Event | Draft) -> int:
    """Estimated bytes of an event; text that is not ASCII counts four bytes a character."""
    return weigh_events((event,))[0]


def weigh_events(events: Iterable[Event | Draft]) -> list[int]:
    """`weigh_event` of each of these."""
    found: list[int] = []
    for event in events:
        size = 8 * HEAD + len(event.payload) + weigh_names(tuple(event.attributes))
        for value in event.attributes.values():
            if isinstance(value, str):
                size += len(value) if value.isascii() else 4 * len(value)
        found.append(size)
    return found


def weigh_whole(event: Event) -> int:
    """Estimated bytes of an event with its proof."""
    proof = 0 if event.proof is None else len(event.proof)
    return weigh_event(event) + proof


@lru_cache(maxsize=KINDS)
def weigh_names(names: tuple[str, ...]) -> int:
    """Estimated bytes of an event's attributes without the characters of its texts."""
    return sum(map(weigh_text, names)) + HEAD * len(names)


def weigh_registration(registration: Registration) -> int:
    """Estimated bytes of a registration. Its interval's bounds come out of its selector."""
    attribute, selector = registration.attribute, registration.selector
    if attribute.isascii() and selector.isascii():  # as `weigh_text`, without its calls
        return 20 * HEAD + len(attribute) + 3 * len(selector)
    return 16 * HEAD + weigh_text(attribute) + 3 * weigh_text(selector)
