"""Trees that events visit together are decided once, and again after any word of an owner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay.machine import Message
from overlay.settings import Settings
from overlay.upper_tree.host.visit_scheduler import MatchDue
from overlay.upper_tree.messages import (
    Assign,
    Install,
    ServingBeat,
    TreeMoved,
    TreesHosted,
    Visit,
)
from tests.support.trees import HostNode, event
from tests.support.world import one_node, peer
from tests.upper_tree.host.test_tree_visiting import HIGH, LOW, MIDDLE, OWNER, assign

NAMES = ("x", "y", "z")
KEY = "0" * 40
LATER = 1_000_001  # than the epoch of `HostNode.lease`

STEPS = st.one_of(
    st.tuples(st.just("visit"), st.sets(st.sampled_from(NAMES), min_size=1)),
    st.tuples(st.just("assign"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("beat"), st.integers(LATER - 1, LATER + 1)),
    st.tuples(
        st.just("hosted"), st.sets(st.sampled_from(NAMES)), st.integers(LATER - 2, LATER + 1)
    ),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 5.0])),
)


class TestVisitsInAnyOrder:
    """Against the decisions tree by tree, while owners say anything."""

    @given(st.lists(STEPS, max_size=40))
    def test_a_tree_takes_an_event_just_while_it_is_served_under_a_lease(
        self, steps: list[tuple[object, ...]]
    ) -> None:
        node = HostNode(one_node("h"), Settings()).lease()
        version, beat, sequence = 0, 2, 0
        for name in NAMES:
            version += 1
            assign(node, name, LOW, MIDDLE, HIGH, version=version)
        node.accepted()
        for kind, *how in steps:
            match kind, how:
                case "assign", [str(name), int(count)]:
                    version += 1
                    assign(node, name, *(LOW, MIDDLE, HIGH)[:count], version=version)
                case "beat", [int(epoch)]:
                    beat += 1
                    node.port.hear(ServingBeat(KEY, KEY, epoch, beat, beat - 1, 4.0), OWNER)
                case "hosted", [set(names), int(epoch)]:
                    node.port.hear(TreesHosted(KEY, KEY, epoch, tuple(sorted(names))), OWNER)
                case "wait", [float(seconds)]:
                    node.port.world.jump(seconds)
                case _, [set(names)]:
                    sequence += 1
                    self.visit(node, sequence, tuple(sorted(names)))

    def visit(self, node: HostNode, sequence: int, names: tuple[str, ...]) -> None:
        hosting = node.hosting
        served = {
            name
            for name in names
            if name in hosting.trees
            and hosting.trees[name].served.is_whole
            and hosting.assigned.has_lease(hosting.trees[name])
        }
        partly = {name for name in names if name in hosting.trees and name not in served}
        event_ = event(sequence, **dict.fromkeys(names, sequence % 50))
        node.port.hear(Visit(peer("p"), 1, names, (event_,)), peer("p"))
        if MatchDue() in node.port.timers:
            node.port.hear(MatchDue())
        taken = {name for m in node.accepted() for trees, _ in m.taken for name in trees}
        moved = {message.attribute for message in node.port.take(TreeMoved)}
        assert served <= taken <= served | partly
        assert set(names) - served - partly <= moved
        assert not taken & moved


WORDS = {
    "a part of a tree is another host's": Assign("x", (1, 9), (LOW,), 1, ()),
    "a tree has ended": TreesHosted(KEY, KEY, 1, ("y",)),
    "there is a later owner of the arc": TreesHosted(KEY, KEY, LATER, ("x", "y")),
    "there is a later owner of the tree": Install("x", LATER, ()),
}


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
def test_a_word_of_an_owner_takes_a_tree_away_at_once(word: Message) -> None:
    node = HostNode(one_node("h"), Settings()).lease()
    for name in ("x", "y"):
        assign(node, name, LOW, MIDDLE, HIGH)
    for moved in (False, True):
        node.port.hear(Visit(peer("p"), 1, ("x", "y"), (event(1 + moved, x=90, y=1),)), peer("p"))
        if MatchDue() in node.port.timers:
            node.port.hear(MatchDue())
        assert bool(node.port.take(TreeMoved)) == moved
        node.port.hear(word, OWNER)


def test_events_that_visit_trees_together_are_counted_for_each_of_them() -> None:
    node = HostNode(one_node("h"), Settings()).lease()
    for name in NAMES[:2]:
        assign(node, name, LOW, MIDDLE, HIGH)
    for sequence in range(1, 31):
        node.port.hear(
            Visit(peer("p"), 1, ("x", "y"), (event(sequence, x=sequence, y=1),)), peer("p")
        )
        if MatchDue() in node.port.timers:
            node.port.hear(MatchDue())
        node.port.world.jump(0.001)
    node.hosting.assigned.samples()
    for name, last in (("x", 30), ("y", 1)):
        sample = node.hosting.trees[name].visits
        events, alone, drawn = sample.take()
        assert (events, alone, drawn) == (15.0, 0.0, 30), "each is half of what an event costs"
        assert sample.places(drawn)[-1][1] == last
