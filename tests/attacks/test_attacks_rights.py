"""With keys a node is who its certificate says, and may do what its role allows."""

from __future__ import annotations

from random import Random

import pytest

from canopy.sim.world.world import World
from canopy.wire.transport.codec import MESSAGES, WireCodec
from harness.overlays import READY, acknowledged, assert_exact, settings, wait
from matching import EVERYTHING
from overlay.chord.cluster.messages import RequestVote
from overlay.links.events import LinkContext, LinkUp
from overlay.links.hybrid_clock import HybridClock
from overlay.links.links import Links
from overlay.links.messages import PROTOCOL, Bye, Frame, Hello, ProcessName, Superseded, Welcome
from overlay.lower_random.messages import Neighbour, Shuffle, Walk
from overlay.machine import LocalEvent, Message, Peer
from overlay.rights import NOBODY, RIGHTS, Principal, Role, refusal
from overlay.settings import Settings
from overlay.tenants.quotas import REFUSED_MOST
from overlay.upper_tree.messages import Deliver, Install, Register, Registration, Visit
from tests.support.trees import event

ME, LIAR, VICTIM = (Peer(name, f"{name}:1") for name in ("aa", "bb", "cc"))


class Rig:
    """The links of one node, whose transport notes what is written."""

    def __init__(self) -> None:
        self.written: dict[int, list[Frame]] = {}
        self.closed: list[int] = []
        self.events: list[LocalEvent] = []
        self.counts: dict[str, int] = {}
        context = LinkContext(
            ME,
            ProcessName.of(ME, 1, 0),
            "canopy",
            Settings().links,
            Random(1),
            lambda: 0.0,
            HybridClock(lambda: 0.0, 0.0),
            self.events.append,
            self.count,
            lambda kind, **fields: None,
        )
        self.links = Links(context, WireCodec(), self, lambda peer, message: None)

    def dial(self, address: str) -> int:
        return 7

    def write(self, connection: int, frame: Frame) -> None:
        self.written.setdefault(connection, []).append(frame)

    def close(self, connection: int, reason: str) -> None:
        self.closed.append(connection)

    def count(self, name: str, amount: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount

    def greeted(self, connection: int, by: Peer, principal: str, incarnation: int = 1) -> bool:
        """Whether a Hello is answered by a Welcome."""
        self.links.on_accepted(connection, principal)
        self.links.on_frame(
            connection,
            Hello(PROTOCOL, "canopy", by, incarnation, 0, 0, 1 << 20, ME.id, 1, 0, 1),
        )
        return any(isinstance(frame, Welcome) for frame in self.written[connection])


def test_a_hello_with_the_id_of_another_node_takes_nothing_over() -> None:
    """Attack 1: it took over the live session, and the address with it."""
    rig = Rig()
    assert rig.greeted(1, VICTIM, VICTIM.id)
    assert not rig.greeted(2, VICTIM, LIAR.id, incarnation=2**50)
    assert [type(frame) for frame in rig.written[2]] == [Bye]
    assert rig.closed == [2]
    assert rig.links.connected(VICTIM.id)
    assert len([e for e in rig.events if isinstance(e, LinkUp)]) == 1
    assert rig.counts["identity_refused"] == 1


def test_nor_does_a_welcome_that_a_dial_did_not_mean() -> None:
    rig = Rig()
    rig.links.add_seed("bb:1")
    rig.links.on_opened(7, LIAR.id)
    rig.links.on_frame(7, Welcome(PROTOCOL, "canopy", VICTIM, 1, 0, 0, 1 << 20))
    assert rig.closed == [7]
    assert rig.counts["identity_refused"] == 1


def test_a_peer_cannot_say_that_this_node_was_superseded() -> None:
    rig = Rig()
    rig.greeted(1, LIAR, LIAR.id)
    rig.links.on_frame(1, Superseded(ME, 2**50, 1))
    assert [type(e) for e in rig.events] == [LinkUp]


def leaf(message: Message) -> str:
    return refusal(Principal(LIAR.id, Role.LEAF, "acme"), message)


def test_every_message_has_a_row() -> None:
    assert {kind.__name__ for kind in MESSAGES.values()} == set(RIGHTS) | NOBODY
    assert not set(RIGHTS) & NOBODY


def test_a_leaf_speaks_for_itself_alone() -> None:
    own, foreign = event(1, x=1), event(2, x=1)
    mine = Visit(LIAR, 1, ("x",), (own,))
    assert own.publisher == foreign.publisher
    as_leaf = Principal(own.publisher, Role.LEAF, "acme")
    origin = Peer(own.publisher, "p:1")
    assert refusal(as_leaf, Visit(origin, 1, ("x",), (own,))) == ""
    assert leaf(mine)  # with an event of another publisher
    assert leaf(Visit(origin, 1, ("x",), (own,)))
    assert leaf(Walk(VICTIM, 1, ("x",), 1, 5, 5, ()))
    assert leaf(Walk(LIAR, 1, ("x",), 1, 5, 5, ())) == ""
    assert leaf(Shuffle((Neighbour(LIAR, 0),), (), ()))
    assert leaf(Shuffle((), (), ())) == ""
    assert leaf(Deliver("x", EVERYTHING, 1, (own,)))


def test_nobody_registers_another_node() -> None:
    registration = Registration(f"{VICTIM.id}.1.1/0", "x", VICTIM, "x > 1", EVERYTHING)
    message = Register(1, (registration,))
    for role in Role:
        assert refusal(Principal(LIAR.id, role, ""), message)
        assert refusal(Principal(VICTIM.id, role, ""), message) == ""


def secured(*roles: Role) -> World:
    """A ready overlay of nodes with these roles; the first one founds it."""
    world = World(3, WireCodec(), settings(cluster={"size": 3}))
    world.roles = {f"n{number}": role for number, role in enumerate(roles)}
    for number in range(len(roles)):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    return world


def test_an_overlay_with_keys_delivers_all_and_refuses_nothing_that_is_honest() -> None:
    world = secured(*[Role.VOTER] * 5, Role.MEMBER, Role.LEAF, Role.LEAF)
    for name in ("n5", "n6", "n7"):
        world.subscribe(name, "x > 1")
    acknowledged(world)
    for number in range(20):
        world.publish(f"n{number % 8}", {"x": number})
    assert_exact(world)
    for name in world.names():
        counters = world.drivers[name].node.counters
        assert not counters.get("rights_refused"), (name, counters)
        assert not counters.get("identity_refused")
    views = {p.id for name in world.names() for p in world.drivers[name].node.view.peers()}
    assert not views & {world.drivers[name].disk.node for name in ("n6", "n7")}
    assert world.drivers["n5"].node.clusters.cluster is None


@pytest.mark.parametrize("role", [Role.LEAF, Role.MEMBER])
def test_what_is_beyond_a_role_is_refused_and_the_session_closed(role: Role) -> None:
    """One that goes on with it, that is: once may be another's fault (test_attacks_honest.py)."""
    world = secured(*[Role.VOTER] * 4, role)
    victim, liar = world.drivers["n1"].node, world.drivers["n4"].node
    own = next(world.drivers[n].node for n in ("n0", "n1", "n2", "n3")).clusters.cluster
    liar.turns.begin()
    for message in (
        RequestVote(own.key, own.epoch + 5, (9, 9), False, True),
        Install("x", own.epoch + 5, ()),
    ) * int(REFUSED_MOST):
        liar.links.send(victim.me, message)
    liar.links.flush()
    world.run(5)
    assert victim.counters["rights_refused"] > REFUSED_MOST
    assert victim.counters["link_errors"] >= 1
    assert victim.hosting.trees == {}
    world.subscribe("n2", "x > 1")
    acknowledged(world)
    world.publish("n3", {"x": 5})
    assert_exact(world)
