"""How an event came is told as it was when it came, whatever its trees are by then."""

from __future__ import annotations

from collections.abc import Callable

from matching import EVERYTHING, Cut, Interval, place
from overlay.upper_tree.events import Visited
from overlay.upper_tree.subscriber.arrival_lookups import VisitedLookup
from tests.support.trees import event
from tests.support.world import peer

LOW, HIGH = Interval(EVERYTHING.lo, place(5)), Interval(place(5), place(9))


class Tree:
    """A tree of which a host serves these parts."""

    def __init__(self, *spans: Interval) -> None:
        self.spans = list(spans)

    @property
    def is_whole(self) -> bool:
        return self.spans == [EVERYTHING]

    def span(self, spot: Cut) -> Interval | None:
        return next((one for one in self.spans if one.lo <= spot < one.hi), None)


def came(arrivals: Callable[[int], object], count: int) -> list[object]:
    return [arrivals(number) for number in range(count)]


def test_parts_are_those_that_were_served_when_the_events_came() -> None:
    x, y = Tree(LOW, HIGH), Tree(EVERYTHING)
    events = [event(1, x=1), event(2, x=7), event(3, x=9, y=1), event(4, z=1)]
    lookup = VisitedLookup(Visited(peer("p"), 1, events, {"x": x, "y": y}), "me")
    pivots = [("x",), ("x",), ("y", "x"), ("x", "y")]
    at_once = [lookup.of(names, one) for names, one in zip(pivots, events, strict=True)]
    assert [(one.attribute, one.interval) for one in at_once] == [
        *(("x", LOW), ("x", HIGH), ("y", EVERYTHING), ("$event", EVERYTHING)),
    ]
    arrivals = lookup.resolve_later(iter(pivots), events)
    x.spans, y.spans = [EVERYTHING], []  # both have moved since
    assert came(arrivals, 4) == at_once
