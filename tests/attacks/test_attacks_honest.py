"""No node is refused, or held to account, for what the protocol makes it say (overlay/rights.py).

Nodes of every role do all that programs can ask of them, through restarts, lost clusters and rings
that meet, and hear whatever a voter that lies may say. What they send is held against the table of
rights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from msgspec.structs import replace

from canopy.sim.world.world import World
from canopy.wire.transport.codec import MESSAGES, WireCodec
from harness.overlays import READY, acknowledged, assert_exact, settings, wait
from node import Node
from overlay.client import AppendEvents, BeginReading, Draft, TakeEvents
from overlay.client_types import COMMANDS
from overlay.links.links import Links
from overlay.links.session import LinkSession
from overlay.lower_random.messages import RingHint, Shuffle
from overlay.machine import Message, Peer, ProtocolError
from overlay.rights import LEAST, NOBODY, Principal, Role, refusal
from overlay.stream_client import AddStream, AttachGroup
from overlay.tenants.guard import Guard, NotAuthenticatedError
from overlay.tenants.policy import Confinement, Policy, TenantPolicy
from streams.directory.messages import ShardsOrphaned
from tests.attacks.test_attacks_messages import Drawing, said
from tests.support.world import one_node

ROLES = (*[Role.VOTER] * 5, Role.ISSUER, Role.ADMIN, *[Role.MEMBER] * 2, *[Role.LEAF] * 3)
ABOUT_RINGS = {"RingMet", "RingEnded", "Moved"}
"""What a leaf keeps to itself where two rings meet: others say it."""
NOT_ASKED = {"Drain", "OpenSession", "ResumeSession", "CloseSession", "Grant"}
"""Commands that end a node, or of the connection to it."""


class Listening:
    """What all nodes say, by role, and what is held against any."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.said: dict[Role, Counter[str]] = {role: Counter() for role in Role}
        self.withheld: Counter[tuple[Role, str]] = Counter()
        self.refused: Counter[str] = Counter()
        self.blamed: Counter[str] = Counter()
        send, broken = Node.send, Links._break_off

        def listened(node: Node, peer: Peer, message: Message) -> None:
            role = node.guard.role
            if role is not None and peer.id != node.me.id:
                kind = type(message).__name__
                if not refusal(Principal(node.me.id, role, ""), message):
                    self.said[role][kind] += 1
                elif role >= Role.VOTER:
                    self.refused[kind] += 1  # nobody may say it, so nobody withholds it
                else:
                    self.withheld[role, kind] += 1
            send(node, peer, message)

        def blamed(links: Links, session: LinkSession, reason: str, is_fault: bool) -> None:
            self.blamed[reason] += 1
            broken(links, session, reason, is_fault)

        patch.setattr(Node, "send", listened)
        patch.setattr(Links, "_break_off", blamed)

    def assert_nobody_is_refused(self, world: World) -> None:
        assert not self.refused
        assert not self.blamed
        for name, driver in world.drivers.items():
            for counter in ("rights_refused", "identity_refused", "link_errors", "refused_late"):
                assert not driver.node.counters.get(counter), (name, counter)

    def assert_withheld(self, *kinds: str) -> None:
        assert {kind for _, kind in self.withheld} <= set(kinds), self.withheld


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    with monkeypatch.context() as patch:
        yield Listening(patch)


def overlay(
    roles: tuple[Role, ...] = ROLES, apart: int = 0, regions: int = 1, split_at: int = 8
) -> World:
    """Nodes of these roles; the last `apart` know none of the others."""
    world = World(11, WireCodec(), settings(cluster={"size": 3}, tree={"split_at": split_at}))
    world.roles = {f"n{number}": role for number, role in enumerate(roles)}
    first = len(roles) - apart
    for number in range(len(roles)):
        known = [] if number in (0, first) else [f"n{0 if number < first else first}"]
        region = f"r{number % regions}" if regions > 1 else ""
        world.add_node(seeds=known, region=region)
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    return world


def ask(world: World, name: str, command: Any) -> int:
    """Give a node a command, whose answer is not waited for."""
    request = world.clients.request()
    world.drivers[name].command(1, replace(command, request=request))
    return request


def work(world: World, rounds: int = 1) -> None:
    """All nodes subscribe, publish, append, read and take part in groups."""
    for name in world.names():
        for number in range(4):
            world.subscribe(name, f"x >= {number * 3} AND y < 5")
    acknowledged(world)
    world.drivers[world.names()[0]].command(
        1, AddStream(world.clients.request(), "s", shards=2, by="x", capture="x > 2")
    )
    world.run(3)
    for _ in range(rounds):
        for number, name in enumerate(world.names()):
            world.publish(name, {"x": number, "y": 2})
            ask(world, name, AppendEvents(0, "s", (Draft({"x": number}),)))
            reading = ask(world, name, BeginReading(0, "s", "x > 1", "first", durable=name))
            ask(world, name, AttachGroup(0, "s", "group"))
            world.run(0.3)
            ask(world, name, TakeEvents(0, reading))
    world.run(5)


def restarts() -> World:
    world = overlay(regions=3)
    work(world, 2)
    names = world.names()
    for name in names:
        world.crash(name)
    for name in names:
        world.restart(name)
    wait(world, world.ready, READY, "ready again")
    work(world)
    for name in ("n1", "n8", "n10"):
        world.drain(name)
    world.run(10)
    return world


def a_lost_cluster() -> World:
    world = overlay()
    work(world)
    lost = [name for name in world.names() if world.node(name).clusters.role != "none"]
    for name in lost:
        world.crash(name)
    world.run(30)
    for name in lost:
        world.restart(name)
    world.run(20)
    work(world)
    return world


def rings_that_meet() -> World:
    """Each with leaves and members; one of each comes to know the other ring."""
    world = overlay((*ROLES, *ROLES), apart=len(ROLES))
    for name in world.names():
        world.subscribe(name, "x > 4")
    acknowledged(world)
    mine, theirs = world.names()[: len(ROLES)], world.names()[len(ROLES) :]
    for name in ("n9", theirs[9]):
        node = world.node(name)
        node.add_seeds([world.drivers[theirs[1] if name == "n9" else mine[1]].disk.address])
    world.run(10)
    world.node("n7").add_seeds([world.drivers[theirs[1]].disk.address])
    wait(world, lambda: len({world.node(n).ring.id for n in world.names()}) == 1, 200, "one ring")
    work(world)
    return world


def tenants() -> World:
    world = overlay()
    world.push_policy("n6", Policy(1, {"acme": TenantPolicy("x >= 0", "x >= 0")}))
    for name in ("n9", "n10"):
        world.crash(name)
        world.tenants[name] = "acme"
        world.restart(name)
    wait(world, world.ready, READY, "ready again")
    work(world, 2)
    return world


@pytest.mark.parametrize("scene", [restarts, a_lost_cluster, rings_that_meet, tenants])
def test_what_honest_nodes_say_is_theirs_to_say(
    scene: Callable[[], World], listening: Listening
) -> None:
    world = scene()
    listening.assert_nobody_is_refused(world)
    listening.assert_withheld(*(ABOUT_RINGS if scene is rings_that_meet else ()))
    assert_exact(world)
    assert len(listening.said[Role.LEAF]) > 12
    assert set(listening.said[Role.LEAF]) <= set(LEAST[Role.LEAF].split())


def test_nor_do_lies_of_a_voter_make_anybody_say_more(listening: Listening) -> None:
    """A leaf that was asked as if it were a voter refused in a voter's words, was penalised for it,
    and then could not subscribe."""
    world = overlay()
    work(world)
    rng, liar = Random(1), "n4"
    may = Principal(world.node(liar).me.id, Role.VOTER, "")
    victims = [name for name in world.names() if name != liar]
    drawing = Drawing(world, rng)
    drawing.texts += ["s", "group"]
    for _ in range(6):
        for kind in MESSAGES:
            message = drawing.message(kind)
            if message is not None and not refusal(may, message):
                for victim in ("n8", "n10", rng.choice(victims)):
                    said(world, liar, victim, message)
        world.run(0.2)
    world.run(5)
    assert len({kind for role, kind in listening.withheld if role is Role.LEAF}) > 10
    listening.assert_nobody_is_refused(world)


def test_nor_do_commands_of_programs_whatever_is_in_them(listening: Listening) -> None:
    world = overlay()
    work(world)
    drawing = Drawing(world, Random(5))
    drawing.texts += ["s", "group", *world.names()]
    for _ in range(4):
        for kind in COMMANDS.__args__:
            if kind.__name__ in NOT_ASKED:
                continue
            for name in ("n1", "n8", "n10"):
                with suppress(msgspec.ValidationError):
                    command = msgspec.convert(drawing.value(inspect.type_info(kind), 0), kind)
                    ask(world, name, command)
        world.run(0.5)
    world.run(5)
    listening.assert_nobody_is_refused(world)
    listening.assert_withheld()


def test_a_stream_that_no_owner_has_founded_is_not_taken_in(listening: Listening) -> None:
    """Its hosts held the contradiction in its options against the owner, who had it of a member."""
    world = overlay()
    work(world)
    owner = next(n for n in world.names() if world.node(n).streams.owner.entries())
    [entry] = world.node(owner).streams.owner.entries()
    for number, fields in enumerate(({"deletes": "x > 1"}, {"replicas": 2}, {"shards": 3})):
        options = replace(entry.options, **fields)
        made_up = replace(entry, name=f"s{number}", id=f"{number}" * 40, options=options)
        said(world, "n7", owner, ShardsOrphaned((made_up,)))
    world.run(5)
    assert [one.name for one in world.node(owner).streams.owner.entries()] == ["s"]
    assert world.node(owner).counters["streams_not_taken_in"] == 3
    listening.assert_nobody_is_refused(world)


# --- the attack itself: a hint about a ring that there is not ---


def hinted(world: World, liar: str, ring: str, signed: bool) -> RingHint:
    node = world.node(liar)
    hint = RingHint(ring, "f" * 40, (9, 9), node.me)
    return node.view._records.hint(hint) if signed else hint


@pytest.mark.parametrize("liar", ["a member", "a member that signs", "a voter"])
def test_a_ring_that_somebody_invents_locks_no_leaf_out(liar: str, listening: Listening) -> None:
    """Leaves passed it on, which is not for them, and were shut out by all voters for it."""
    world = overlay()
    name = "n4" if liar == "a voter" else "n7"
    hint = hinted(world, name, "0", signed=liar != "a member")
    for _ in range(4):
        for victim in world.names():
            if victim != name:
                said(world, name, victim, Shuffle((), (), (hint,)))
        world.run(4)
    counts = [world.node(victim).counters for victim in world.names() if victim != name]
    if name == "n7":
        assert any(count.get("hints_refused") for count in counts)
        assert not any(count.get("other_rings_met") for count in counts)
    else:
        assert any(kind == "RingMet" for _, kind in listening.withheld)
    listening.assert_nobody_is_refused(world)
    for leaf in ("n9", "n10", "n11"):
        world.subscribe(leaf, "x > 4")
    acknowledged(world)
    world.publish("n10", {"x": 5})
    assert_exact(world)


def test_hints_go_round_with_their_primary_s_word() -> None:
    world = overlay()
    world.run(30)
    primary = next(n for n in world.names() if world.node(n).clusters.role == "primary")
    known = [world.node(n).ring.state.hints() for n in world.names() if n != primary]
    assert all(known)
    assert all(hint.record is not None for hints in known for hint in hints)
    assert not any(world.node(n).counters.get("hints_refused") for n in world.names())


# --- what a node does that hears such a message nevertheless ---


class Listener:
    """A guard of a voter, by itself."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.port = one_node()
        self.guard = Guard(
            self.port,
            Role.VOTER,
            "",
            {},
            SimpleNamespace(confinement=Confinement(None)),
            lambda peer, message: self.heard.append(message),
        )


def test_a_message_beyond_a_role_is_left_out_and_many_are_held_against_their_sender() -> None:
    """One that an older node was made to say costs it nothing."""
    listener, leaf = Listener(), Peer("leaf", "leaf:1")
    listener.guard.admit(Principal("leaf", Role.LEAF, ""))
    hint = Shuffle((), (), (RingHint("0", "f" * 40, (1, 1), leaf),))
    for _ in range(16):
        listener.guard.dispatch(leaf, hint)
    with pytest.raises(ProtocolError):
        listener.guard.dispatch(leaf, hint)
    listener.port.world.now += 60.0
    listener.guard.dispatch(leaf, hint)
    listener.guard.dispatch(leaf, Shuffle((), (), ()))
    assert listener.heard == [Shuffle((), (), ())]
    assert listener.port.counts["rights_refused"] == 16 + 2


def test_who_is_not_known_any_more_has_to_connect_again_and_is_not_blamed() -> None:
    listener = Listener()
    with pytest.raises(NotAuthenticatedError) as refused:
        listener.guard.dispatch(Peer("other", "other:1"), Shuffle((), (), ()))
    assert not refused.value.is_fault
    assert not listener.heard


def test_no_role_may_say_what_nobody_may() -> None:
    assert not NOBODY & {kind for kinds in LEAST.values() for kind in kinds.split()}
