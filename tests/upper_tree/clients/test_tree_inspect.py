"""What the overlay says of itself: `canopy ring` and `where`, also when no node answers."""

from __future__ import annotations

import pytest

from matching import EVERYTHING
from overlay.chord.events import RingWalked
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.client import (
    Failed,
    GetRing,
    Located,
    RingClusters,
    Where,
)
from overlay.health import Health
from overlay.settings import Settings
from overlay.upper_tree.clients.inspection import Inspection
from overlay.upper_tree.inspection_messages import (
    AskTrees,
    TreesReport,
)
from overlay.upper_tree.messages import Entry, Register
from tests.support.trees import KEY, OwnerNode, cluster_of, registration
from tests.support.world import one_node, peer

OTHER = Cluster("ring", "f" * 40, KEY, (3, 4), peer("q"), peer("r"), (peer("b"),))


class Rig:
    """A node that leads a cluster and answers clients' questions."""

    def __init__(self) -> None:
        self.port = one_node("p")
        self.node = OwnerNode(self.port, Settings(), cluster_of("p"))
        self.inspection = Inspection(self.port, self.node.owner, self.node.ring, Health(self.port))
        self.port.add(self.inspection)

    def ask(self, client: int, command: GetRing | Where) -> None:
        self.inspection.commands()[type(command)](client, command)
        self.port.turn()

    def collected(self, *clusters: Cluster, complete: bool = True) -> None:
        self.port.hear(RingWalked(clusters, complete))

    def trees(self, number: int, cluster: Cluster, *attributes: str) -> None:
        reply = TreesReport(number, cluster.key, attributes, (1, 1), ())
        self.port.hear(reply, cluster.primary)


def test_the_ring_is_collected_and_every_primary_reports_its_trees() -> None:
    rig = Rig()
    rig.node.port.hear(Register(1, (registration("s/0", "x", "x > 1", peer("s")),)), peer("s"))
    rig.ask(5, GetRing(7))
    assert rig.node.ring.collected == 1
    mine = rig.node.clusters.cluster
    assert mine is not None
    rig.collected(mine, OTHER)
    assert [to for to, _ in rig.port.sent_to(AskTrees)] == ["p", "q"]
    assert rig.port.answers(RingClusters) == []
    rig.trees(1, OTHER, "y", "z")
    ((client, answer),) = rig.port.replies
    assert (client, answer.request, answer.complete) == (5, 7, True)
    first, second = answer.clusters
    assert (first.primary, first.attributes) == ("p", ("x",))
    assert (second.key, second.start, second.epoch) == (OTHER.key, OTHER.start, 3)
    assert (second.primary, second.standby, second.brokers) == ("q", "r", ("b",))
    assert second.attributes == ("y", "z")
    assert second.addresses == {"q": "q:1", "r": "r:1", "b": "b:1"}


def test_a_cluster_that_does_not_answer_in_time_is_shown_without_its_trees() -> None:
    rig = Rig()
    rig.ask(5, GetRing(7))
    rig.collected(OTHER)
    rig.port.advance(3.1)
    (answer,) = rig.port.answers(RingClusters)
    assert not answer.complete
    assert [c.attributes for c in answer.clusters] == [()]
    rig.trees(1, OTHER, "y")
    assert rig.port.replies == [], "too late"


@pytest.mark.parametrize("complete", [True, False])
def test_a_way_around_that_is_not_closed_is_said_so(complete: bool) -> None:
    rig = Rig()
    rig.ask(5, GetRing(7))
    rig.collected(OTHER, complete=complete)
    rig.trees(1, OTHER)
    (answer,) = rig.port.answers(RingClusters)
    assert answer.complete is complete


def test_an_unknown_ring_is_empty_and_a_silent_one_times_out() -> None:
    rig = Rig()
    rig.ask(5, GetRing(7))
    rig.collected(complete=False)
    assert rig.port.answers(RingClusters) == [RingClusters(7, (), False)]
    rig.ask(5, GetRing(8))
    rig.port.advance(3.1)
    (failed,) = rig.port.answers(Failed)
    assert (failed.request, failed.code) == (8, "time-out")


def test_where_names_the_owner_and_the_virtual_nodes() -> None:
    rig = Rig()
    for number in range(3):
        made = registration(f"s/{number}", "x", f"x > {number}", peer("s"))
        rig.port.hear(Register(1, (made,)), peer("s"))
    rig.ask(5, Where(7, "x"))
    rig.node.ring.answer("x", rig.node.clusters.cluster)
    (answer,) = rig.port.answers(Located)
    assert (answer.request, answer.attribute, answer.cluster.primary) == (7, "x", "p")
    (virtual,) = answer.virtual_nodes
    assert (virtual.lo, virtual.hi, virtual.host, virtual.registrations) == ("-∞", "+∞", "p", 3)


def test_without_subscribers_there_is_an_owner_without_a_tree() -> None:
    rig = Rig()
    rig.ask(5, Where(7, "x"))
    rig.node.ring.answer("x", rig.node.clusters.cluster)
    (answer,) = rig.port.answers(Located)
    assert answer.virtual_nodes == ()


def test_where_on_a_ring_that_does_not_answer() -> None:
    rig = Rig()
    rig.ask(5, Where(7, "x"))
    rig.node.ring.answer("x", None)
    assert [(f.request, f.code) for f in rig.port.answers(Failed)] == [(7, "time-out")]
    rig.ask(5, Where(8, "x"))
    rig.port.advance(3.1)
    assert [(f.request, f.code) for f in rig.port.answers(Failed)] == [(8, "time-out")]
    assert rig.inspection._queries == {}


def test_where_takes_only_the_answer_of_its_own_lookup() -> None:
    rig = Rig()
    rig.ask(5, Where(7, ""))
    rig.ask(6, GetRing(8))
    rig.collected(complete=False)
    assert rig.port.answers(RingClusters) == [RingClusters(8, (), False)]
    assert attribute_key("") in rig.node.ring.asked
    rig.node.ring.answer("", rig.node.clusters.cluster)
    assert [a.request for a in rig.port.answers(Located)] == [7]


def test_a_cluster_that_was_not_asked_is_not_trusted() -> None:
    rig = Rig()
    rig.ask(5, GetRing(7))
    rig.collected(OTHER)
    stranger = TreesReport(1, KEY, ("x",), (1, 1), ((Entry(EVERYTHING, (peer("m"),)), 1),))
    rig.port.hear(stranger, peer("m"))
    rig.port.hear(TreesReport(99, OTHER.key, ("x",), (1, 1), ()), peer("m"))
    assert rig.port.replies == []


def test_only_a_primary_reports_trees() -> None:
    rig = Rig()
    rig.node.clusters.cluster = OTHER
    rig.port.hear(AskTrees(1), peer("s"))
    assert rig.port.sent_to(TreesReport) == []
