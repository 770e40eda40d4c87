"""How an event came is told as it was when it came, whatever its trees are by then."""

from __future__ import annotations

from random import Random

from matching import EVERYTHING, Interval, place
from overlay.upper_tree.events import Visited
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.messages import Assign, Entry
from overlay.upper_tree.subscriber.arrival_lookups import VisitedLookup
from tests.support.trees import event
from tests.support.world import peer

LOW, HIGH = Interval(EVERYTHING.lo, place(5)), Interval(place(5), place(9))


def test_parts_are_those_that_were_served_when_the_events_came() -> None:
    x, y = (HostedTree(name, None, Random(1)) for name in "xy")
    parts = [Entry(interval, (peer(host),)) for interval, host in ((LOW, "a"), (HIGH, "b"))]
    x.assign(Assign("x", (1, 1), (LOW, HIGH), 2, tuple(enumerate(parts))))
    y.assign(Assign("y", (1, 1), (EVERYTHING,)))
    events = [event(1, x=1), event(2, x=7), event(3, x=9, y=1), event(4, z=1)]
    lookup = VisitedLookup(Visited(peer("p"), 1, events, {"x": x.served, "y": y.served}), "me")
    pivots = [("x",), ("x",), ("y", "x"), ("x", "y")]
    x.assign(Assign("x", (1, 2), (EVERYTHING,)))
    y.assign(Assign("y", (1, 2)))  # both have moved since
    found = [lookup.of(names, one) for names, one in zip(pivots, events, strict=True)]
    assert [(one.attribute, one.interval) for one in found] == [
        *(("x", LOW), ("x", HIGH), ("y", EVERYTHING), ("$event", EVERYTHING)),
    ]
