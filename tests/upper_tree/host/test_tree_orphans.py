"""A host asks about trees without a serving lease, and drops what their owner does not know."""

from __future__ import annotations

from harness.overlays import settings
from matching import EVERYTHING
from overlay.upper_tree.host.constants import ORPHAN_PERIOD
from overlay.upper_tree.messages import Assign, Install, StillHosting, TreesHosted
from tests.support.trees import FakeRing, HostNode, Rig, cluster_of
from tests.support.world import WorldNode, one_node, peer

OWNER = cluster_of("p")


def host() -> tuple[WorldNode, HostNode, FakeRing]:
    """It has a tree, and no lease."""
    port = one_node("h")
    node = HostNode(port, settings())
    node.hosting.start()
    port.hear(Assign("x", (1, 1), (EVERYTHING,), 1, ()), peer("q"))
    return port, node, node.ring


def test_a_tree_without_a_lease_at_two_looks_is_asked_about_and_dropped() -> None:
    port, node, ring = host()
    ring.learn(OWNER)
    port.advance(ORPHAN_PERIOD + 0.1)
    assert port.sent_to(StillHosting) == []
    port.advance(ORPHAN_PERIOD)
    assert port.sent_to(StillHosting) == [("p", StillHosting(OWNER.key, 1))]
    port.hear(TreesHosted(OWNER.start, OWNER.key, 1, ()), peer("p"))
    assert not node.hosting.trees


def test_a_tree_with_a_lease_is_left_alone() -> None:
    port, node, ring = host()
    ring.learn(OWNER)
    for _ in range(8):
        port.advance(ORPHAN_PERIOD - 1.0)
        node.lease()  # for some three seconds
        port.advance(1.0)
    assert port.sent_to(StillHosting) == []
    assert list(node.hosting.trees) == ["x"]


def test_an_owner_to_whom_a_host_would_not_listen_has_a_higher_epoch_granted() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    owner = rig.owner
    key = OWNER.key
    owner.port.hear(StillHosting(key, owner.owner.epoch), peer("h1"))
    assert owner.clusters.outranked == []
    owner.port.hear(StillHosting(key, 77), peer("h1"))
    assert owner.clusters.outranked == [77]


def test_an_owner_whose_orders_were_refused_learns_which_epoch_it_needs() -> None:
    """The host does not have the tree, so that nothing of it is without a lease."""
    port, node, ring = host()
    ring.learn(OWNER)
    port.hear(TreesHosted(OWNER.start, OWNER.key, 9, ("x",)), peer("fork"))
    port.hear(Install("y", 5, ()), peer("p"))
    port.hear(Assign("y", (5, 1), (EVERYTHING,), 1, ()), peer("p"))
    assert "y" not in node.hosting.trees
    port.advance(ORPHAN_PERIOD + 0.1)
    assert port.sent_to(StillHosting) == [("p", StillHosting(OWNER.key, 9))]
    port.hear(Assign("y", (10, 1), (EVERYTHING,), 1, ()), peer("p"))
    assert "y" in node.hosting.trees


def test_an_unknown_owner_is_looked_up() -> None:
    port, _, ring = host()
    port.advance(2 * ORPHAN_PERIOD + 0.1)
    assert port.sent_to(StillHosting) == []
    assert ring.asked
