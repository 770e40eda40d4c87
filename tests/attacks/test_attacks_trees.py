"""Who claims to know or to own trees is believed no further than can be checked."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import convert

from canopy.sim.world.world import MeteredNode, World
from canopy.wire.transport.codec import WireCodec
from harness.attacks import ATTACKS
from harness.lying_node import Band, LyingNode
from harness.overlays import READY, acknowledged, assert_exact, wait
from matching import EVERYTHING
from overlay.chord.events import Fenced
from overlay.chord.messages import Contact, FindReply
from overlay.chord.ring.ring_state import RingState
from overlay.rights import Principal, Role, refusal
from overlay.settings import RingSettings, Settings
from overlay.tenants.guard import settings_for
from overlay.upper_tree.messages import Location
from overlay.upper_tree.publisher.doubts import Doubts
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from tests.support.trees import cluster_of
from tests.support.world import one_node, peer


@pytest.mark.parametrize("attack", ["access-points", "owners", "nobody-there"])
def test_a_member_that_lies_about_trees_takes_no_event(attack: str) -> None:
    world = World(3, WireCodec(), build=lambda *args, **more: build(*args, **more))
    band = Band(world.generator("band"))
    band.attributes = ("x",)

    def build(*arguments: Any, **options: Any) -> MeteredNode:
        if arguments[0].name == "n4":
            return LyingNode(ATTACKS[attack](band), *arguments, **options)
        return MeteredNode(*arguments, **options)

    world.roles = {f"n{number}": Role.VOTER if number < 3 else Role.MEMBER for number in range(6)}
    for number in range(5):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    world.subscribe("n1", "x > 1")
    acknowledged(world)
    band.lies, band.liars = True, [world.node("n4").me]
    world.add_node(seeds=["n4", "n0"])
    band.victims = [world.node(name).me for name in world.names() if name != "n4"]
    for _ in range(6):
        world.drivers["n4"].act("push")
        world.run(1.0)
    for name in ("n0", "n3", "n5"):
        world.publish(name, {"x": 7})
    assert_exact(world)


def test_only_voters_say_that_they_own_a_key() -> None:
    claim = FindReply(1, cluster_of("liar"), 1)
    assert refusal(Principal("liar", Role.MEMBER, ""), claim)
    assert not refusal(Principal("liar", Role.VOTER, ""), claim)


def test_who_may_not_lead_or_is_not_known_displaces_nobody() -> None:
    votes: dict[str, bool] = {"me": True, "owner": True, "member": False}
    port = one_node("me")
    state = RingState(port, RingSettings(), SimpleNamespace(votes=votes.get))
    state.learn(cluster_of("owner"))
    assert not state.learn(cluster_of("member", version=(8, 1)))
    state.become_primary(cluster_of("me", version=(2, 1)))
    state.learn(cluster_of("stranger", version=(9, 1)))
    assert [to for to, _ in port.sent_to(Contact)] == ["stranger"], "it is asked what it is"
    assert port.of(Fenced) == []
    votes["stranger"] = True
    state.learn(cluster_of("stranger", version=(9, 1)))
    assert len(port.of(Fenced)) == 1


def test_what_a_host_took_counts_when_the_owner_has_named_it() -> None:
    locations = LocationCache(10, ReplicaSelector("me", 3.0))
    doubts = Doubts("me", locations, lambda attribute, sequences: False)
    locations.learn_entry("x", peer("liar"))
    assert doubts.believed("liar", [(("x",), (1, 2))]) == []
    assert doubts.trees() == ("x",)
    locations.learn(Location("x", (1, 1), EVERYTHING, (peer("h"),)))
    assert doubts.believed("h", [(("x",), (3,))]) == [(("x",), (3,))]
    assert doubts.settle("x") == [("liar", (1, 2), False)]
    assert doubts.trees() == ()


def test_keys_bring_ranked_views_and_confirmed_hosts() -> None:
    chosen = settings_for(Role.VOTER, Settings())
    assert (chosen.view.sampling, chosen.walk.confirm) == ("ranked", "always")


@pytest.mark.parametrize("delegates", ["voters", "members"])
def test_members_that_drop_copies_are_no_delegates(delegates: str) -> None:
    """Two nodes of seven lie, and every node gets everything. Where members are delegates, some get
    nothing."""
    chosen = convert({"tree": {"fan_out": 2, "delegates": delegates}}, Settings)
    world = World(5, WireCodec(), chosen, build=lambda *args, **more: build(*args, **more))
    band = Band(world.generator("band"))

    def build(*arguments: Any, **options: Any) -> MeteredNode:
        return LyingNode(ATTACKS["black-hole"](band), *arguments, **options)

    world.roles = {f"n{number}": Role.VOTER if number < 3 else Role.MEMBER for number in range(9)}
    for number in range(9):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    subscriptions = [world.subscribe(name, "x > 1") for name in world.names()]
    acknowledged(world)
    band.lies, band.liars = True, [world.node(name).me for name in ("n7", "n8")]
    for number in range(20):
        world.publish(f"n{number % 7}", {"x": 7 + number})
        world.run(0.1)
    world.run(5)
    got = Counter(each.delivery.subscription for each in world.clients.deliveries)
    honest = [one for one in subscriptions if one.node not in ("n7", "n8")]
    complete = all(got[one.identity] == 20 for one in honest)
    assert complete is (delegates == "voters")
