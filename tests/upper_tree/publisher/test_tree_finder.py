"""C3, C5, C10: a tree is looked for by a walk, then on the ring; what was absent is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harness.overlays import settings
from matching import EVERYTHING, compile_selector, place
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.links.events import LinkDown
from overlay.lower_random.messages import AccessPoint, WalkFailed, WalkFound
from overlay.settings import Settings
from overlay.upper_tree.batches import BATCH_ITEMS
from overlay.upper_tree.events import OwnerRefused, TreeAbsent, TreeFound
from overlay.upper_tree.messages import (
    AskTree,
    Invalidate,
    Invalidated,
    Location,
    NotOwner,
    TreeAnswer,
    TreeSummary,
)
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from tests.support.summaries import summarise
from tests.support.trees import FakeRing, cluster_of
from tests.support.world import one_node, peer

OWNER = peer("o")


class FakeWalker:
    """Walks that the test ends."""

    def __init__(self) -> None:
        self.walks: list[tuple[tuple[str, ...], int | None]] = []

    def walk(self, attributes: Sequence[str], hops: int | None = None) -> None:
        self.walks.append((tuple(attributes), hops))


class Seeker:
    """A finder with what it needs."""

    def __init__(self, chosen: Settings | None = None) -> None:
        self.port = one_node("pub")
        self.settings = chosen or settings(walk={"first": True})
        self.walker, self.ring = FakeWalker(), FakeRing(self.port)
        self.locations = LocationCache(100, ReplicaSelector("me", 3.0))
        self.finder = TreeFinder(self.port, self.settings, self.walker, self.ring, self.locations)
        self.port.add(self.finder)

    def lost(self, *attributes: str) -> None:
        self.port.hear(WalkFailed(attributes, 10))

    def asked(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(to, message.attributes) for to, message in self.port.sent_to(AskTree)]

    def answer(self, *absent: str, found: str = "", teller: str = "o") -> None:
        entries = (Location(found, (1, 1), EVERYTHING, (peer("h"),)),) if found else ()
        self.port.hear(TreeAnswer(entries, absent, 10.0, self.finder._number), peer(teller))

    def emitted(self) -> list[str]:
        names = [
            f"{type(e).__name__} {e.attribute}"
            for e in self.port.emitted
            if isinstance(e, TreeFound | TreeAbsent)
        ]
        self.port.emitted.clear()
        return names


def part(primary: str, *attributes: str) -> Cluster:
    """A cluster that owns just one attribute."""
    key = attribute_key(attributes[0])
    return Cluster("ring", key, f"{int(key, 16) - 1:040x}", (1, 1), peer(primary))


def test_a_walk_comes_first_and_takes_all_attributes_along() -> None:
    node = Seeker()
    node.finder.seek(["x", "y", "x"])
    node.finder.seek(["y", "z"])  # y is under way already
    assert node.walker.walks == [(("x", "y"), 10), (("z",), 10)]
    assert node.asked() == []
    assert node.ring.asked == []


def test_an_access_point_that_a_walk_meets_is_an_entry() -> None:
    node = Seeker()
    node.finder.seek(["x"])
    node.port.hear(WalkFound(AccessPoint("x", peer("h"), (1, 1), 0), 3))
    assert node.emitted() == ["TreeFound x"]
    assert node.locations.host_for("x", (1, 1, 0)) == peer("h")
    assert node.port.traced("located") == [{"attribute": "x", "by": "walk", "hops": 3}]
    assert node.port.counts == {"lookups_by_walk": 1}


def test_a_walk_that_is_lost_asks_the_ring_for_what_is_missing() -> None:
    node = Seeker()
    node.finder.seek(["x", "y"])
    node.port.hear(WalkFound(AccessPoint("x", peer("h"), (1, 1), 0), 3))
    node.lost("y")
    assert node.ring.asked == [attribute_key("y")]
    node.ring.answer("y", cluster_of("o"))
    assert node.asked() == [("o", ("y",))]
    node.answer(found="y")
    assert node.emitted() == ["TreeFound x", "TreeFound y"]
    (by_ring,) = [t for t in node.port.traced("located") if t["by"] == "ring"]
    assert by_ring["hops"] == 10 + 2 + 1, "the walk, the lookup and the question"


def test_an_absence_by_the_owner_is_certain() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.seek(["x"])
    node.lost("x")
    node.answer("x")
    assert node.emitted() == ["TreeAbsent x"]
    assert node.locations.is_absent("x", node.port.now + 9.9)
    assert not node.locations.is_absent("x", node.port.now + 10.0)
    assert node.finder.searches == {}


def test_the_term_of_an_absence_counts_from_the_question() -> None:
    """The owner waits for a term from its answer on; trust must not outlast that."""
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.ask_ring(["x"])
    asked = node.port.now
    node.port.advance(2.0)
    node.answer("x")
    assert node.locations.is_absent("x", asked + 9.9)
    assert not node.locations.is_absent("x", asked + 10.0)


def test_what_was_absent_is_asked_for_without_a_walk() -> None:
    node = Seeker()
    node.locations.learn_absent("x", node.port.now, 1, node.port.now)
    node.finder.seek(["x", "y"])
    assert node.walker.walks == [(("y",), 10)]
    assert node.ring.asked == [attribute_key("x")]


@pytest.mark.parametrize(
    ("chosen", "walks"),
    [
        ({}, True),
        ({"walk": {"first": False}}, False),
        ({"walk": {"first": False}, "tree": {"routing": "counting"}}, True),
    ],
)
def test_a_known_owner_replaces_the_walk_only_where_that_is_set(
    chosen: dict[str, Any], walks: bool
) -> None:
    node = Seeker(settings(**chosen))
    node.ring.learn(cluster_of("o"))
    node.finder.seek(["x", "y"])
    assert node.walker.walks == ([(("x", "y"), 10)] if walks else [])
    assert node.asked() == ([] if walks else [("o", ("x", "y"))])


def test_after_a_stale_entry_the_walk_has_half_the_hops() -> None:
    node = Seeker()
    node.finder.seek(["x"], stale=True)
    assert node.walker.walks == [(("x",), 5)]


def test_questions_to_one_owner_travel_together_in_bounded_messages() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    names = [f"a{n}" for n in range(BATCH_ITEMS + 1)]
    node.finder.ask_ring(names)
    assert [len(asked) for _, asked in node.asked()] == [BATCH_ITEMS, 1]


def test_each_owner_is_asked_for_what_it_owns() -> None:
    node = Seeker()
    node.ring.learn(part("ox", "x"))
    node.ring.learn(part("oy", "y"))
    node.finder.ask_ring(["x", "y"])
    assert node.asked() == [("ox", ("x",)), ("oy", ("y",))]


def test_an_answer_without_a_pending_question_is_not_trusted_as_absence() -> None:
    node = Seeker()
    node.finder.seek(["y"])  # walks, and no owner was asked
    node.answer("x", "y")
    assert not node.locations.was_absent("x")
    assert not node.locations.was_absent("y")
    assert node.emitted() == []


def test_a_question_without_an_answer_is_asked_again_after_a_fresh_lookup() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.ask_ring(["x"])
    assert node.asked() == [("o", ("x",))]
    node.port.advance(0.7)
    assert node.asked() == node.ring.asked == []
    node.port.advance(0.6)
    assert node.ring.asked == [attribute_key("x")]
    node.ring.answer("x", cluster_of("o2", version=(2, 1)))
    assert node.asked() == [("o2", ("x",))]


def test_a_steady_stream_of_new_attributes_puts_nothing_off() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.ask_ring(["x"])
    node.asked()
    for number in range(40):
        node.port.advance(0.1)
        node.finder.ask_ring([f"a{number}"])
        node.answer(f"a{number}")
    assert attribute_key("x") in node.ring.asked


def test_an_owner_that_refuses_names_a_better_one() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.ask_ring(["x"])
    node.asked()
    better = cluster_of("o2", version=(2, 1))
    node.port.hear(NotOwner(("x",), better), OWNER)
    assert node.ring.clusters[-1] == better
    assert node.port.of(OwnerRefused) == [OwnerRefused(("x",))]
    node.port.advance(0.6)
    node.ring.answer("x", better)
    assert ("o2", ("x",)) in node.asked()


def test_what_was_put_off_is_asked_when_it_is_due_and_not_a_round_later() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.ask_ring(["y"])
    node.port.advance(0.2)
    node.asked()
    node.finder.ask_soon(["x"], node.port.now)
    node.port.advance(0.26)
    assert ("o", ("x",)) in node.asked()


def test_an_owner_that_is_lost_is_looked_up_at_once() -> None:
    s = Seeker()
    s.ring.clusters = [part("o", "a"), part("p", "b")]
    s.finder.ask_ring(["a", "b"])
    s.port.hear(LinkDown(peer("o"), "gone", False))
    assert s.ring.asked == [attribute_key("a")]
    s.ring.answer("a", part("q", "a"))
    assert s.asked()[-1] == ("q", ("a",))


def test_a_ring_that_does_not_answer_is_asked_again() -> None:
    node = Seeker()
    node.finder.ask_ring(["x"])
    node.ring.answer("x", None)
    node.port.advance(0.6)
    assert node.ring.asked.count(attribute_key("x")) >= 2


def test_a_recall_is_acknowledged_and_the_next_event_looks_again() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.ask_ring(["x"])
    node.answer("x")
    node.port.hear(Invalidate(("x",)), OWNER)
    assert node.port.sent_to(Invalidated) == [("o", Invalidated(("x",)))]
    assert not node.locations.is_absent("x", node.port.now)
    assert not node.locations.was_absent("x")


def test_an_older_absence_of_another_owner_is_doubted_and_asked_again() -> None:
    """An arc has moved: the new owner's recall overtakes the old owner's answer."""
    node = Seeker()
    node.ring.learn(cluster_of("old"))
    node.finder.ask_ring(["x"])
    node.port.hear(Invalidate(("x",), epoch=2), peer("new_owner"))
    node.answer("x", teller="old")
    assert node.emitted() == []
    node.port.advance(3.5)
    node.ring.answer("x", cluster_of("new_owner", version=(2, 1)))
    assert ("new_owner", ("x",)) in node.asked()
    node.answer(found="x", teller="new_owner")
    assert node.emitted() == ["TreeFound x"]


def test_a_walk_that_ends_late_does_no_harm() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.seek(["x"])
    node.finder.ask_ring(["x"])  # the publisher gave up on hints
    node.asked()
    node.lost("x")
    assert node.asked() == [], "it is being asked for already"
    node.answer(found="x")
    node.lost("x")
    node.port.hear(WalkFound(AccessPoint("x", peer("h2"), (1, 1), 0), 3))
    assert node.emitted() == ["TreeFound x"]


# --- summaries ---


def told_summary(node: Seeker, number: int, teller: str = "o", epoch: int = 1) -> None:
    found = summarise(compile_selector("x > 5").conjunctions, 8)
    answer = TreeAnswer((), (), 10.0, number, (TreeSummary("x", 7, found),), epoch)
    node.port.hear(answer, peer(teller))


def admitted(node: Seeker) -> bool:
    return not node.locations.summaries.may_skip("x", {"x": place(0)}, node.port.now)


def test_the_term_of_a_summary_counts_from_its_own_question() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.ask_summaries(["x"])
    node.port.advance(4)
    node.finder.ask_summaries(["x"])
    first, second = [m.number for _, m in node.port.sent_to(AskTree)]
    told_summary(node, first)
    node.port.advance(5.9)
    assert not admitted(node)
    node.port.advance(0.2)
    assert admitted(node)
    told_summary(node, second)
    assert not admitted(node)
    node.port.advance(4)
    assert admitted(node)


def test_an_answer_to_no_question_of_ours_is_not_trusted() -> None:
    node = Seeker()
    told_summary(node, 99)
    assert admitted(node)


def test_a_recall_ends_a_summary_and_an_older_answer_of_another_owner_is_doubted() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    for _ in range(2):
        node.finder.ask_summaries(["x"])
    first, second = [m.number for _, m in node.port.sent_to(AskTree)]
    told_summary(node, first)
    node.port.hear(Invalidate(("x",), 4, epoch=2), peer("new_owner"))
    assert node.port.sent_to(Invalidated) == [("new_owner", Invalidated(("x",), 4))]
    assert admitted(node)
    told_summary(node, second)
    assert admitted(node)
    node.ring.learn(cluster_of("new_owner", version=(2, 0)))
    node.finder.ask_summaries(["x"])
    ((_, third),) = node.port.sent_to(AskTree)
    told_summary(node, third.number, epoch=2)
    assert admitted(node), "it was not asked"
    told_summary(node, third.number, "new_owner", epoch=2)
    assert not admitted(node)


def test_the_summary_at_hand_is_named_in_the_question() -> None:
    node = Seeker()
    node.ring.learn(cluster_of("o"))
    node.finder.ask_summaries(["x"])
    ((_, question),) = node.port.sent_to(AskTree)
    assert question.cached == ()
    told_summary(node, question.number)
    node.finder.ask_summaries(["y", "x"])
    ((_, question),) = node.port.sent_to(AskTree)
    assert (question.attributes, question.cached) == (("y", "x"), (0, 7))


def test_an_unknown_owner_is_looked_for() -> None:
    node = Seeker()
    node.finder.ask_summaries(["x"])
    assert node.ring.asked == [attribute_key("x")]
