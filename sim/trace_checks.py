"""What must be true of the trace records of a run: walks as in CRAWL, short tree paths, counting.

Deliveries do not show whether a walk respects its trace list or whether a tree path has the tree's
height: both only cost more. The records do:

* a walk never goes where its trace list says that it has just been (C3), never further than its
  limit and the halved limits of its recoveries allow (C4), and ends once,
* in a quiet overlay an event needs at most the tree's height, and one message to enter (C7),
* there a node sends no more than `fan_out` copies of an event each time that it comes by (C11),
* counting accepts an event only when some conjunction has all its attributes (C8).
"""

from __future__ import annotations

from collections.abc import Iterable

from matching import compile_selector
from sim.checkers import Violation
from sim.recorder import Record
from sim.world import World

MOST = 20
"""Violations of one kind that are told; a broken rule breaks everywhere."""


class WalkSeen:
    """One attribute on one walk."""

    __slots__ = ("ends", "hops", "limit", "trace")

    def __init__(self, origin: str, limit: int) -> None:
        self.trace = [origin]
        self.limit = limit
        self.hops = 0
        self.ends = 0


def check_walks(records: Iterable[Record], trace: int) -> list[Violation]:
    """`trace`: length of the trace list in the settings."""
    walks: dict[tuple[str, str], WalkSeen] = {}
    violations: list[Violation] = []
    for record in records:
        if not record.kind.startswith("walk_"):
            continue
        key = (record.fields["walk"], record.fields["attribute"])
        if record.kind == "walk_start":
            walks[key] = WalkSeen(record.node, record.fields["hops"])
            continue
        walk = walks.get(key)
        if walk is None:
            continue  # began before the records that were kept
        text = _step(walk, record, trace)
        if text and len(violations) < MOST:
            violations.append(Violation("walk", f"{key[0]} for {key[1]}: {text}"))
    return violations


def _step(walk: WalkSeen, record: Record, trace: int) -> str:
    """Follow one record; what is wrong with it, or ""."""
    match record.kind:
        case "walk_hop":
            walk.trace = [n for n in walk.trace if n != record.node]
            walk.trace = [*walk.trace, record.node][-trace:]
            walk.hops += 1
            if record.fields["peer"] in walk.trace:
                return f"goes to {record.fields['peer']}, which is in its trace"
            if walk.hops > walk.limit:
                return f"hop {walk.hops} of {walk.limit}"
        case "walk_recovered":
            # The step to the trace's node counts as a hop, and half of the limit begins there.
            walk.trace = [n for n in walk.trace if n != record.node]
            walk.trace = [*walk.trace, record.node][-trace:]
            walk.hops = 0
            walk.limit //= 2
            if walk.limit < 1:
                return "recovers although its limit cannot be halved"
        case "walk_hit" | "walk_miss":
            walk.ends += 1
            if walk.ends > 1:
                return "ends twice"
    return ""


def check_paths(records: Iterable[Record], heights: dict[str, int]) -> list[Violation]:
    """Visits of a quiet time: at most one message to enter and one per level of the tree."""
    violations = []
    for record in records:
        if record.kind == "visit":
            attribute, hop = record.fields["attribute"], record.fields["hop"]
            most = heights.get(attribute, 1) + 1
            if hop > most:
                text = f"{record.fields['event']} took {hop} messages in {attribute}, not {most}"
                violations.append(Violation("path", text, (record.fields["event"],)))
    return violations[:MOST]


def check_copies(records: Iterable[Record], most: int) -> list[Violation]:
    """Copies that nodes sent to interested nodes in a quiet time with pivot routing.

    At most `most` each time that the event was matched at the node, or came to it as a delegate.
    (The trees of one visit share one fan-out; whether visits came together the records do not say.)
    Of an event of which a copy did not arrive nothing is said: it was sent again, another way, or
    given back to its host by a delegate, who sends it then.
    """
    came: dict[tuple[str, str], int] = {}
    sent: dict[tuple[str, str], int] = {}
    received: dict[tuple[str, str], int] = {}
    for record in records:
        if record.kind in ("match", "arrive", "forward"):
            event = record.fields["event"]
            counts = sent if record.kind == "forward" else came
            counts[record.node, event] = counts.get((record.node, event), 0) + 1
            if record.kind == "arrive":
                sender = (record.fields["peer"], event)
                received[sender] = received.get(sender, 0) + 1
    lost = {event for (node, event), count in sent.items() if received.get((node, event)) != count}
    return [
        Violation("copies", f"{node} sent {count} copies of {event}", (event,))
        for (node, event), count in sent.items()
        if event not in lost and count > most * came.get((node, event), 0)
    ][:MOST]


def check_counting(world: World) -> list[Violation]:
    """An event that counting accepted and the recheck refused had some conjunction's attributes."""
    events = {event.identity: event.attributes for event in world.clients.publications}
    names = world.identities
    conjunctions: dict[str, list[object]] = {}
    for subscription in world.clients.subscriptions:
        found = compile_selector(subscription.selector).conjunctions
        conjunctions.setdefault(subscription.node, []).extend(found)
    violations = []
    for record in world.recorder.records:
        if record.kind != "recheck_failed":
            continue
        attributes = events.get(record.fields["event"])
        if attributes is None:
            continue  # its publisher died before it could say the identity
        if not any(
            all(c.predicate().matches(attributes) for c in conjunction.constraints.values())  # type: ignore[attr-defined]
            for conjunction in conjunctions.get(names.get(record.node, ""), [])
        ):
            text = f"{record.fields['event']} was accepted at {record.node} half-counted"
            violations.append(Violation("counting", text, (record.fields["event"],)))
    return violations[:MOST]
