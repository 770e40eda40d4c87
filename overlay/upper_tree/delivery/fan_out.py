"""Delegated fan-out: how many copies of an event a node sends, and who passes it on (C11).

**Delegates.** A node that has many recipients for an event sends it to at most `most` of them.
Those are its *delegates*: each gets, with the event, its share of the other recipients, and does
with it what the host did with the whole. So n recipients are reached after log n (to the base
`most`) messages.

    host ──► d1 ──► r1, r4          most = 3, nine recipients
        ├──► d2 ──► r2, r5
        └──► d3 ──► r3, r6

Recipients take turns in being delegates. Were the first of them always the delegates, a node that
is interested in nearly everything would come first in every list and work for all the others. Where
the row of delegates begins is a hash of the event and of the node that sends it: the same whenever
it is computed, another one from host to host. A publisher's next events have the same delegates for
a while (`DELEGATE_RUN`), so that the events of one visit travel together and links are not opened
for one event.

**Budget.** One node may be the publisher of an event, host of a tree that the event visits, and
delegate of other hosts, all at once, and may be handed the event several times. `tree.fan_out`
limits all of that together, so the node counts. Whatever is handed to it has to go on, and with no
budget left it could send it nowhere. So some is held back: a handling may take all but a quarter of
the budget, and of that last quarter half of what is left. With a budget of 16 that is 12, 2, 1 and
1 copies. Each handling may send at least one (its one delegate has more), so a node that is handed
an event still more often exceeds the budget by one each time; more than three times was not seen in
the load of CBDLO's evaluation. Delegating costs no message, only hops: every interested node is
sent one copy, from whichever node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from zlib import crc32

from matching import Interval
from overlay.client import Event
from overlay.machine import NodeId, Peer, ProtocolError
from overlay.upper_tree.delivery.constants import COUNTED_MOST, DELEGATE_RUN
from overlay.upper_tree.delivery.event_counts import EventCounts, EventSource, by_source
from overlay.upper_tree.messages import DelegateShare


class Recipient(NamedTuple):
    """An interested node, and the virtual node that found it."""

    peer: Peer
    attribute: str
    interval: Interval
    previous: int = 0
    life: int = 0
    token: bytes = b""
    """All three as in `Deliver`."""


def shares_of(recipients: Iterable[Recipient]) -> tuple[DelegateShare, ...]:
    """Recipients grouped by the virtual node that found them."""
    found: dict[tuple[str, Interval], list[Recipient]] = {}
    for each in recipients:
        found.setdefault((each.attribute, each.interval), []).append(each)
    return tuple(
        DelegateShare(
            *key,
            tuple([each.peer for each in some]),
            tuple([each.previous for each in some]) if any(each.previous for each in some) else (),
            tuple([each.life for each in some]) if any(each.life for each in some) else (),
            tuple([each.token for each in some]) if any(each.token for each in some) else (),
        )
        for key, some in found.items()
    )


def recipients_of(shares: Iterable[DelegateShare]) -> list[Recipient]:
    """The recipients that `shares` name, one by one: the inverse of `shares_of`.

    Raises ProtocolError if a share has not a number, life and token for each of its peers."""
    found: list[Recipient] = []
    for share in shares:
        if share.previous and len(share.previous) != len(share.peers):
            raise ProtocolError("previous events do not fit the recipients")
        if share.lives and len(share.lives) != len(share.peers):
            raise ProtocolError("lives do not fit the recipients")
        if share.tokens and len(share.tokens) != len(share.peers):
            raise ProtocolError("tokens do not fit the recipients")
        nothing = (0,) * len(share.peers)
        previous, lives = share.previous or nothing, share.lives or nothing
        tokens = share.tokens or (b"",) * len(share.peers)
        found += [
            Recipient(peer, share.attribute, share.interval, number, life, token)
            for peer, number, life, token in zip(share.peers, previous, lives, tokens, strict=True)
        ]
    return found


# --- by which delegate a node last sent each publisher's events to whom (C11) ---
#
# An event with many recipients is passed on by delegates, one with few is sent directly, and the
# delegates change: of two events that a host sends one node, the later may overtake the earlier. So
# where the way to a node changes, the number of the event that went the way before goes along, and
# the node waits for that one (subscriber/publication_order.py). Where it does not change, links are
# FIFO, and nothing is said.

Way = tuple[EventSource, NodeId]
"""Events of a source for a node."""


class LastSent:
    """The numbers of the last events that one node sent to each other node, by source and delegate.
    Bounded by the events sent within twice `window`; times are seconds."""

    def __init__(self, window: float) -> None:
        """`window`: after so long an event has arrived (`tree.order_hold`)."""
        self._window = window
        self._since = 0.0
        self._sent: dict[Way, tuple[int, NodeId]] = {}  # number, delegate ("": none)
        self._older: dict[Way, tuple[int, NodeId]] = {}

    def __len__(self) -> int:
        return len(self._sent) + len(self._older)

    def sends(
        self, source: EventSource, node: NodeId, first: int, last: int, by: NodeId, now: float
    ) -> int:
        """Events from number `first` to `last` leave for a node, by a delegate ("": directly).
        Returns the number of the one before, if that went another way lately, else 0."""
        if not self._window:
            return 0
        if now - self._since >= self._window:
            self._older = self._sent if now - self._since < 2 * self._window else {}
            self._sent, self._since = {}, now
        way = (source, node)
        number, way_before = self._sent.get(way) or self._older.get(way) or (0, by)
        self._sent[way] = (max(number, last), by)
        return number if way_before != by and number < first else 0


T = TypeVar("T")
Part = tuple[T, tuple[T, ...]]
"""A delegate with its share of the rest."""


def rotation(publisher: str, incarnation: int, sequence: int, sender: str) -> int:
    """The `first_delegate` (see `in_turn`) for an event that this node sends."""
    return crc32(f"{publisher} {incarnation} {sequence // DELEGATE_RUN} {sender}".encode())


def spread(recipients: Sequence[T], most: int) -> list[Part[T]]:
    """At most `most` delegates, the first of the recipients, each with its share of the rest; the
    shares differ by one at most. Up to `most` recipients are all sent the event directly: their
    shares are empty."""
    delegates, rest = recipients[:most], recipients[most:]
    return [(each, tuple(rest[number::most])) for number, each in enumerate(delegates)]


def in_turn(recipients: Sequence[T], first_delegate: int) -> list[T]:
    """The recipients, beginning with that from index `first_delegate` on, modulo their number."""
    first = first_delegate % len(recipients) if recipients else 0
    return [*recipients[first:], *recipients[:first]]


def share_out(near: Sequence[T], far: Sequence[Part[T]], most: int) -> list[Part[T]]:
    """Choose at most `most` delegates (at least 1): the first of the recipients `near`, and for
    each other region in `far` its access node, with its share.

    A part of `far` is never divided, and near recipients are never shared out to other regions.
    Where there is no room for all access nodes, a near delegate passes the event on to some.
    """
    own = 1 if near else 0
    direct, rest = list(far[: most - own]), far[most - own :]
    parts = spread(near, most - len(direct)) if near else direct
    passed: list[list[T]] = [[] for _ in parts]
    for number, (access, share) in enumerate(rest):
        passed[number % len(parts)] += (access, *share)
    parts = [(each, (*share, *more)) for (each, share), more in zip(parts, passed, strict=True)]
    return [*parts, *direct] if near else parts


class CopyBudget(EventCounts):
    """The number of copies of each event that one node has sent (`add`), and may send, and the way
    of each."""

    def __init__(self, most: int, kept: int = COUNTED_MOST, window: float = 0.0) -> None:
        """`most`: copies of one event (`tree.fan_out`); `kept` in events; `window`: seconds after
        which an event has arrived (`tree.order_hold`)."""
        super().__init__(kept)
        self.most = most
        self.last = LastSent(window)

    def room(self, event: Event) -> int:
        """Return how many copies of the event may be sent now; at least one."""
        left = self.most - self.of(event)
        reserve = self.most // 4
        return left - reserve if left > reserve else max(1, left // 2)

    def spend_all(self, events: Sequence[Event], copies: Mapping[int, int]) -> bool:
        """Take the given number of copies of each event (by index) out of the budget, without the
        reserve that `room` keeps for later. Return False, and take nothing, if the budget is not
        known to have room for all of them."""
        sources = by_source(events)
        if len(sources) > 1:
            return False
        ((source, numbers),) = sources.items()
        amounts = {numbers[place]: count for place, count in copies.items()}
        counts = self._counts.get(source)
        if counts is None or counts.keys().isdisjoint(amounts):
            most = max(amounts.values(), default=0)
        else:
            most = max([counts.get(number, 0) + amount for number, amount in amounts.items()])
        if most > self.most - self.most // 4:
            return False
        self.add_each(source, amounts)
        return True
