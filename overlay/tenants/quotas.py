"""Bounds a leaf's requests to this node: token buckets by key (docs/design/security.md#quotas).

A leaf works for its own programs alone, so what it asks for is bounded by what one machine's
programs do. What is over the quota is refused and counted, and so costs no more than decoding. The
leaf hears when to come again, in a message that is smaller than what it has asked, at most
`ANSWERS` times a second. A policy may give a tenant's leaves less, or more.

How fast registrations are taken is up to their owner
(overlay/upper_tree/owner/registrations/leaf_inbox.py); here is what a leaf may send that does not
keep to that.
"""

from __future__ import annotations

from typing import Final

import msgspec

from overlay.bounded import BoundedDict
from overlay.machine import Message, NodeId, Port
from overlay.rights import Principal
from overlay.tenants.confinement import Ruling
from overlay.tenants.policy import Bucket, PolicySource
from overlay.upper_tree.batches import weigh_events
from overlay.upper_tree.messages import ComeAgain, EventsRefused, Register, Visit

EVENTS: Final = 10_000.0
"""Events per second of one leaf at one host: what one publishing process manages. Guess."""

BYTES: Final = 32.0 * 1024 * 1024
"""Bytes of events per second of one leaf at one host. Guess."""

REGISTRATIONS: Final = 2_000.0
"""Registrations per second of one leaf at one owner: thrice what that takes of all leaves, so that
a leaf that keeps to what it is told is never refused here. Guess."""

QUESTIONS: Final = 200.0
"""Walks, lookups and questions per second of one leaf at one node. Guess."""

BURST: Final = 4.0
"""Seconds' worth that may come at once, …"""

REFUSED_MOST: Final = 16.0
REFUSED_RATE: Final = 0.1
"""Messages beyond its role that a node may send at once, and per second, before it is held against
it. A node may be made to say what is not for it, by what others say to it: such a message is left
out, and no more. Guess."""

ANSWERS: Final = 8.0
"""Answers per second to one leaf that says when to come again."""

KEYS_MOST: Final = 65_536
"""Leaves whose buckets are kept."""

LONG_FROM: Final = 256
"""Bytes of a selector beyond which it counts as long: compiling takes up to 4 ms per KiB
(measured)."""

LONG_BYTES: Final = 32.0 * 1024
LONG_BURST: Final = 2.0
"""Bytes of long selectors per second of one leaf at one node: an eighth of a processor; so that
what comes at once takes less than `election.suspect_after`, also where it is narrowed as well."""

QUESTION_COSTS: Final = {
    **dict.fromkeys(("Walk", "Find", "AskTree", "FindHosts", "AskMatches", "AskEvent"), 1),
    **dict.fromkeys(("AskStream", "AskStreams", "AskShards", "AskNeighbourhood", "Contact"), 1),
    **dict.fromkeys(("AskClock", "Shuffle", "CacheReport"), 1),
    **dict.fromkeys(("AskTrees", "Renew"), 10),  # all registrations of a tree are gone through
    **dict.fromkeys(("DocumentVersion", "RevocationsKnown"), 20),  # answered by up to 1 MB
}
"""The number of questions that one counts for, by the name of the message."""


class Quotas:
    """The buckets of all leaves that ask this node for something."""

    def __init__(self, port: Port, policies: PolicySource) -> None:
        self._port = port
        self._policies = policies
        self._buckets: BoundedDict[tuple[NodeId, str], Bucket] = BoundedDict(KEYS_MOST)

    def pardons(self, sender: Principal) -> bool:
        """Return whether to tolerate a message that the sender's role may not send, because it has
        sent few of them."""
        return self._takes(sender, "refused", 1.0, REFUSED_RATE, REFUSED_MOST / REFUSED_RATE)

    def outcome(self, sender: Principal, message: Message) -> Ruling | None:
        """Return how a leaf's message that exceeds its quota is handled; None if the message is
        within the quota."""
        if isinstance(message, Visit):
            return self._visit(sender, message)
        if isinstance(message, Register):
            count = len(message.registrations)
            if not self._takes(sender, "registrations", count, REGISTRATIONS, BURST):
                keys = tuple([(one.attribute, one.id) for one in message.registrations])
                reason = f"a leaf may send {REGISTRATIONS:,.0f} registrations per second"
                return self._later(sender, message, count, count / REGISTRATIONS, reason, keys)
        cost = QUESTION_COSTS.get(type(message).__name__, 0)
        if cost and not self._takes(sender, "questions", cost, QUESTIONS, BURST):
            reason = f"a leaf may ask {QUESTIONS:,.0f} questions per second"
            return self._later(sender, message, 1, cost / QUESTIONS, reason, ())
        return None

    def _later(
        self,
        sender: Principal,
        message: Message,
        count: int,
        seconds: float,
        reason: str,
        keys: tuple[tuple[str, str], ...],
    ) -> Ruling:
        """Nothing of it is taken, and the leaf hears so unless it has heard so often."""
        if not self._takes(sender, "answers", 1, ANSWERS, 1.0):
            return Ruling(None, (), count)
        answer = ComeAgain(type(message).__name__, max(1.0, seconds), reason, keys)
        return Ruling(None, (answer,), count)

    def shortened(self, sender: Principal, message: Message) -> tuple[Message | None, int]:
        """A leaf's message without long selectors that are over its quota, and how many these are;
        None: nothing is left. It is sent again while its programs want it."""
        if isinstance(message, Register):
            taken = tuple(
                [one for one in message.registrations if self._compiles(sender, one.selector)]
            )
            cut = len(message.registrations) - len(taken)
            if not cut:
                return message, 0
            left = msgspec.structs.replace(message, registrations=taken)
            return (left if taken else None), cut
        if type(message).__name__ == "ReadShard":
            selector: str = getattr(message, "selector", "")
            return (message, 0) if self._compiles(sender, selector) else (None, 1)
        return message, 0

    def _compiles(self, sender: Principal, selector: str) -> bool:
        beyond = len(selector) - LONG_FROM
        return beyond <= 0 or self._takes(sender, "selectors", beyond, LONG_BYTES, LONG_BURST)

    def _visit(self, sender: Principal, message: Visit) -> Ruling | None:
        known = self._policies.confinement
        quota = known.of(sender.tenant).quota if sender.tenant else None
        events = float(quota.events) if quota and quota.events else EVENTS
        most = float(quota.bytes) if quota and quota.bytes else BYTES
        count = len(message.events)
        size = sum(weigh_events(message.events))
        if not self._takes(sender, "bytes", size, most, BURST):
            return self._refused(message, f"{most:,.0f} bytes per second")
        if self._takes(sender, "events", count, events, BURST):
            return None
        return self._refused(message, f"{events:,.0f} events per second")

    def _refused(self, message: Visit, what: str) -> Ruling:
        sequences = tuple([event.sequence for event in message.events])
        version, incarnation = self._policies.confinement.version, message.events[0].incarnation
        answer = EventsRefused(incarnation, sequences, version, f"the quota is {what}")
        return Ruling(None, (answer,), len(sequences))

    def _takes(
        self, sender: Principal, what: str, wanted: float, rate: float, seconds: float
    ) -> bool:
        key = (sender.id, what)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket()
        else:
            self._buckets.move_to_end(key)
        return bucket.take(wanted, rate, rate * seconds, self._port.now)
