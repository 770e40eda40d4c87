"""C9: summaries of many registrations are made a piece at a time, and never hide one that came."""

from __future__ import annotations

from harness.overlays import settings
from matching import compile_selector
from overlay.machine import Peer
from overlay.upper_tree.messages import AskTree, Register, TreeAnswer, TreeSummary
from overlay.upper_tree.owner.constants import SUMMARY_PAUSE_LEAST
from overlay.upper_tree.summaries.summary_server import AT_ONCE, COMPILED_AT_ONCE, BuildDue
from overlay.upper_tree.summary import GROUP, Summary, box_of, summarise_boxes
from tests.support.trees import OwnerNode, cluster_of, registration
from tests.support.world import one_node, peer

S, P = peer("s"), peer("pub")
MANY = AT_ONCE + 44


class Rig:
    """An owner of trees, asked by a publisher."""

    def __init__(self) -> None:
        chosen = settings(tree={"summary_boxes": 16})
        self.node = OwnerNode(one_node("p"), chosen, cluster_of("p", "h"))
        self.port = self.node.port

    def register(self, tree: str, numbers: range) -> None:
        made = [registration(f"{tree}/{n}", tree, f"{tree} = {n}", S) for n in numbers]
        self.port.hear(Register(1, tuple(made), final=True), S)
        self.port.advance(0.0)
        self.node.clusters.commit()

    def rest(self) -> None:
        self.port.advance(SUMMARY_PAUSE_LEAST)

    def ask(self, *trees: str, who: Peer = P) -> dict[str, TreeSummary]:
        self.port.hear(AskTree(trees), who)
        self.node.clusters.commit()
        answers = self.port.take(TreeAnswer)
        return {found.attribute: found for answer in answers for found in answer.summaries}

    def make(self) -> int:
        """All that is wanted; how many turns that takes."""
        turns = 0
        while self.port.fire(BuildDue()):
            turns += 1
        return turns


def summary_in(found: dict[str, TreeSummary], tree: str) -> Summary:
    summary = found[tree].summary
    assert summary is not None
    return summary


def test_a_small_tree_is_summarised_at_once_and_a_large_one_in_pieces() -> None:
    rig = Rig()
    rig.register("x", range(10))
    rig.register("y", range(MANY))
    rig.rest()
    assert list(rig.ask("x", "y")) == ["x"]
    assert rig.make() > 1
    found = rig.ask("x", "y")
    assert summary_in(found, "y").admits({"y": MANY - 1})
    assert not summary_in(found, "y").admits({"y": MANY + 1})


def test_a_turn_makes_no_more_than_is_quickly_done() -> None:
    rig = Rig()
    for tree in ("x", "y"):
        rig.register(tree, range(AT_ONCE - 10))
    rig.rest()
    assert list(rig.ask("x", "y")) == ["x"]
    rig.make()
    assert list(rig.ask("x", "y")) == ["x", "y"]


def test_a_registration_that_comes_meanwhile_is_not_hidden() -> None:
    rig = Rig()
    rig.register("y", range(MANY))
    rig.rest()
    rig.ask("y")
    rig.port.hear(BuildDue())
    rig.register("y", range(5_000, 5_001))
    rig.make()
    assert rig.ask("y") == {}, "the summary that was begun before is of no use"
    rig.rest()
    rig.ask("y")
    rig.make()
    assert summary_in(rig.ask("y"), "y").admits({"y": 5_000})


def test_a_tree_that_is_taken_over_is_compiled_in_pieces() -> None:
    rig = Rig()
    rig.register("y", range(MANY))
    owned = rig.node.owner.trees["y"]
    owned.boxes.forget()
    rig.node.owner.trees.popularity.clear()
    rig.rest()
    rig.ask("y")
    rig.port.hear(BuildDue())
    assert len(owned.boxes) == COMPILED_AT_ONCE
    rig.make()
    assert len(owned.boxes) == MANY
    assert rig.node.owner.trees.popularity == {"y": MANY}


def test_nothing_is_made_of_a_tree_that_is_lost_meanwhile() -> None:
    rig = Rig()
    rig.register("y", range(MANY))
    rig.rest()
    rig.ask("y")
    rig.port.hear(BuildDue())
    rig.node.owner.trees.drop("y")
    assert rig.make() == 1
    assert rig.port.counts["summaries_made"] == 0


def test_a_piece_is_a_group_of_boxes() -> None:
    boxes = [
        box_of(one)
        for n in range(3 * GROUP)
        for one in compile_selector(f"a{n % 5} > {n} AND b < {n % 90}").conjunctions
    ]
    assert len(list(summarise_boxes(boxes, 32))) == 3
