"""Delegated fan-out: who passes an event on to whom (C11).

A node that has many recipients for an event sends it to at most `most` of them. Those are its
*delegates*: each gets, with the event, its share of the other recipients, and does with it what the
host did with the whole. So no node sends more than `most` copies of an event, and n recipients are
reached after log n (to the base `most`) messages.

    host ──► d1 ──► r1, r4          most = 3, nine recipients
        ├──► d2 ──► r2, r5
        └──► d3 ──► r3, r6

The delegates are the first of the recipients in the order of their matching, which is nearly the
same for events that match the same subscriptions: they mostly use links that are there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def spread(recipients: Sequence[T], most: int) -> list[tuple[T, tuple[T, ...]]]:
    """At most `most` delegates, each with its share of the rest; the shares differ by one at most.

    Up to `most` recipients everybody is sent the event directly: all shares are empty.
    """
    delegates, rest = recipients[:most], recipients[most:]
    return [(each, tuple(rest[number::most])) for number, each in enumerate(delegates)]
