"""No message that is well formed ends a node, whatever a voter of the overlay says in it."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import inspect
from msgspec.structs import replace

from canopy.sim.world.world import World
from canopy.wire.transport.codec import MESSAGES, WireCodec
from harness.overlays import acknowledged, assert_exact
from matching import Interval
from overlay.chord.messages import Cluster
from overlay.client import Event
from overlay.links.messages import PROTOCOL, Hello
from overlay.lower_random.messages import Relayed
from overlay.machine import Message, Peer, ProtocolError
from overlay.upper_tree.messages import DelegateShare, Deliver
from tests.attacks.test_attacks_owners import overlay

CODEC = WireCodec()
HIGH = 2**53
INTERVALS = (
    [[0, False, 0], [3, 0, 0]],
    [[1, 1, 0], [1, 5, 0]],
    [[1, 5, 0], [1, 1, 0]],
    [[2, "a", 0], [2, "b", 1]],
)


def packed(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


class Drawing:
    """Draws values of a type, most of them of this overlay: its nodes, clusters, trees, epochs."""

    def __init__(self, world: World, rng: Random) -> None:
        self.rng = rng
        nodes = [world.node(name) for name in world.names()]
        clusters = [node.ring.covering("0") for node in nodes]
        self.known = {
            Peer: [packed(node.me) for node in nodes],
            Cluster: [packed(one) for one in clusters if one is not None],
            Interval: list(INTERVALS),
        }
        self.texts = ["x", "y", "", "type", "0", "f" * 32, "x > 1", *(node.me.id for node in nodes)]
        self.numbers = [0, 1, 2, 5, 1 << 20, HIGH - 1]
        for one in filter(None, clusters):
            self.texts += [one.key, one.start]
            self.numbers += [one.epoch, one.epoch + 1]

    def message(self, name: str) -> Message | None:
        """A message of this kind; None: what was drawn is not well formed."""
        drawn = self.value(inspect.type_info(MESSAGES[name]), 0)
        with suppress(ProtocolError):
            return CODEC.decode(msgspec.msgpack.encode([drawn]))[0]
        return None

    def value(self, kind: inspect.Type, depth: int) -> Any:
        rng = self.rng
        match kind:
            case inspect.StructType(cls=cls) if cls in self.known and rng.random() < 0.9:
                return rng.choice(self.known[cls])
            case inspect.StructType(cls=cls, fields=fields):
                values = [self.value(field.type, depth + 1) for field in fields]
                if not cls.__struct_config__.array_like:
                    return {f.encode_name: v for f, v in zip(fields, values, strict=True)}
                tag = cls.__struct_config__.tag
                return values if tag is None else [tag, *values]
            case inspect.UnionType(types=types):
                return self.value(rng.choice(types), depth)
            case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
                most = rng.choice((0, 1, 2) if depth < 4 else (0, 1))
                return [self.value(item, depth + 1) for _ in range(most)]
            case inspect.TupleType(item_types=items):
                return [self.value(item, depth + 1) for item in items]
            case inspect.DictType(key_type=key, value_type=item):
                count = rng.randrange(3)
                return {
                    self.value(key, depth + 1): self.value(item, depth + 1) for _ in range(count)
                }
            case inspect.IntType(ge=least, le=most):
                drawn = max(least or 0, rng.choice(self.numbers))
                return drawn if most is None else min(drawn, most)
            case inspect.LiteralType(values=values):
                return rng.choice(values)
            case inspect.EnumType(cls=cls):
                return rng.choice(list(cls)).value
            case inspect.NoneType():
                return None
        return rng.choice(PLAIN.get(type(kind), [1, "x", None, True])) or self.text(kind)

    def text(self, kind: inspect.Type) -> Any:
        if isinstance(kind, inspect.StrType):
            return self.rng.choice(self.texts)
        return {inspect.BytesType: b"", inspect.FloatType: 0.0}.get(type(kind), False)


PLAIN: dict[type[inspect.Type], list[Any]] = {
    inspect.StrType: [""],
    inspect.BytesType: [b"", b"\x80", bytes(range(32))],
    inspect.FloatType: [0.0, 0.5, 30.0, 1e9],
    inspect.BoolType: [False, True],
}


def said(world: World, liar: str, victim: str, message: Message) -> None:
    """The victim hears it, though it may have cut the liar off for what it said before."""
    node = world.node(victim)
    node.turns.begin()
    with suppress(ProtocolError):
        node.guard.dispatch(world.node(liar).me, message)
    node._finish_turn()


@pytest.mark.parametrize("seed", range(2))
def test_no_message_of_a_voter_ends_a_node(seed: int) -> None:
    world, liar = overlay()
    names = [name for name in world.names() if name != liar]
    world.subscribe(names[0], "x > 1")
    acknowledged(world)
    rng = Random(seed)
    drawing = Drawing(world, rng)
    decoded = 0
    for name in MESSAGES:
        message = drawing.message(name)
        if message is not None:
            decoded += 1
            said(world, liar, rng.choice(names), message)
    assert decoded > 0.85 * len(MESSAGES)
    world.run(3)
    assert all(not world.node(name).draining for name in names)


def test_a_delivery_that_fits_nothing_is_refused_before_anything_is_done_with_it() -> None:
    """What its delegate should have passed on was looked at after the message was refused for
    something else, where nobody caught it, and the node ended."""
    world, liar = overlay()
    victim = next(name for name in world.names() if name != liar)
    other = world.node(next(n for n in world.names() if n not in (liar, victim))).me
    where = Interval((1, 1.0, 0), (1, 5.0, 0))
    share = DelegateShare("x", where, (other, other), (1,))
    event = Event(world.node(liar).me.id, 1, 1, 0.0, {"x": 2})
    good = Deliver("x", where, 2, (event,), onward=((share,),))
    node = world.node(victim)
    for message in (good, replace(good, apart=(("y", where, (7,)),))):
        node.turns.begin()
        with pytest.raises(ProtocolError):
            node.guard.dispatch(world.node(liar).me, message)
        node._finish_turn()
        assert "refused_late" not in node.counters


def test_nothing_is_relayed_where_nodes_have_keys() -> None:
    """A greeting by way of the liar ended its receiver: it has no detours to take it on."""
    world, liar = overlay()
    victim, third, *others = (name for name in world.names() if name != liar)
    world.subscribe(victim, "x > 1")
    acknowledged(world)
    hello = Hello(PROTOCOL, "canopy", world.node(third).me, 1 << 40, 0, 0, 1 << 20)
    greeting = Relayed(world.node(third).me, world.node(victim).me, 77, False, hello)
    node = world.node(liar)
    node.turns.begin()
    node.links.send(world.node(victim).me, greeting)
    node.links.flush()
    world.run(1)
    assert world.node(victim).counters["rights_refused"] == 1
    world.publish(others[0], {"x": 5})
    world.publish(third, {"x": 6})
    assert_exact(world)
