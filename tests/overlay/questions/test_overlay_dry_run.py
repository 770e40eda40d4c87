"""A dry run: what owners and hosts say of an event is who gets it when it is published."""

from __future__ import annotations

from random import Random

import pytest

from canopy.sim.world.world import World
from harness.overlays import acknowledged, assert_exact, grown, settings, with_role
from overlay.client import DRY_RUN_MOST, Draft, DryRun, Failed, Recipients
from overlay.info import EventRecipients
from overlay.upper_tree.clients.dry_run import NO_HOST, NO_OWNER
from overlay.upper_tree.partition import ranked
from tests.support.examples import overlay_seeds

SELECTORS = (
    "mag >= {0}", "mag < {0} AND kind = 'k{1}'", "kind IN ('k{1}', 'k0') OR depth > {0}",
    "NOT kind = 'k{1}'", "depth IS NULL", "mag + depth > {0}", "place LIKE 'a%' AND mag > {0}",
)  # fmt: skip


def dry_run(world: World, node: str, *events: dict[str, object]) -> tuple[EventRecipients, ...]:
    drafts = tuple(Draft(dict(attributes)) for attributes in events)  # type: ignore[arg-type]
    answer = world.ask(node, DryRun(world.clients.request(), drafts))
    assert isinstance(answer, Recipients), answer
    return answer.events


def subscribed(world: World, seed: int, each: int = 3) -> None:
    """Some subscriptions at every node."""
    rng = Random(seed)
    for node in world.names():
        for _ in range(each):
            selector = rng.choice(SELECTORS).format(rng.randrange(9), rng.randrange(3))
            world.subscribe(node, selector)
    acknowledged(world)


def drawn(rng: Random) -> dict[str, object]:
    event: dict[str, object] = {"mag": rng.randrange(10), "kind": f"k{rng.randrange(4)}"}
    if rng.random() < 0.5:
        event["depth"] = rng.randrange(10)
    if rng.random() < 0.3:
        event["place"] = rng.choice(("alaska", "nome", 7))
    return event


def promised(found: EventRecipients) -> dict[str, set[str]]:
    """Nodes with the subscriptions that would get the event."""
    return {one.node: set(one.ids) for one in found.listed}


def delivered(world: World, identity: str) -> dict[str, set[str]]:
    """Nodes with the subscriptions that got the event."""
    got: dict[str, set[str]] = {}
    for one in world.clients.deliveries:
        if one.delivery.event.identity == identity:
            node = world.drivers[one.node].disk.node
            got.setdefault(node, set()).add(one.delivery.subscription)
    return got


@pytest.mark.parametrize("seed", overlay_seeds(3))
def test_it_names_exactly_the_subscriptions_that_then_get_the_event(seed: int) -> None:
    chosen = settings(tree={"split_at": 6})  # several virtual nodes for each attribute
    world = grown(8, seed, chosen)
    subscribed(world, seed)
    world.run(10)
    events = [drawn(Random(100 * seed + number)) for number in range(12)]
    answers = dry_run(world, "n3", *events)
    assert world.settle()
    assert not world.clients.deliveries, "nothing is delivered"
    assert any(len(found.listed) > 1 for found in answers)
    made = world.publish("n3", *events)  # type: ignore[arg-type]
    assert_exact(world)
    for publication, found in zip(made, answers, strict=True):
        assert found.unanswered == ()
        assert found.nodes == len(found.listed)
        assert all(one.subscriptions == len(one.ids) for one in found.listed)
        assert promised(found) == delivered(world, publication.identity)


def test_it_leaves_nothing_behind() -> None:
    world = grown(6)
    subscribed(world, 1)
    before = world.status("n2").counters
    found, *_ = dry_run(world, "n2", {"mag": 9, "kind": "k1", "nowhere": 1})
    assert found.listed
    after = world.status("n2").counters
    for name in ("published", "delivered", "lookups_by_ring", "lookups_absent", "data_messages"):
        assert after.get(name, 0) == before.get(name, 0), name
    assert not world.node("n2").dry_runs._queries


def test_what_cannot_be_published_is_refused_with_a_reason_and_the_rest_answered() -> None:
    world = grown(3)
    world.subscribe("n1", "a = 1")
    acknowledged(world)
    bad, good, none = dry_run(world, "n0", {"$a": 1}, {"a": 1}, {"a": 2, "b": None})
    assert "reserved" in bad.refused
    assert (bad.nodes, good.nodes, none.nodes) == (0, 1, 0)
    assert dry_run(world, "n0", {"": 1})[0].refused
    assert dry_run(world, "n0") == ()


def test_too_many_events_and_counting_routing_are_refused() -> None:
    world = grown(2)
    drafts = (Draft({"a": 1}),) * (DRY_RUN_MOST + 1)
    answer = world.ask("n0", DryRun(world.clients.request(), drafts))
    assert isinstance(answer, Failed)
    assert answer.code == "usage"
    wide = tuple(Draft({f"a{n}.{m}": 1 for m in range(60)}) for n in range(20))
    answer = world.ask("n0", DryRun(world.clients.request(), wide))
    assert isinstance(answer, Failed)
    assert "20 events with 1200 attributes" in answer.reason
    world = grown(2, chosen=settings(tree={"routing": "counting"}))
    answer = world.ask("n0", DryRun(world.clients.request(), drafts[:1]))
    assert isinstance(answer, Failed)
    assert answer.code == "refused"
    assert "pivot" in answer.reason


def first_asked(world: World, attribute: str) -> tuple[str, str]:
    """A node, and the host of the attribute's only virtual node that it asks first: neither is the
    owner, nor the other."""
    (primary,) = with_role(world, "primary")
    (entry,) = world.node(primary).owner.trees[attribute].tree.map.entries
    names = {world.drivers[name].disk.node: name for name in world.names()}
    for asker in world.names():
        host = names[ranked(world.drivers[asker].disk.node, entry.hosts)[0].id]
        if len({asker, host, primary, "n1"}) == 4:
            return asker, host
    raise AssertionError("the owner is the only host")


@pytest.mark.parametrize("replicas", [1, 3])
def test_of_a_silent_host_the_next_replica_is_asked_and_without_one_it_is_named(
    replicas: int,
) -> None:
    world = grown(8, 4, settings(tree={"replicas": replicas}))
    world.subscribe("n1", "a > 3")
    acknowledged(world)
    world.run(10)
    asker, host = first_asked(world, "a")
    world.drivers[host].pause()
    (found,) = dry_run(world, asker, {"a": 5})
    if replicas == 1:
        assert found.listed == ()
        assert dict(found.unanswered) == {"a": NO_HOST}
    else:
        assert [one.node for one in found.listed] == [world.drivers["n1"].disk.node]
        assert found.unanswered == ()


def test_an_owner_that_is_silent_is_named() -> None:
    world = grown(5, 2)
    world.subscribe("n1", "a > 3")
    acknowledged(world)
    (primary,) = with_role(world, "primary")
    asker = next(name for name in world.names() if name not in (primary, "n1"))
    for name in world.names():
        if name != asker:
            world.drivers[name].pause()
    (found,) = dry_run(world, asker, {"a": 5})
    assert {why for _, why in found.unanswered} == {NO_OWNER}
