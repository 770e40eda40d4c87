"""Who has nothing to do with a registration neither makes up events for it nor suppresses any.

Identities are counted, so the next ones of a publisher can be guessed. What is forged comes over
each of the ways by which events reach an interested node: deliveries, delegates, relays, what comes
back from them, and hosts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest
from msgspec.structs import replace

from canopy.sim.scenario.scenario import Fault, Scenario
from canopy.sim.world.signer import SimulatedSigner
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from harness.overlays import READY, acknowledged, assert_exact, run_green, settings, wait
from matching import EVERYTHING
from node import Node
from overlay.chord.messages import Contact
from overlay.client import Event
from overlay.links.statements import TOKEN_BYTES, Tokens
from overlay.machine import Message
from overlay.rights import Principal, Role, refusal
from overlay.upper_tree.delivery.constants import FORMER_TOKENS_FOR
from overlay.upper_tree.delivery.delivery_tokens import DeliveryTokens, OwnToken
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.host.visit_handler import is_from_host
from overlay.upper_tree.messages import (
    Assign,
    DelegateShare,
    Deliver,
    Entry,
    EventsRefused,
    Registration,
    Undelivered,
    Visit,
)
from tests.support.examples import overlay_seeds
from tests.support.world import peer

ROLES = (*[Role.VOTER] * 5, Role.MEMBER, Role.LEAF)
LIAR, VICTIM, PUBLISHER = "n5", "n6", "n1"


def overlay(liar: Role = Role.MEMBER) -> World:
    """A leaf with a subscription, a publisher whose events come, and a node that hosts nothing and
    lies."""
    world = World(5, WireCodec(), settings(cluster={"size": 3}))
    world.roles = {f"n{number}": role for number, role in enumerate(ROLES)}
    world.roles[LIAR] = liar
    for number in range(len(ROLES)):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    for name in (VICTIM, "n2"):
        world.subscribe(name, "x > 1")
    acknowledged(world)
    world.publish(PUBLISHER, {"x": 2})
    world.run(2)
    assert not world.node(LIAR).hosting.trees
    return world


def forged(world: World) -> tuple[Event, ...]:
    """The publisher's next events, as anybody may guess."""
    node = world.node(PUBLISHER)
    return tuple(
        Event(node.me.id, node.incarnation, number, 0.0, {"x": 1_000}) for number in range(2, 12)
    )


def send(world: World, name: str, message: Message) -> None:
    """The liar sends it."""
    liar = world.node(LIAR)
    liar.turns.begin()
    liar.links.send(world.node(name).me, message)
    liar.links.flush()


def by_delivery(world: World) -> Iterator[tuple[str, Message]]:
    yield VICTIM, Deliver("x", EVERYTHING, 2, forged(world))
    yield VICTIM, Deliver("x", EVERYTHING, 2, forged(world), token=b"\xff" * TOKEN_BYTES)
    yield VICTIM, Deliver("x", EVERYTHING, 2, forged(world), host=world.node("n0").me)


def by_a_delegate(world: World) -> Iterator[tuple[str, Message]]:
    """Or a relay: who is to pass on what it is handed, and may be interested itself."""
    share = DelegateShare("x", EVERYTHING, (world.node(VICTIM).me,))
    onward = ((share,),) * len(forged(world))
    for name in ("n0", "n2", "n3"):
        yield name, Deliver("x", EVERYTHING, 2, forged(world), onward=onward)


def by_what_comes_back(world: World) -> Iterator[tuple[str, Message]]:
    """To a host, which is to send it itself."""
    for name in ("n0", "n1", "n2", "n3"):
        yield name, Undelivered("x", EVERYTHING, 2, forged(world), world.node(VICTIM).me)


def by_a_host(world: World) -> Iterator[tuple[str, Message]]:
    """As if another host had passed the publisher's events on."""
    for name in world.names():
        if "x" in world.node(name).hosting.trees:
            yield name, Visit(world.node(PUBLISHER).me, 2, ("x",), forged(world))
            yield name, Visit(world.node(LIAR).me, 2, ("x",), forged(world))
            yield name, Visit(world.node(PUBLISHER).me, 0, ("x",), forged(world))


WAYS = (by_delivery, by_a_delegate, by_what_comes_back, by_a_host)


@pytest.mark.parametrize("liar", [Role.MEMBER, Role.VOTER])
@pytest.mark.parametrize("way", WAYS)
def test_who_hosts_nothing_forges_and_suppresses_nothing(
    way: Callable[[World], Iterator[tuple[str, Message]]], liar: Role
) -> None:
    """Three of three made-up events were shown, and none of the true ones."""
    world = overlay(liar)
    for name, message in way(world):
        send(world, name, message)
    world.run(5)
    for number in range(3, 13):
        world.publish(PUBLISHER, {"x": number})
    assert_exact(world)
    seen = [one.delivery.event.attributes["x"] for one in world.clients.deliveries]
    assert sorted(seen) == sorted([*range(2, 13)] * 2)
    refused = sum(
        world.node(name).counters.get(count, 0)
        for name in world.names()
        for count in ("deliveries_refused", "visits_refused")
    )
    assert refused >= 10


def test_nor_has_it_a_publisher_take_its_events_for_refused() -> None:
    world = overlay()
    hosts = [name for name in world.names() if "x" in world.node(name).hosting.trees]
    send(world, VICTIM, Contact(world.node(LIAR).me.id))
    world.run(1)  # they have a link
    for name in hosts:
        world.network.block(name, VICTIM)
    made = world.publish(VICTIM, *[{"x": number} for number in range(3, 9)])
    send(world, VICTIM, EventsRefused(1, tuple(range(1, 9)), 0, "no"))
    world.run(0.5)
    world.network.heal()
    assert_exact(world)
    assert not any(one.refused for one in made)


def test_events_are_of_the_node_that_they_are_said_to_come_from() -> None:
    world = overlay()
    me, publisher = world.node(LIAR).me, world.node(PUBLISHER).me
    (*_, event) = forged(world)
    for role in (Role.MEMBER, Role.VOTER, Role.ADMIN):
        principal = Principal(me.id, role, "")
        assert refusal(principal, Visit(me, 1, ("x",), (event,)))
        assert refusal(principal, Visit(me, 2, ("x",), (event,)))
        assert refusal(principal, Visit(publisher, 1, ("x",), (event,)))
        assert refusal(principal, Visit(publisher, 2, ("x",), (event,))) == ""


# --- hosts that come and go, and what they pass on, are known all the while ---


MOVING = Scenario(
    nodes=14, seed=4, keys=True, subscriptions=40, events=130, rate=15, late_subscriptions=10,
    settings=settings(tree={"fan_out": 2, "split_at": 6, "replicas": 2}),
    faults=(
        Fault(at=1, do="drain", role="broker"), Fault(at=2, do="crash", role="primary"),
        Fault(at=3, do="cut", nodes=(5, 7)), Fault(at=4, do="cut", nodes=(2, 9)),
        Fault(at=6, do="restart"), Fault(at=7, do="crash", role="standby"), Fault(at=8, do="heal"),
    ),
)  # fmt: skip


@pytest.mark.parametrize("regions", [1, 3][: len(overlay_seeds(2))])
def test_hosts_move_and_nothing_that_they_send_is_refused(
    regions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    original = Node.count

    def counted(node: Node, name: str, amount: int = 1) -> None:
        counts[name] += amount
        original(node, name, amount)

    monkeypatch.setattr(Node, "count", counted)
    run_green(replace(MOVING, regions=regions))
    assert counts["deliveries_spread_again"] + counts["deliveries_given_back"] > 0
    assert not {"deliveries_refused", "visits_refused", "parts_refused"} & set(counts)


# --- the parts ---


def registration(token: bytes, number: int = 0) -> Registration:
    return Registration(f"s.{number}", "x", peer("s"), "x > 1", EVERYTHING, 0, None, token)


def test_of_what_a_host_has_of_one_node_the_latest_process_s_token_counts() -> None:
    tokens = Tokens(SimulatedSigner("s", "w"))
    older, newer = (tokens.make("deliveries", serial=serial) for serial in (255, 256))
    held = DeliveryTokens()
    for number, token in enumerate((older, newer, older)):
        held.add(registration(token, number))
    assert held.of("s") == newer
    held.remove(registration(newer))
    assert held.of("s") == older
    held.remove(registration(older))
    assert held.of("s") == older
    held.remove(registration(older))
    assert held.of("s") == b""


def test_a_former_process_s_token_counts_for_a_while() -> None:
    tokens = Tokens(SimulatedSigner("s", "w"))
    former = OwnToken(tokens, 4).token
    own = OwnToken(tokens, 5, now=100.0)
    assert own.is_shown(own.token, 1e6)
    assert own.is_shown(former, 101.0)
    assert not own.is_shown(former, 100.0 + FORMER_TOKENS_FOR + 1)
    later = OwnToken(tokens, 6).token
    strange = OwnToken(Tokens(SimulatedSigner("liar", "w")), 4).token
    for token in (b"", later, strange, former[:-1], own.token + b"x"):
        assert not own.is_shown(token, 101.0)


def test_without_keys_no_token_is_made_nor_asked_for() -> None:
    own = OwnToken(Tokens(None), 5)
    assert own.token == b""
    assert own.is_shown(b"", 0.0)
    assert own.is_shown(b"something", 0.0)


def test_hosts_know_each_other_by_the_map_or_by_their_owner_s_token() -> None:
    tree = HostedTree("x", None, Random(1))
    entry = Entry(EVERYTHING, (peer("me"), peer("other")))
    tree.assign(Assign("x", (1, 1), (EVERYTHING,), 1, ((0, entry),), b"token"))
    visit = Visit(peer("p"), 2, ("x", "y"), ())
    for sender, tokens, may in (
        ("other", (), True),
        ("far", (), False),
        ("far", (b"token", b""), True),
        ("far", (b"token",), False),
        ("far", (b"", b"token"), False),
    ):
        passed_on = replace(visit, tokens=tokens)
        assert is_from_host(passed_on, sender, {"x": tree}) is may
