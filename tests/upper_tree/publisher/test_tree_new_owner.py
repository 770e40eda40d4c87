"""P4, C5: a publisher sends a new owner what it trusts, and trusts a former one no more."""

from __future__ import annotations

from typing import Any

from matching import compile_selector, place
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.settings import Settings
from overlay.upper_tree.batches import BATCH_ITEMS
from overlay.upper_tree.messages import AskCached, CacheReport, TreeAnswer, TreeSummary
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from tests.support.summaries import summarise
from tests.support.trees import FakeRing, cluster_of
from tests.support.world import one_node, peer

NEW = cluster_of("new", version=(2, 0))


class Asked:
    """A publisher's finder that has asked the former owner o for x and its summary."""

    def __init__(self) -> None:
        self.port = one_node("pub")
        self.ring = FakeRing(self.port)
        self.ring.learn(cluster_of("o"))
        self.locations = LocationCache(10_000, ReplicaSelector("me", 3.0))
        no_walks: Any = None
        self.finder = TreeFinder(self.port, Settings(), no_walks, self.ring, self.locations)
        self.port.add(self.finder)
        self.finder.ask_ring(["x"])
        self.finder.ask_summaries(["x"])

    def absent(self, name: str) -> None:
        """It has no subscribers, for 9 s."""
        self.locations.learn_absent(name, self.port.now + 9.0, 1, self.port.now)

    def hear(self, epoch: int, *absent: str) -> None:
        """An owner's answer; without names it is x's summary."""
        found = summarise(compile_selector("x > 5").conjunctions, 8)
        summaries = () if absent else (TreeSummary("x", 7, found),)
        self.port.hear(TreeAnswer((), absent, 10.0, 2, summaries, epoch), peer("o"))

    def admits(self) -> bool:
        return not self.locations.summaries.may_skip("x", {"x": place(0)}, self.port.now)

    def asked_by(self, arc: Cluster) -> list[CacheReport]:
        """What it says to a new owner."""
        self.port.hear(AskCached(arc), arc.primary)
        said = self.port.sent_to(CacheReport)
        assert all(to == arc.primary.id for to, _ in said)
        return [message for _, message in said]


def test_a_new_owner_learns_what_is_trusted_of_its_arc() -> None:
    node, key = Asked(), attribute_key("x")
    arc = Cluster("ring", key, f"{int(key, 16) - 1:040x}", (2, 0), peer("new"))
    node.absent("x")
    node.absent("y")  # of another arc
    assert node.asked_by(arc) == [CacheReport(key, 2, (("x", 0),), True)]
    assert node.ring.owner(key) == arc, "it is the owner now"
    assert node.locations.is_absent("x", node.port.now), "until it is recalled"
    node.port.advance(9.1)
    assert node.asked_by(arc) == [CacheReport(key, 2, (), True)]


def test_a_summary_that_is_trusted_is_named_by_its_digest() -> None:
    node = Asked()
    node.hear(1)
    assert [said.copies for said in node.asked_by(NEW)] == [(("x", 7),)]


def test_what_a_former_owner_said_is_not_trusted_after_that() -> None:
    node = Asked()
    node.asked_by(NEW)
    node.hear(1, "x")
    node.hear(1)
    assert not node.locations.is_absent("x", node.port.now)
    assert node.admits()
    node.hear(2)
    assert not node.admits()
    node.hear(2, "x")
    assert node.locations.is_absent("x", node.port.now)


def test_many_reports_are_sent_in_messages_that_a_frame_can_carry() -> None:
    node = Asked()
    names = [f"x{n}" for n in range(2 * BATCH_ITEMS + 1)]
    for name in names:
        node.absent(name)
    said = node.asked_by(NEW)
    assert [message.last for message in said] == [False, False, True]
    assert [name for message in said for name, _ in message.copies] == names
    assert [len(message.copies) for message in said] == [BATCH_ITEMS, BATCH_ITEMS, 1]
