"""Invariants of the trace records of a run: walks as in CRAWL, short tree paths, counting.

Deliveries do not show whether a walk respects its trace list or whether a tree path has the tree's
height: a violation only costs more. The records show:

* a walk never goes to a node in its trace list (C3), never further than its limit and the halved
  limits of its recoveries allow (C4), and ends once,
* in a quiet overlay an event needs at most the tree's height, and one message to enter (C7),
* there a node sends at most `fan_out` copies of an event, in all its roles together (C11),
* a delivery has the digest and the id of the publication (its content is unaltered),
* counting accepts an event only if some conjunction has all its attributes (C8).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from canopy.sim.checks import Violation
from canopy.sim.world.recorder import SimulatedRecord
from canopy.sim.world.world import World
from matching import Predicate, compile_selector

MOST = 20
"""The most violations of one kind that are reported; a broken rule breaks everywhere."""


class WalkSeen:
    """The trace records of one attribute on one walk."""

    __slots__ = ("ends", "hops", "limit", "trace")

    def __init__(self, origin: str, limit: int) -> None:
        self.trace = [origin]
        self.limit = limit
        self.hops = 0
        self.ends = 0


def check_walks(records: Iterable[SimulatedRecord], trace: int) -> list[Violation]:
    """Check all walks. `trace`: length of the trace list in the settings."""
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


def _step(walk: WalkSeen, record: SimulatedRecord, trace: int) -> str:
    """Follow one record. Returns its fault, or ""."""
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


def _content(record: SimulatedRecord) -> tuple[int | None, str | None]:
    return record.fields.get("digest"), record.fields.get("id")


def check_contents(records: Iterable[SimulatedRecord]) -> list[Violation]:
    """Return deliveries with another digest, or another user id, than their publication."""
    published: dict[str, tuple[int | None, str | None]] = {}
    violations = []
    for record in records:
        if record.kind == "publish":
            published[record.fields["event"]] = _content(record)
        elif record.kind == "deliver":
            event = record.fields["event"]
            said = _content(record)
            if published.get(event, said) != said:
                text = f"{event} is another at {record.node} than it was published"
                violations.append(Violation("content", text, (event,)))
    return violations[:MOST]


def check_paths(records: Sequence[SimulatedRecord], quiet_since: int) -> list[Violation]:
    """Check the visits of a quiet time, which begins with the record `quiet_since`: at most one
    message to enter and one per level that the tree had at any time since. (Trees follow the load
    in a quiet time as well: an event may be under way in a tree of two levels that has one when it
    is checked.)"""
    heights: dict[str, int] = {}
    for number, record in enumerate(records):
        if record.kind == "map":
            attribute, height = record.fields["attribute"], record.fields["size"].bit_length()
            before = heights.get(attribute, 0) if number >= quiet_since else 0
            heights[attribute] = max(before, height)
    violations = []
    for record in islice(records, quiet_since, None):
        if record.kind == "visit":
            attribute, hop = record.fields["attribute"], record.fields["hop"]
            most = max(1, heights.get(attribute, 1)) + 1
            if hop > most:
                text = f"{record.fields['event']} took {hop} messages in {attribute}, not {most}"
                violations.append(Violation("path", text, (record.fields["event"],)))
    return violations[:MOST]


def check_copies(records: Iterable[SimulatedRecord], most: int) -> list[Violation]:
    """Check the copies of one event that one node sent in a quiet time with pivot routing, as its
    publisher, as a host and as a delegate together.

    At most `most`. A publisher may have to visit more hosts, and those that it learns of only after
    it has sent copies are not counted. A node has to pass on what it receives, so it may send one
    copy after those visits too, and one more each time that the event came to it again. An event of
    which a copy did not arrive is not checked: it was sent again, on another way, or given back to
    its host by a delegate.
    """
    handled: dict[tuple[str, str], int] = {}
    last: dict[tuple[str, str], str] = {}
    visits: dict[tuple[str, str], int] = {}
    sent: dict[tuple[str, str], int] = {}
    received: dict[tuple[str, str], int] = {}
    for record in records:
        if record.kind not in ("match", "arrive", "forward", "visit"):
            continue
        at = (record.node, record.fields["event"])
        # the trees of one visit are matched together, before anything is sent
        if record.kind == "arrive" or (record.kind == "match" and last.get(at) != "match"):
            handled[at] = handled.get(at, 0) + 1
        last[at] = record.kind
        if record.kind == "arrive":
            sender = (record.fields["peer"], at[1])
            received[sender] = received.get(sender, 0) + 1
        elif record.kind == "forward":
            sent[at] = sent.get(at, 0) + 1
        elif record.kind == "visit" and at not in sent:
            visits[at] = visits.get(at, 0) + 1
    lost = {at[1] for at, count in sent.items() if received.get(at) != count}
    return [
        Violation("copies", f"{at[0]} sent {count + seen} copies of {at[1]}", (at[1],))
        for at, count in sent.items()
        if at[1] not in lost
        and count + (seen := visits.get(at, 0))
        > max(most, seen + 1) + max(0, handled.get(at, 0) - 1)
    ][:MOST]


def check_counting(world: World) -> list[Violation]:
    """Check that every event which counting accepted and the recheck refused satisfied, attribute
    by attribute, some conjunction of the node. Returns one violation for each that did not, at most
    `MOST`."""
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
            all(Predicate.of(c).matches(attributes) for c in conjunction.constraints.values())  # type: ignore[attr-defined]
            for conjunction in conjunctions.get(names.get(record.node, ""), [])
        ):
            text = f"{record.fields['event']} was accepted at {record.node} half-counted"
            violations.append(Violation("counting", text, (record.fields["event"],)))
    return violations[:MOST]
