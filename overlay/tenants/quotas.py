"""How much a leaf may ask of this node: token buckets by key (docs/design/security.md#quotas).

A leaf works for its own programs alone, so what it asks for is bounded by what one machine's
programs do. What is over the quota is refused and counted, and so costs no more than decoding. A
policy may give a tenant's leaves less, or more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.bounded import BoundedDict
from overlay.machine import Message, NodeId
from overlay.rights import Principal
from overlay.tenants.bucket import Bucket
from overlay.tenants.confining import Outcome
from overlay.tenants.policy import Confinement
from overlay.upper_tree.batches import weigh_event
from overlay.upper_tree.messages import EventsRefused, Register, Visit

EVENTS: Final = 10_000.0
"""Events per second of one leaf at one host: what one publishing process manages. Guess."""

BYTES: Final = 32.0 * 1024 * 1024
"""Bytes of events per second of one leaf at one host. Guess."""

REGISTRATIONS: Final = 1_000.0
"""Registrations per second of one leaf at one owner. Guess."""

QUESTIONS: Final = 200.0
"""Walks, lookups and questions per second of one leaf at one node. Guess."""

BURST: Final = 4.0
"""Seconds' worth that may come at once, …"""

START: Final = 20.0
"""… and of registrations: a program that starts registers all it wants. Guess."""

KEYS_MOST: Final = 65_536
"""Leaves whose buckets are kept."""

QUESTION_NAMES: Final = frozenset(
    ("Walk", "Find", "AskTree", "FindHosts", "AskTrees", "AskMatches", "AskEvent", "AskStream")
)


class Quotas:
    """The buckets of all leaves that ask this node for something."""

    def __init__(self, confinement: Callable[[], Confinement], now: Callable[[], float]) -> None:
        self._confinement = confinement
        self._now = now
        self._buckets: BoundedDict[tuple[NodeId, str], Bucket] = BoundedDict(KEYS_MOST)

    def outcome(self, sender: Principal, message: Message) -> Outcome | None:
        """What becomes of a leaf's message that is over its quota; None: it is not."""
        if isinstance(message, Visit):
            return self._visit(sender, message)
        if isinstance(message, Register):
            count = len(message.registrations)
            if not self._takes(sender, "registrations", count, REGISTRATIONS, START):
                return Outcome(None, (), count)
        elif type(message).__name__ in QUESTION_NAMES and not self._takes(
            sender, "questions", 1, QUESTIONS, BURST
        ):
            return Outcome(None, (), 1)
        return None

    def _visit(self, sender: Principal, message: Visit) -> Outcome | None:
        known = self._confinement()
        quota = known.of(sender.tenant).quota if sender.tenant else None
        events = float(quota.events) if quota and quota.events else EVENTS
        most = float(quota.bytes) if quota and quota.bytes else BYTES
        count = len(message.events)
        if not count:
            return None
        size = sum([weigh_event(e.attributes, e.payload) for e in message.events])
        if not self._takes(sender, "bytes", size, most, BURST):
            return self._refused(message, f"{most:,.0f} bytes per second")
        if self._takes(sender, "events", count, events, BURST):
            return None
        return self._refused(message, f"{events:,.0f} events per second")

    def _refused(self, message: Visit, what: str) -> Outcome:
        sequences = tuple([event.sequence for event in message.events])
        version, incarnation = self._confinement().version, message.events[0].incarnation
        answer = EventsRefused(incarnation, sequences, version, f"the quota is {what}")
        return Outcome(None, (answer,), len(sequences))

    def _takes(
        self, sender: Principal, what: str, wanted: float, rate: float, seconds: float
    ) -> bool:
        key = (sender.id, what)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket()
        else:
            self._buckets.move_to_end(key)
        return bucket.take(wanted, rate, rate * seconds, self._now())
