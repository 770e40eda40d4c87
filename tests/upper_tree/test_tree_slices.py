"""What a program may ask for at once, however much it is, keeps no node from its other work: the
work of each turn is bounded. Calls are counted, since a simulated turn takes no time."""

from __future__ import annotations

from typing import Any

import pytest

from harness.overlays import acknowledged, assert_exact, grown, with_role
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.clients.constants import ENDED_AT_ONCE
from overlay.upper_tree.host.assigned_trees import AssignedTrees
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.owner.constants import CHANGE_COST, SCANNED_AT_ONCE
from overlay.upper_tree.owner.host_supervisor import HostSupervisor
from overlay.upper_tree.owner.owned_tree import OwnedTree, OwnedTrees
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registrations.registry import Registry
from overlay.upper_tree.publisher.constants import PAIRS_AT_ONCE
from overlay.upper_tree.publisher.pending_store import PendingWindow
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.sliced_inbox import AT_ONCE, ENDS, TREE
from tests.support.turn_work import TurnWork

MANY = 1_100
"""Subscriptions: more than any turn may end."""


def count_ids(self: Any, ids: Any) -> int:
    """How many registrations end in this call."""
    return len(ids)


@pytest.mark.parametrize("how", ["closed", "drained", "crashed"])
def test_the_end_of_very_many_subscriptions_is_spread_over_turns(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    work = TurnWork(
        monkeypatch,
        ended=(LocalClients, "_end"),
        unregistered=(OwnedTree, "unregister", count_ids),
        uninstalled=(HostedTree, "uninstall"),
        logged=(Owner, "append"),
    )
    world = grown(3)
    for number in range(MANY):
        world.subscribe("n2", f"x > {number}", client=9)
        if number % 50 == 0:
            world.run(0.1)
    stays = world.subscribe("n1", "x > 0", client=2)
    acknowledged(world)
    world.run(2.0)
    work.begin()
    if how == "closed":
        world.client_gone("n2", client=9)
    elif how == "drained":
        world.drain("n2")
    else:
        world.crash("n2")
    world.run(10.0 if how != "crashed" else 100.0)
    trees = [t for n in world.names() for t in world.node(n).owner.trees.values()]
    left = [one for owned in trees for one in owned.tree.registrations]
    assert len(left) == 1
    hosting = [t for n in world.names() for t in world.node(n).hosting.trees.values()]
    assert {id_ for tree in hosting for id_ in tree.registrations} == set(left)
    assert how == "crashed" or work.total["ended"] == MANY
    assert work.most["ended"] <= ENDED_AT_ONCE
    assert work.total["unregistered"] == MANY
    assert work.most["unregistered"] <= AT_ONCE * ENDS
    assert work.most["uninstalled"] <= AT_ONCE * ENDS
    assert work.total["logged"] <= MANY // 20, "they end in batches"
    (event,) = world.publish("n0", {"x": 9_999})
    world.settle()
    shown = [one.delivery for one in world.clients.deliveries]
    assert [d.subscription for d in shown if d.event.identity == event.identity] == [stays.identity]


def test_a_selector_of_very_many_attributes_is_planted_with_work_in_proportion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attribute's tree is planted by itself: nothing that one takes may look at all trees."""
    work = TurnWork(
        monkeypatch,
        planted=(Registry, "_create_tree"),
        counted=(OwnedTree, "host_shares"),
        watched=(HostSupervisor, "watch"),
        asked=(Registry, "_is_due"),
        located=(AssignedTrees, "_access_point"),
        removed=(OwnedTrees, "drop"),
    )
    world = grown(3)
    work.begin()
    many = 300
    world.subscribe("n2", " OR ".join(f"a{number} = 1" for number in range(many)))
    acknowledged(world, most=2.0)
    assert work.total["planted"] == many
    assert work.most["planted"] <= AT_ONCE // TREE
    assert work.total["counted"] <= 2 * many, "one more tree, one more to count"
    assert work.total["watched"] <= 10
    assert work.total["asked"] <= 5 * many, "once for the log and each host"
    hosts = sum(bool(world.node(name).hosting.trees) for name in world.names())
    assert work.total["located"] == hosts * many

    world.client_gone("n2")
    work.begin()
    world.run(20.0)
    assert not any(world.node(name).owner.trees for name in world.names())
    assert work.total["removed"] == many
    assert work.most["removed"] <= SCANNED_AT_ONCE // CHANGE_COST, "trees end in parts as well"


def test_very_many_events_that_waited_for_their_trees_are_sent_a_part_in_each_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PendingWindow, "most", lambda self, is_searching: 20_000)
    work = TurnWork(
        monkeypatch, routed=(Publisher, "_send_part", lambda _, pairs, stale: len(pairs))
    )
    world = grown(3)
    mine = world.subscribe("n1", "a >= 0 OR b >= 0 OR c >= 0 OR d >= 0 OR e >= 0")
    acknowledged(world)
    work.begin()
    events = [world.publish("n2", dict.fromkeys("abcde", number))[0] for number in range(1_500)]
    world.run(2.0)
    world.crash(next(name for name in with_role(world, "primary") if name != "n1"))
    assert_exact(world)
    assert work.total["routed"] >= 1_500 * 5
    assert work.most["routed"] <= PAIRS_AT_ONCE
    shown = [one.delivery for one in world.clients.deliveries]
    assert {d.event.identity for d in shown} == {event.identity for event in events}
    assert {d.subscription for d in shown} == {mine.identity}
