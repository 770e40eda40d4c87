"""The trees of a cluster that merges with the next one (P1): stopped there, restored here."""

from __future__ import annotations

from msgspec.structs import replace

from overlay.chord.events import ArcArrived, ArcKept, ArcMerging, ArcTaken, Committed
from overlay.upper_tree.messages import (
    AskTree,
    Invalidate,
    Invalidated,
    NotOwner,
    Register,
    Registered,
    TreeAnswer,
)
from overlay.upper_tree.owner.registrations.registry_merge import ArcMerge
from overlay.upper_tree.owner.tree_log import CacheHoldersChanged, decode
from tests.support.trees import Rig, S, cluster_of, registration

ARC = replace(cluster_of("p"), key="7" * 40, start="7" * 40)


def merging(*selectors: str) -> Rig:
    """An owner with these registrations at h1, whose cluster is about to merge."""
    rig = Rig("h1")
    node = rig.owner
    node.port.add(ArcMerge(node.port, node.clusters, node.owner, node.summaries))
    rig.register(*selectors)
    rig.settle()
    rig.net.run(2.0)
    rig.net.flush()
    return rig


def taking(rig: Rig, entries: tuple[bytes, ...]) -> None:
    """The next cluster gets this state, and its log has the arc in the end."""
    rig.owner.port.hear(ArcArrived(ARC, entries))
    assert rig.owner.clusters.stored == 1


def commit(rig: Rig) -> None:
    rig.owner.port.hear(Committed(ARC.key, len(rig.owner.clusters.log)))
    rig.owner.port.hear(ArcTaken(ARC))


def test_the_state_is_handed_over_when_the_hosts_have_said_that_they_stopped() -> None:
    rig = merging("x > 1", "x > 2")
    rig.owner.port.hear(ArcMerging(ARC, False))
    rig.net.run(0.2)  # the host has the order, and its answer is on its way
    assert rig.owner.clusters.handed == []
    rig.settle(0.4)
    (entries,) = rig.owner.clusters.handed
    assert rig.serving(5) == []
    assert [type(decode(entry)).__name__ for entry in entries] == [
        "MapChanged",
        "RegistrationAdded",
        "RegistrationAdded",
    ]


def test_a_silent_host_is_waited_for_as_long_as_its_lease_lasts() -> None:
    rig = merging("x > 1")
    rig.net.links.clear()
    rig.net.cut("p", "h1")
    rig.owner.port.hear(ArcMerging(ARC, False))
    rig.settle(1.0)
    assert rig.owner.clusters.handed == []
    rig.settle(rig.settings.tree.serving_most)
    assert len(rig.owner.clusters.handed) == 1


def test_the_state_is_handed_over_when_no_publisher_has_a_summary() -> None:
    rig = merging("x > 1")
    asker = rig.net.node("a")
    rig.owner.port.hear(AskTree(("nobody's",), 1), asker.me)
    rig.settle(0.4)
    rig.owner.port.hear(ArcMerging(ARC, False))
    rig.settle(0.4)
    ((to, recall),) = rig.owner.port.sent_to(Invalidate)
    assert to == "a"
    assert rig.owner.clusters.handed == []
    rig.owner.port.hear(Invalidated(("nobody's",), recall.number), asker.me)
    rig.settle(0.4)
    (entries,) = rig.owner.clusters.handed
    assert not any(isinstance(decode(entry), CacheHoldersChanged) for entry in entries)


def test_nothing_is_registered_or_answered_meanwhile() -> None:
    rig = merging("x > 1")
    rig.owner.port.hear(ArcMerging(ARC, False))
    rig.owner.port.sent.clear()
    rig.owner.port.hear(Register(1, (registration("s/9", "x", "x > 3", S),)), S)
    asker = rig.net.node("a")
    rig.owner.port.hear(AskTree(("x",), 1), asker.me)
    refused = [(to, message.attributes) for to, message in rig.owner.port.sent_to(NotOwner)]
    assert refused == [("s", ("x",)), ("a", ("x",))]
    assert not rig.owner.port.sent_to(TreeAnswer)


def test_an_arc_that_is_kept_is_served_again() -> None:
    rig = merging("x > 1")
    rig.owner.port.hear(ArcMerging(ARC, False))
    rig.settle(0.4)
    assert rig.serving(5) == []
    rig.owner.port.hear(ArcKept(ARC))
    rig.settle(6.0)
    assert rig.serving(5) == ["h1"]
    rig.owner.port.sent.clear()
    rig.register("x > 7", first=1)
    rig.settle(1.0)
    assert [to for to, _ in rig.owner.port.sent_to(Registered)] == ["s"]


def test_a_later_primary_hands_over_what_was_stopped_before() -> None:
    rig = merging("x > 1")
    rig.owner.port.hear(ArcMerging(ARC, True))
    assert len(rig.owner.clusters.handed) == 1


def test_the_next_cluster_serves_the_trees_from_its_own_hosts_when_its_log_has_them() -> None:
    old = merging("x > 1", "x > 2")
    old.owner.port.hear(ArcMerging(ARC, False))
    old.settle(0.4)
    (entries,) = old.owner.clusters.handed
    new = Rig("h7")
    taking(new, entries)
    new.settle(2.0)
    assert not new.owner.owner.trees
    assert new.serving(5, "h7") == []
    commit(new)
    asker = new.net.node("a")
    new.owner.port.hear(AskTree(("x",), 1), asker.me)
    assert not new.owner.port.sent_to(TreeAnswer), "no host serves yet"
    new.settle(3.0)
    assert new.serving(5, "h7") == ["h7"]
    assert sorted(new.owner.owner.trees["x"].tree.registrations) == ["s/0", "s/1"]
    new.owner.port.hear(AskTree(("x",), 2), asker.me)
    assert new.owner.port.sent_to(TreeAnswer)


def test_what_was_registered_is_acknowledged_again_by_the_next_cluster() -> None:
    """Perhaps the subscriber never got its answer: it asks the next owner."""
    old = merging("x > 1")
    old.owner.port.hear(ArcMerging(ARC, False))
    old.settle(0.4)
    new = Rig("h7")
    taking(new, old.owner.clusters.handed[0])
    commit(new)
    new.settle(3.0)
    new.owner.port.hear(Register(1, (registration("s/0", "x", "x > 1", S),)), S)
    new.settle(1.0)
    ((to, message),) = new.owner.port.sent_to(Registered)
    assert (to, message.ids) == ("s", ("s/0",))
