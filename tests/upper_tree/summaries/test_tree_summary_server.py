"""C5, C9: what publishers are answered, and that no SUBACK comes before it is taken back."""

from __future__ import annotations

import pytest

from harness.overlays import settings
from matching import Interval, place
from overlay.chord.events import ArcLeaving
from overlay.machine import Peer
from overlay.settings import Settings
from overlay.upper_tree.messages import (
    EVENT_TREE,
    AskTree,
    Entry,
    Installed,
    Invalidate,
    Invalidated,
    NotOwner,
    Register,
    Registered,
    Registration,
    TreeAnswer,
    TreeSummary,
    Unregister,
)
from overlay.upper_tree.owner.constants import SUMMARY_PAUSE_LEAST, SUMMARY_PAUSE_MOST
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.summaries.summary_server import LOCATIONS_MOST
from overlay.upper_tree.summary import Summary
from tests.support.trees import OwnerNode, cluster_of, registration
from tests.support.world import one_node, peer

S, P, H = peer("s"), peer("pub"), peer("h")
FIVE = {"x": 5}


class Rig:
    """An owner whose host and log answer at once."""

    def __init__(self, chosen: Settings | None = None) -> None:
        self.node = OwnerNode(one_node("p"), chosen or Settings(), cluster_of("p", "h"))
        self.port = self.node.port

    def register(self, id_: str, selector: str, tree: str = "x") -> bool:
        """Whether it is acknowledged at once."""
        made = registration(id_, tree, selector, S)
        return self.take(made)

    def take(self, made: Registration) -> bool:
        self.port.hear(Register(1, (made,), final=True), S)
        self.node.clusters.commit()
        self.port.hear(Installed(made.attribute, (made.id,)), H)
        return made.id in self.acknowledged()

    def acknowledged(self) -> list[str]:
        return [id_ for message in self.port.take(Registered) for id_ in message.ids]

    def ask(self, who: Peer = P, held: int = 0, number: int = 1) -> TreeSummary | None:
        """What `who` is answered about x beside the places."""
        self.port.hear(AskTree(("x",), number, (held,) if held else ()), who)
        self.node.clusters.commit()
        found = [s for m in self.port.take(TreeAnswer) for s in m.summaries]
        return found[0] if found else None

    def answer(self, who: Peer = P) -> tuple[int, Summary]:
        """Digest and summary, once the tree has been at rest."""
        self.port.advance(SUMMARY_PAUSE_MOST)
        found = self.ask(who)
        assert found is not None
        assert found.summary is not None
        return found.digest, found.summary

    def recalls(self) -> list[tuple[str, int]]:
        return [(to, message.number) for to, message in self.port.sent_to(Invalidate)]


def test_a_publisher_learns_what_registrations_may_match() -> None:
    rig = Rig()
    rig.register("s/0", "x > 1 AND y = 2")
    _, summary = rig.answer()
    assert summary.admits({"x": 5, "y": 2})
    assert not summary.admits({"x": 5})
    assert not summary.admits({"x": 0, "y": 2})


def test_the_only_host_needs_no_summary() -> None:
    rig = Rig(settings(tree={"replicas": 1}))
    rig.register("s/0", "x > 1")
    rig.port.advance(SUMMARY_PAUSE_MOST)
    (host,) = rig.node.owner.trees["x"].all_hosts().values()
    assert rig.ask(host) is None
    assert rig.port.counts["summaries_made"] == 0
    assert rig.ask(P) is not None


def test_who_holds_the_present_summary_learns_that_it_is_good() -> None:
    rig = Rig()
    rig.register("s/0", "x > 1")
    digest, _ = rig.answer()
    assert rig.ask(held=digest) == TreeSummary("x", digest, None)
    assert rig.port.counts["summaries_made"] == 1


def test_a_registration_that_contradicts_waits_for_every_cache_holder() -> None:
    rig = Rig()
    assert rig.register("s/0", "x > 10")
    rig.answer()
    rig.ask(peer("pub2"))
    assert not rig.register("s/1", "x < 0")
    ((one, number), (two, _)) = rig.recalls()
    assert (one, two) == ("pub", "pub2")
    rig.port.hear(Invalidated(("x",), number), P)
    assert rig.acknowledged() == []
    rig.port.hear(Invalidated(("x",), number), peer("pub2"))
    assert rig.acknowledged() == ["s/1"]


def test_a_registration_that_the_summary_admits_waits_for_no_publisher() -> None:
    rig = Rig()
    rig.register("s/0", "x > 10")
    digest, summary = rig.answer()
    assert rig.register("s/1", "x > 20 AND y = 1")
    assert rig.recalls() == []
    assert summary.admits({"x": 21, "y": 1})
    assert rig.ask(held=digest) == TreeSummary("x", digest, None)


def test_an_older_summary_is_recalled_even_if_the_present_one_admits() -> None:
    rig = Rig()
    rig.register("s/0", "x > 10")
    old, _ = rig.answer()
    rig.port.hear(Unregister("x", ("s/0",)), S)
    rig.port.advance(0.1)
    rig.register("s/1", "x < 0")
    rig.recalls()  # never answered
    new, _ = rig.answer(peer("pub2"))
    assert new != old
    assert not rig.register("s/2", "x < -5")
    assert rig.recalls() == [], "it is being recalled already"
    rig.port.hear(Invalidated(("x",), 99), P)
    assert rig.acknowledged() == ["s/1", "s/2"]


def test_a_cache_holder_that_does_not_answer_is_waited_out() -> None:
    rig = Rig()
    rig.register("s/0", "x > 10")
    rig.answer()
    rig.port.advance(4)
    assert not rig.register("s/1", "x < 0")
    rig.port.advance(5.9)
    assert rig.acknowledged() == []
    rig.port.advance(0.2)
    assert rig.acknowledged() == ["s/1"]


def test_a_new_summary_stays_valid_when_an_older_recall_is_answered() -> None:
    rig = Rig()
    rig.register("s/0", "x > 10")
    rig.answer()
    rig.register("s/1", "x < 0")
    ((_, number),) = rig.recalls()
    rig.answer()  # asked again before the recall's answer came
    rig.port.hear(Invalidated(("x",), number), P)
    assert rig.acknowledged() == ["s/1"]
    assert not rig.register("s/2", "x = 'text'")
    assert [to for to, _ in rig.recalls()] == ["pub"]


def test_no_summary_is_made_while_registrations_contradict_each_other() -> None:
    rig = Rig()
    for number in range(5):
        rig.register(f"s/{number}", f"x = {number}")
        assert rig.ask() is None
        rig.port.advance(SUMMARY_PAUSE_LEAST / 2)
    assert rig.port.counts["summaries_made"] == 0
    rig.answer()


def test_where_summaries_do_not_last_the_next_ones_are_waited_for_longer() -> None:
    rig = Rig()
    rig.register("s/0", "x = 0")

    def waited() -> float:
        """Seconds until there is a summary; then it is contradicted."""
        seconds = 0.0
        while rig.ask() is None:
            rig.port.advance(SUMMARY_PAUSE_LEAST)
            seconds += SUMMARY_PAUSE_LEAST
        return seconds

    found = []
    for number in range(1, 7):
        found.append(waited())
        rig.register(f"s/{number}", f"x = {number}")
    assert found == [0.25, 0.5, 1.0, 2.0, 4.0, SUMMARY_PAUSE_MOST]
    waited()
    rig.port.advance(Settings().tree.summary_term)
    rig.register("s/8", "x = 8")
    assert waited() == SUMMARY_PAUSE_LEAST, "the last one lasted"


def test_a_summary_is_made_again_when_much_of_it_has_ended() -> None:
    rig = Rig()
    for number in range(8):
        rig.register(f"s/{number}", f"x = {number}")
    old, summary = rig.answer()
    assert summary.admits({"x": 7})
    rig.port.hear(Unregister("x", tuple(f"s/{n}" for n in range(1, 8))), S)
    found = rig.ask(held=old)
    assert found is not None
    assert found.summary is not None
    assert not found.summary.admits({"x": 7})


def test_a_tree_that_was_taken_over_is_summarised_from_its_selectors() -> None:
    rig = Rig()
    rig.register("s/0", "x > 10")
    rig.node.owner.trees["x"].boxes.forget()
    _, summary = rig.answer()
    assert not summary.admits(FIVE)


def test_counting_and_the_event_tree_have_no_summaries() -> None:
    rig = Rig(settings(tree={"routing": "counting"}))
    rig.register("s/0", "x > 10")
    rig.port.advance(SUMMARY_PAUSE_LEAST)
    assert rig.ask() is None
    rig = Rig()
    everything = Interval((0, False, 0), (3, 0, 0))
    rig.take(Registration("s/0", EVENT_TREE, S, "x IS NULL", everything))
    rig.port.advance(SUMMARY_PAUSE_LEAST)
    rig.port.hear(AskTree((EVENT_TREE,)), P)
    rig.node.clusters.commit()
    (answer,) = rig.port.take(TreeAnswer)
    assert answer.summaries == ()
    assert len(answer.entries) == 1


@pytest.mark.parametrize(("count", "named"), [(3, 3), (LOCATIONS_MOST + 1, 1)])
def test_an_answer_names_all_virtual_nodes_of_a_small_tree(count: int, named: int) -> None:
    rig = Rig()
    rig.register("s/0", "x > 1")
    owned = rig.node.owner.trees["x"]
    (entry,) = owned.tree.map.entries
    bounds = [entry.interval.lo, *(place(n) for n in range(count - 1)), entry.interval.hi]
    owned.tree.map = PartitionMap(
        (1, 9), tuple(Entry(Interval(bounds[n], bounds[n + 1]), (H,)) for n in range(count))
    )
    rig.port.hear(AskTree(("x",)), P)
    rig.node.clusters.commit()
    assert sum(len(m.entries) for m in rig.port.take(TreeAnswer)) == named


def test_large_answers_are_cut_and_nothing_is_lost() -> None:
    rig = Rig()
    names = [f"a{n}" for n in range(40)]
    for name in names:
        for number in range(8):
            text = "t" * 4_000
            rig.register(f"s/{number}", f"{name} = '{number}{text}'", name)
    rig.port.advance(SUMMARY_PAUSE_LEAST)
    for _ in range(2):  # what is not small is made after the first question
        rig.port.take(TreeAnswer)
        rig.port.hear(AskTree((*names, "nobody")), P)
        rig.node.clusters.commit()
        rig.port.advance(0.0)
    answers = rig.port.take(TreeAnswer)
    assert len(answers) > 1
    assert sorted(s.attribute for m in answers for s in m.summaries) == sorted(names)
    assert sorted(e.attribute for m in answers for e in m.entries) == sorted(names)
    assert [m.absent for m in answers if m.absent] == [("nobody",)]
    assert {m.number for m in answers} == {0}


def test_of_an_arc_that_leaves_publishers_hear_where_its_trees_are_and_nothing_else() -> None:
    rig = Rig()
    assert rig.register("s/0", "x > 1")
    waiting = registration("s/1", "x", "x > 3", S)
    rig.port.hear(Register(1, (waiting,), final=True), S)  # its host has not answered yet
    arc = rig.node.clusters.cluster
    assert arc is not None
    rig.node.clusters.giving_away = arc
    rig.port.hear(ArcLeaving(arc))
    rig.port.hear(AskTree(("x", "unknown"), 7), P)
    (answer,) = rig.port.take(TreeAnswer)
    assert [location.attribute for location in answer.entries] == ["x"]
    assert (answer.number, answer.term, answer.absent, answer.summaries) == (7, 0.0, (), ())
    assert [m.attributes for _, m in rig.port.sent_to(NotOwner)] == [("unknown",)]
