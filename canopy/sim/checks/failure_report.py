"""Explains a violation by the trace records that it follows from, as few as possible.

For an event that did not reach a subscription (or reached it wrongly) the following records matter:
the subscription's life; the event's own steps, except those towards other subscribers; what its
publisher knew of the trees of its attributes; changes of those trees' maps, and of links and roles
of the nodes on its way, shortly before and meanwhile; and the faults of the world in that time. For
an invalid state (a map, an arc, a ring) they are the last changes of maps and roles.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from canopy.sim.checks import Violation
from canopy.sim.world.recorder import SimulatedRecord
from canopy.sim.world.world import World

BEFORE = 12.0
"""Virtual seconds before an event in which records can matter to it: as long as absence is cached
(10 s), and some retries."""

AFTER = 7.0
"""Virtual seconds after its last step in which records can matter: a link that swallowed the event
is given up after 6 s."""

MOST = 40
"""The most lines of one story; twice as many for an event with more steps of its own."""

LAST = 25
"""The number of records that are listed if it is unknown which of them matter."""

OWN = ("subscribe", "suback", "unsubscribe")
OTHERS = ("forward", "arrive", "deliver", "duplicate", "recheck_failed")
CHANGES = ("cluster", "map")
ROLES = ("start", "ready", "cluster", "stop")

WORD = re.compile(r"[\w.$]+")
NODE = re.compile(r"\b[0-9a-f]{16}\b")


def trace_violation(world: World, violation: Violation) -> tuple[str, ...]:
    """Return the violation and the records that it follows from, as lines; nodes by their names.

    If there are too many, records about nodes and trees on the way are left out before the event's
    own steps, the oldest first.
    """
    if violation.about:
        steps, around = _event_story(world, *(*violation.about, "")[:2])
        most = MOST
    else:
        steps = []
        around = _changes(world, violation.text)
        most = LAST
    around = around[max(0, len(around) - max(0, most - len(steps))) :]
    begin = min((record.time for record in (*steps, *around)), default=0.0) if steps else 0.0
    end = max(record.time for record in steps) + AFTER if steps else float("inf")
    lines = [(record.time, _line(world, record)) for record in (*steps, *around)]
    for at, text in world.happened:
        if begin <= at <= end:
            lines.append((at, f"{at:10.4f} *** {text}"))
    lines.sort(key=lambda line: line[0])
    shown = [text for _, text in lines]
    if len(shown) > 2 * most:
        shown = [*shown[:most], f"… {len(shown) - 2 * most} more", *shown[-most:]]
    return (_named(world, violation.text), *shown)


def explainable_first(violations: Sequence[Violation]) -> list[Violation]:
    """Sort violations that name an event before others, since their records can be selected."""
    return sorted(violations, key=lambda violation: not violation.about)


def last_records(world: World, most: int) -> list[str]:
    """Return the last `most` trace records of all nodes, as lines."""
    return [_line(world, record) for record in list(world.recorder.records)[-most:]]


def _changes(world: World, text: str) -> list[SimulatedRecord]:
    """Return the changes of the nodes and attributes that the text names; all changes if it names
    none."""
    words = dict.fromkeys(WORD.findall(text))
    found = [record for record in world.recorder.records if record.kind in CHANGES]
    return [
        record
        for record in found
        if record.fields.get("attribute") in words
        or record.node in words
        or world.identities.get(record.node) in words
    ] or found


def _event_story(
    world: World, event: str, subscription: str
) -> tuple[list[SimulatedRecord], list[SimulatedRecord]]:
    """Return (steps of the event and the subscription, records of nodes and trees on their way)."""
    records = world.recorder.records
    own = [r for r in records if r.fields.get("event") == event]
    if not own:
        return [], []
    begin, end = own[0].time, own[-1].time
    publisher, target = event.split(".")[0], subscription.split(".")[0]
    attributes = {r.fields["attribute"]: None for r in own if "attribute" in r.fields}
    way = {publisher: None, target: None}
    for record in own:
        if record.kind in ("visit", "match"):
            way[record.node] = None
            way[record.fields.get("peer", record.node)] = None

    def is_step(record: SimulatedRecord) -> bool:
        fields = record.fields
        if fields.get("event") == event:
            ends = (record.node, fields.get("peer"))
            return not subscription or record.kind not in OTHERS or target in ends
        if record.kind in ("located", "absent"):
            return record.node == publisher and begin - BEFORE <= record.time <= end
        return fields.get("subscription") == subscription != "" and record.kind in OWN

    def is_around(record: SimulatedRecord) -> bool:
        if not begin - BEFORE <= record.time <= end + AFTER:
            return False
        if record.kind == "map":
            return record.fields["attribute"] in attributes
        if record.kind in ("link", "drop"):
            return record.node in way and record.fields.get("peer") in way
        return record.kind in ROLES and record.node in way

    steps = [record for record in records if is_step(record)]
    return steps, [record for record in records if is_around(record)]


def _line(world: World, record: SimulatedRecord) -> str:
    name = world.identities.get(record.node, record.node)
    facts = " ".join(f"{key}={value}" for key, value in record.fields.items() if key != "tree")
    return f"{record.time:10.4f} {name:4} {record.kind:10} {_named(world, facts)}"


def _named(world: World, text: str) -> str:
    return NODE.sub(lambda found: world.identities.get(found[0], found[0]), text)
