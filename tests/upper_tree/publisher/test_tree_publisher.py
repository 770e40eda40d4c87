"""C3, C7, C10: an event is kept until every tree that it visits has accepted it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from harness.overlays import settings
from matching import BOTTOM, EVERYTHING, TOP, Interval, place
from overlay.client import Draft, Event
from overlay.links.events import LinkDown
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.messages import AccessPoint
from overlay.settings import Settings
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.events import EventsAccepted, RoomAgain, TreeAbsent, TreeFound
from overlay.upper_tree.messages import (
    EVENT_TREE,
    Accepted,
    Location,
    TreeMoved,
    Visit,
)
from overlay.upper_tree.publisher.constants import MOVES
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from overlay.upper_tree.visits import groups_of
from tests.support.trees import FakeRing
from tests.support.world import WorldNode, one_node, peer


class FakeFinder(TreeFinder):
    """Notes what is requested; the test answers with `TreeFound` and `TreeAbsent`."""

    def __init__(self, port: WorldNode, chosen: Settings, locations: LocationCache) -> None:
        super().__init__(port, chosen, self, FakeRing(port), locations)
        self.requested: list[tuple[tuple[str, ...], bool]] = []
        self.asked: list[str] = []
        self.summaries_asked: list[str] = []

    def walk(self, attributes: Iterable[str], hops: int | None = None) -> None:
        raise AssertionError("not used")

    def seek(self, attributes: Iterable[str], stale: bool = False) -> None:
        self.requested.append((tuple(attributes), stale))

    def ask_again(self, attributes: Iterable[str]) -> None:
        pass

    def ask_ring(self, attributes: Iterable[str]) -> None:
        self.asked += attributes

    def ask_summaries(self, attributes: Iterable[str]) -> None:
        self.summaries_asked += attributes


class Rig:
    """A publisher that knows that `$event` has no subscribers, unless said otherwise."""

    def __init__(
        self, chosen: Settings | None = None, event_tree: bool = False, trees: int = 100
    ) -> None:
        chosen = chosen or Settings()
        self.port = one_node("pub")
        self.locations = LocationCache(trees, ReplicaSelector("me", 3.0))
        self.access_points = AccessPoints(self.port, chosen.view)
        self.finder = FakeFinder(self.port, chosen, self.locations)
        self.history = EventHistory(100)
        self.publisher = Publisher(
            self.port,
            chosen,
            7,
            self.finder,
            self.locations,
            self.access_points,
            self.history,
            CopyBudget(chosen.tree.fan_out),
        )
        self.port.add(self.publisher)
        if not event_tree:
            self.locations.learn_absent(EVENT_TREE, 1e9, 1, 0.0)

    def publish(self, *events: dict[str, Any]) -> list[Event]:
        made = self.publisher.publish([Draft(attributes) for attributes in events])
        self.port.turn()
        return made

    def know(self, attribute: str, host: str, interval: Interval = EVERYTHING) -> None:
        self.locations.learn(Location(attribute, (1, 1), interval, (peer(host),)))

    def visits(self) -> list[tuple[str, tuple[str, ...], list[int]]]:
        """By host and the trees that they visit there: the events."""
        return [
            (to, trees, [e.sequence for e in events])
            for to, message in self.port.sent_to(Visit)
            for trees, events in groups_of(message)
        ]

    def accept(self, host: str, attribute: str, *sequences: int, incarnation: int = 7) -> None:
        self.port.hear(Accepted(incarnation, ((attribute, sequences),), ()), peer(host))

    def moved(self, host: str, attribute: str, *sequences: int, incarnation: int = 7) -> None:
        self.port.hear(TreeMoved(incarnation, attribute, sequences), peer(host))

    def has_room(self) -> bool:
        return self.publisher.pending.room > 0

    def done(self) -> list[int]:
        found = [s for e in self.port.of(EventsAccepted) for s in e.sequences]
        self.port.emitted.clear()
        return found


def test_events_get_their_identities_in_order() -> None:
    rig = Rig()
    made = rig.publish({"x": 1}, {"x": 2}) + rig.publish({"x": 3})
    assert [e.identity for e in made] == ["pub.7.1", "pub.7.2", "pub.7.3"]
    assert rig.port.counts["published"] == 3
    assert [t["event"] for t in rig.port.traced("publish")] == [e.identity for e in made]


def test_an_event_visits_the_tree_of_each_attribute_that_has_a_value_and_the_event_tree() -> None:
    rig = Rig(event_tree=True)
    rig.publish({"x": 1, "y": "a", "gone": None})
    assert rig.finder.requested == [((EVENT_TREE, "x", "y"), False)]


def test_unknown_trees_are_looked_for_once_for_all_events_of_a_batch() -> None:
    rig = Rig()
    rig.publish({"x": 1, "y": 1}, {"x": 2})
    assert rig.finder.requested == [(("x", "y"), False)]
    assert rig.visits() == []


def test_an_event_may_have_more_trees_than_there_is_room_for_locations() -> None:
    rig = Rig(trees=2)
    rig.publish(dict.fromkeys("abcde", 1))
    for name in "abcde":  # found one after the other, as by one answer of an owner
        rig.know(name, name.upper())
    for name in "abcde":
        rig.port.hear(TreeFound(name))
    assert rig.visits() == [(name.upper(), (name,), [1]) for name in "abcde"]
    assert len(rig.finder.requested) == 1, "none is looked for again"
    assert rig.locations.unheld == len(rig.locations._trees) == 2


def test_events_go_to_the_host_of_their_value_in_one_message_per_host() -> None:
    rig = Rig()
    rig.know("x", "low", Interval(BOTTOM, place(10)))
    rig.know("x", "high", Interval(place(10), TOP))
    rig.publish({"x": 1}, {"x": 50}, {"x": 2})
    assert rig.visits() == [("low", ("x",), [1, 3]), ("high", ("x",), [2])]


def test_in_pivot_routing_a_host_gets_the_event_once_for_all_its_trees() -> None:
    rig = Rig()
    rig.know("x", "h")
    rig.know("y", "h")
    rig.publish({"x": 1, "y": 1})
    assert rig.visits() == [("h", ("x", "y"), [1])]


def test_in_counting_routing_every_attribute_carries_the_event() -> None:
    rig = Rig(settings(tree={"routing": "counting"}))
    rig.know("x", "h")
    rig.know("y", "h")
    rig.publish({"x": 1, "y": 1})
    assert rig.visits() == [("h", ("x",), [1]), ("h", ("y",), [1])]


def test_only_what_crosses_a_link_counts_as_a_hop() -> None:
    rig = Rig()
    rig.know("x", "pub")
    rig.know("y", "h")
    rig.publish({"x": 1, "y": 1})
    assert [(to, m.hop) for to, m in rig.port.sent_to(Visit)] == [("pub", 0), ("h", 1)]
    assert [t["peer"] for t in rig.port.traced("visit")] == ["h"]


# --- kept until accepted ---


def test_an_event_is_done_when_all_its_trees_have_accepted_it() -> None:
    rig = Rig()
    rig.know("x", "hx")
    rig.know("y", "hy")
    rig.publish({"x": 1, "y": 1})
    rig.accept("hx", "x", 1, 1)  # said twice
    assert rig.done() == []
    assert rig.publisher.unaccepted == 1
    rig.accept("hx", "x", 1, 1)  # once more
    assert rig.publisher.pending.pairs == 1
    assert rig.done() == []
    rig.accept("hy", "y", 1)
    assert rig.done() == [1]
    assert rig.publisher.unaccepted == 0
    assert rig.publisher.pending.pairs == 0


def test_a_slow_absence_does_not_end_events_that_are_younger_than_it_is_good_for() -> None:
    rig = Rig()
    rig.publish({"x": 1})
    rig.port.advance(3)
    until = rig.port.now - 1
    rig.publish({"x": 2})
    rig.locations.learn_absent("x", until, 1, rig.port.now)
    rig.finder.requested.clear()
    rig.port.hear(TreeAbsent("x", until))
    assert rig.done() == [1]
    assert [names for names, _ in rig.finder.requested] == [("x",)], "it is asked for once more"


def test_an_absence_is_asked_for_again_before_it_ends() -> None:
    rig = Rig()
    rig.know("x", "h")
    rig.locations.learn_absent("y", rig.port.now + 10, 1, rig.port.now)
    rig.port.advance(6)
    rig.publish({"x": 1, "y": 1})
    assert rig.finder.requested == []
    rig.port.advance(2)
    rig.publish({"x": 2, "y": 1})
    assert rig.finder.requested == [(("y",), False)]
    assert rig.visits() == [("h", ("x",), [1]), ("h", ("x",), [2])], "and nothing waits for it"


def test_an_absence_ends_the_pair_now_and_for_its_term() -> None:
    rig = Rig()
    rig.publish({"x": 1})
    rig.locations.learn_absent("x", rig.port.now + 10, 1, rig.port.now)
    rig.port.hear(TreeAbsent("x", rig.port.now + 10))
    assert rig.done() == [1]
    rig.publish({"x": 2})
    assert rig.done() == [2]
    rig.port.advance(11)
    rig.publish({"x": 3})
    assert rig.done() == []


def test_events_that_waited_go_when_the_tree_is_found() -> None:
    rig = Rig()
    rig.publish({"x": 1})
    rig.publish({"x": 2})
    rig.know("x", "h")
    rig.port.hear(TreeFound("x"))
    assert rig.visits() == [("h", ("x",), [1, 2])]


def test_another_incarnation_of_this_node_is_not_meant() -> None:
    rig = Rig()
    rig.know("x", "h")
    rig.publish({"x": 1})
    rig.visits()
    rig.accept("h", "x", 1, incarnation=6)
    rig.moved("h", "x", 1, incarnation=6)
    assert rig.done() == []
    assert rig.visits() == []
    assert rig.locations.knows("x")


def test_where_an_event_was_accepted_the_next_one_goes() -> None:
    rig = Rig()
    rig.locations.learn_entry("x", peer("entry"))
    rig.publish({"x": 5})
    assert rig.visits() == [("entry", ("x",), [1])]
    location = Location("x", (1, 1), EVERYTHING, (peer("host"),))
    rig.port.hear(Accepted(7, (("x", (1,)),), (location,)), peer("host"))
    rig.publish({"x": 6})
    assert rig.visits() == [("host", ("x",), [2])]


# --- another way ---


def test_moved_goes_by_another_entry_or_looks_with_half_a_walk() -> None:
    rig = Rig()
    rig.locations.learn_entry("x", peer("b"))
    rig.locations.learn_entry("x", peer("a"))
    rig.publish({"x": 1})
    assert rig.visits() == [("a", ("x",), [1])]
    rig.moved("a", "x", 1)
    assert rig.visits() == [("b", ("x",), [1])]
    rig.moved("b", "x", 1)
    assert rig.visits() == []
    assert rig.finder.requested == [(("x",), True)]


def test_a_stale_access_point_is_not_passed_on_any_more() -> None:
    rig = Rig()
    rig.access_points.learn(AccessPoint("x", peer("h"), (1, 1), 0))
    rig.know("x", "h")
    rig.publish({"x": 1})
    rig.moved("h", "x", 1)
    assert not rig.access_points.points("x")


def test_a_host_further_on_that_gives_back_sends_the_event_another_way() -> None:
    rig = Rig()
    rig.know("x", "first")
    rig.publish({"x": 1})
    rig.visits()
    rig.moved("further", "x", 1)
    assert rig.visits() == [("first", ("x",), [1])], "at once, not at the next retry"


def test_after_several_moves_only_the_owner_is_trusted() -> None:
    rig = Rig()
    for number in range(MOVES + 1):
        rig.know("x", f"h{number}")
        if number == 0:
            rig.publish({"x": 1})
        else:
            rig.port.hear(TreeFound("x"))
        assert rig.visits() == [(f"h{number}", ("x",), [1])]
        assert rig.finder.asked == []
        rig.moved(f"h{number}", "x", 1)
    assert rig.finder.asked == ["x"]
    assert not rig.locations.knows("x")
    rig.know("x", "right")
    rig.port.hear(TreeFound("x"))
    assert rig.visits() == [("right", ("x",), [1])]


def test_a_lost_link_sends_what_was_under_way_another_way() -> None:
    rig = Rig()
    rig.locations.learn_entry("x", peer("other"))
    rig.know("x", "h")
    rig.know("y", "still")
    rig.publish({"x": 1, "y": 1})
    rig.visits()
    rig.port.hear(LinkDown(peer("h"), "dead", False))
    assert rig.visits() == [("other", ("x",), [1])]
    assert rig.finder.requested == []


def test_silence_asks_the_ring() -> None:
    rig = Rig()
    rig.know("x", "h")
    rig.publish({"x": 1})
    rig.port.advance(2.9)
    assert rig.finder.asked == []
    rig.port.advance(3.2)
    assert rig.finder.asked == ["x"]
    assert rig.port.counts["visits_retried"] == 1
    assert not rig.locations.knows("x")


def test_busy_publishing_does_not_put_the_retry_off() -> None:
    rig = Rig()
    rig.know("x", "h")
    rig.publish({"x": 1})
    for number in range(70):
        rig.port.advance(0.1)
        rig.know("y", "hy")
        (made,) = rig.publish({"y": number})
        rig.accept("hy", "y", made.sequence)
    assert rig.finder.asked == ["x"]


def test_a_pair_that_waits_for_its_tree_is_not_retried() -> None:
    rig = Rig()
    rig.publish({"x": 1})
    rig.port.advance(20)
    assert rig.finder.asked == []
    assert rig.port.counts["visits_retried"] == 0


def test_nothing_is_looked_after_when_nothing_is_under_way() -> None:
    rig = Rig()
    rig.know("x", "h")
    rig.publish({"x": 1})
    rig.accept("h", "x", 1)
    rig.port.advance(10)
    assert rig.port.timers == {}


# --- room ---


def test_room_ends_with_the_pairs_and_is_reported_when_it_is_back() -> None:
    rig = Rig(settings(tree={"pending": 3}))
    rig.know("x", "h")
    rig.publish({"x": 1}, {"x": 2})
    assert rig.has_room()
    rig.publish({"x": 3})
    assert not rig.has_room()
    rig.publisher.pending.await_room()
    rig.port.emitted.clear()
    rig.accept("h", "x", 1)
    assert rig.has_room()
    assert len(rig.port.of(RoomAgain)) == 1
    rig.accept("h", "x", 2, 3)
    assert len(rig.port.of(RoomAgain)) == 1, "emitted when it is back, not at every answer"


@pytest.mark.parametrize("found", [True, False])
def test_the_history_shows_the_way(found: bool) -> None:
    rig = Rig()
    (made,) = rig.publish({"x": 1})
    if found:
        rig.know("x", "h")
        rig.port.hear(TreeFound("x"))
        rig.accept("h", "x", 1)
    remembered = rig.history.find(made.identity)
    assert remembered is not None
    assert len(remembered.path) == 1 + found


def test_what_a_host_has_accepted_is_not_sent_again_because_another_node_had_accepted_it() -> None:
    """Both had done so before the owner said which of them is a host (walk.confirm)."""
    rig = Rig(settings(walk={"confirm": "always"}))
    rig.locations.learn_entry("x", peer("stranger"))
    rig.publish({"x": 1}, {"x": 2})
    rig.accept("stranger", "x", 1, 2)
    rig.accept("host", "x", 1)
    assert rig.done() == []
    rig.know("x", "host")
    rig.port.hear(TreeFound("x"))
    assert rig.done() == [1]
    assert rig.visits()[-1] == ("host", ("x",), [2])


def test_owners_confirm_the_hosts_of_more_trees_than_there_is_room_for_locations() -> None:
    rig = Rig(settings(walk={"confirm": "always"}), trees=2)
    rig.publish(dict.fromkeys("abcde", 1))

    def answer() -> None:
        for name in "abcde":
            rig.know(name, name.upper())
        for name in "abcde":
            rig.port.hear(TreeFound(name))

    answer()
    for name in "abcde":
        rig.accept(name.upper(), name, 1)
    assert rig.done() == [], "most are forgotten again"
    answer()
    assert rig.done() == [1]
    assert rig.locations.unheld == len(rig.locations._trees)
    rig.accept("F", "f", 1)
    rig.accept("A", "a", 1)
    rig.know("f", "F")
    assert len(rig.locations._trees) == 2, "there is no room for what was not sent"
