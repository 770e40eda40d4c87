"""Delegated fan-out: who passes an event on to whom (C11).

A node that has many recipients for an event sends it to at most `most` of them. Those are its
*delegates*: each gets, with the event, its share of the other recipients, and does with it what the
host did with the whole. So no node sends more than `most` copies of an event, and n recipients are
reached after log n (to the base `most`) messages.

    host ──► d1 ──► r1, r4          most = 3, nine recipients
        ├──► d2 ──► r2, r5
        └──► d3 ──► r3, r6

Recipients take turns in it. Were the first of them always the delegates, a node that is interested
in nearly everything would come first in every list and work for all the others. Where the row of
delegates begins is a hash of the event and of the node that sends it: the same for whoever works it
out, another one from host to host. A publisher's next events have the same delegates for a while
(`RUN`), so that the events of one visit travel together and links are not opened for one event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")

RUN = 64
"""Events of a publisher in a row that have the same delegates: as many as a visit has in a busy
turn. Wild guess; with one, each event of a visit would go its own way, in frames of its own."""


def turn(publisher: str, incarnation: int, sequence: int, sender: str) -> int:
    """Whose turn it is, for `spread`, when this node sends this event."""
    return crc32(f"{publisher} {incarnation} {sequence // RUN} {sender}".encode())


def spread(recipients: Sequence[T], most: int, turn: int = 0) -> list[tuple[T, tuple[T, ...]]]:
    """At most `most` delegates, each with its share of the rest; the shares differ by one at most.

    The delegates are those from place `turn` on, counted round and round. Up to `most` recipients
    everybody is sent the event directly: all shares are empty.
    """
    if len(recipients) > most:
        first = turn % len(recipients)
        recipients = [*recipients[first:], *recipients[:first]]
    delegates, rest = recipients[:most], recipients[most:]
    return [(each, tuple(rest[number::most])) for number, each in enumerate(delegates)]
