"""Signed events: what hosts and relays that lie can do to them (`tree.sign`)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from canopy.sim.world.signer import SimulatedSigner
from canopy.sim.world.world import MeteredNode, World
from canopy.wire.audit import NAME, verify
from canopy.wire.config import load_config
from canopy.wire.driver import TrioDriver
from canopy.wire.keys.certificates import KeySigner, node_id, raw_key
from canopy.wire.log import Log
from canopy.wire.process.listener import StartError
from canopy.wire.process.security import prepare_keys
from canopy.wire.transport.codec import WireCodec
from harness.attacks import Honest
from harness.lying_node import Band, LyingNode
from harness.overlays import READY, acknowledged, settings, wait
from matching import EVERYTHING
from overlay.client import Event, Explained, Why
from overlay.machine import Message, Peer
from overlay.rights import Role
from overlay.settings import Settings
from overlay.upper_tree.event_proofs import (
    AGE_MOST,
    FALSE,
    OLD,
    SELECT,
    UNSIGNED,
    EventProof,
    EventProofs,
    SignMode,
    levels_of,
    path_to,
    root_of,
)
from overlay.upper_tree.messages import Deliver, Undelivered, Visit
from tests.support.real.keys import Keys
from tests.support.world import peer

NOW = 1_000_000.0
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLISHER = node_id(raw_key(KEY.public_key()), 3)
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


def proofs(mode: SignMode = True, key: Ed25519PrivateKey = OTHER, at: float = NOW) -> EventProofs:
    return EventProofs(KeySigner(key, 3), mode, lambda: at)


def events(count: int, publisher: str = PUBLISHER) -> list[Event]:
    return [
        Event(publisher, 5, n, NOW, {"x": n, "a": "b", "c": None}, b"payload", "text/plain")
        for n in range(1, count + 1)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 256])
def test_each_event_of_a_batch_is_proven_by_itself(count: int) -> None:
    signed = proofs(key=KEY).sign(events(count))
    codec = WireCodec()
    (message,) = codec.decode(
        codec.encode([Undelivered("x", EVERYTHING, 1, tuple(signed), peer("a"))])
    )
    assert isinstance(message, Undelivered)
    assert list(message.events) == signed
    looking = proofs()
    assert {looking.fault(event) for event in message.events} == {""}


def test_a_signature_is_looked_at_once_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    signed, calls = proofs(key=KEY).sign(events(100)), 0
    original = KeySigner.holds

    def counted(*arguments: Any) -> bool:
        nonlocal calls
        calls += 1
        return original(*arguments)

    monkeypatch.setattr(KeySigner, "holds", counted)
    looking = proofs()
    for _ in range(2):
        assert not any(map(looking.fault, signed))
    assert calls == 1


ALTERED: dict[str, Callable[[Event], Event]] = {
    "publisher": lambda e: replace(e, publisher=node_id(raw_key(OTHER.public_key()), 3)),
    "incarnation": lambda e: replace(e, incarnation=6),
    "sequence": lambda e: replace(e, sequence=9),
    "time": lambda e: replace(e, time=NOW + 0.001),
    "value": lambda e: replace(e, attributes={**e.attributes, "x": 7}),
    "type of a value": lambda e: replace(e, attributes={**e.attributes, "x": 1.0}),
    "name": lambda e: replace(e, attributes={"y": 1, "a": "b", "c": None}),
    "one less": lambda e: replace(e, attributes={"x": 1, "a": "b"}),
    "payload": lambda e: replace(e, payload=b"payloae"),
    "payload type": lambda e: replace(e, payload_type="text/html"),
    "garbage": lambda e: replace(e, proof=b"\x96garbage"),
    "nothing": lambda e: replace(e, proof=b""),
}


@pytest.mark.parametrize("what", ALTERED)
def test_nothing_of_an_event_can_be_altered(what: str) -> None:
    signed = proofs(key=KEY).sign(events(4))[0]
    assert proofs().fault(ALTERED[what](signed)) == FALSE
    assert proofs("lenient").fault(ALTERED[what](signed)) == FALSE


def test_no_part_of_a_proof_can_be_altered_or_taken_for_another_s() -> None:
    signed = proofs(key=KEY).sign(events(5))
    first, second = (
        msgspec.msgpack.decode(one.proof or b"", type=EventProof) for one in signed[:2]
    )
    others = proofs(key=OTHER).sign(events(5))
    key = raw_key(OTHER.public_key())
    wrong = [
        *(second, replace(first, place=1), replace(first, place=4_000), replace(first, count=4)),
        *(replace(first, count=6), replace(first, count=1, path=b""), replace(first, path=b"")),
        *(replace(first, path=first.path + bytes(16)), replace(first, path=first.path[:-1])),
        *(replace(first, generation=4), replace(first, key=key), replace(first, key=b"")),
        *(
            replace(first, seal=bytes(64)),
            replace(first, seal=b""),
            replace(first, at=first.at + 1),
        ),
    ]
    looking = proofs()
    for proof in wrong:
        assert looking.fault(replace(signed[0], proof=msgspec.msgpack.encode(proof))) == FALSE
    assert looking.fault(others[0]) == FALSE, "another node cannot sign in the publisher's name"
    assert looking.fault(signed[0]) == ""


def test_a_path_leads_from_one_place_only() -> None:
    leaves = [bytes([n]) * 16 for n in range(13)]
    levels = levels_of(leaves)
    (root,) = levels[-1]
    for place, leaf in enumerate(leaves):
        path = path_to(levels, place)
        found = [at for at in range(13) if root_of(leaf, 13, at, path) == root]
        assert found == [place]


def test_what_is_not_signed_or_was_long_ago() -> None:
    (bare,) = events(1)
    assert [proofs(mode).fault(bare) for mode in (True, "lenient")] == [UNSIGNED, ""]
    (signed,) = proofs(key=KEY).sign([bare])
    assert proofs(at=NOW + AGE_MOST - 1).fault(signed) == ""
    assert proofs(at=NOW + AGE_MOST + 1).fault(signed) == OLD
    (ancient,) = proofs(key=KEY).sign([replace(bare, time=5.0)])
    assert proofs().fault(ancient) == "", "a program may say when it was"


def test_messages_lose_what_is_refused_and_nothing_else() -> None:
    some = tuple(events(4))
    tree = ("y", EVERYTHING)
    deliver = Deliver(
        *("x", EVERYTHING, 2, some, (("a",), ("b",), ("c",), ("d",)), ((), (), (), ()), peer("h")),
        *(((*tree, (1, 3)), ("z", EVERYTHING, (0,))), (), 4, (0, 7, 8, 9), ("s1", "s2", "", "s4")),
    )
    found = SELECT[Deliver](deliver, (1, 2))
    assert isinstance(found, Deliver)
    assert found.events == (some[1], some[2])
    assert (found.registrations, found.previous) == ((("b",), ("c",)), (7, 8))
    assert (found.found, found.apart) == (("s2", ""), ((*tree, (0,)),))
    assert (found.onward, found.through, found.host) == (((), ()), 4, peer("h"))
    bare = SELECT[Deliver](Deliver("x", EVERYTHING, 2, some), (3,))
    assert bare == Deliver("x", EVERYTHING, 2, (some[3],))
    visit = Visit(peer("p"), 1, ("x",), some, ((("y",), (0, 2)),))
    assert SELECT[Visit](visit, (2, 3)) == Visit(
        peer("p"), 1, ("x",), (some[2], some[3]), ((("y",), (0,)),)
    )


# --- whole overlays ---


class Forging(Honest):
    """Hosts that alter what they deliver."""

    def __init__(self, band: Band, alter: Callable[[Event], Event]) -> None:
        super().__init__(band)
        self.alter = alter

    def says(self, node: Any, to: Peer, message: Message) -> Iterable[Message]:
        if isinstance(message, Deliver):
            message = replace(message, events=tuple(map(self.alter, message.events)))
        return (message,)


def value(event: Event) -> Event:
    return replace(event, attributes={**event.attributes, "x": 99})


def payload(event: Event) -> Event:
    return replace(event, payload=b"forged")


def origin(event: Event) -> Event:
    return replace(event, publisher="f" * 16)


def replayed(event: Event) -> Event:
    return replace(event, sequence=event.sequence + 1_000)


def stripped(event: Event) -> Event:
    return replace(value(event), proof=None)


def overlay(sign: SignMode, alter: Callable[[Event], Event]) -> tuple[World, Band]:
    """Three voters, all of which lie when `Band.lies` is set, and three members."""
    world = World(
        3,
        WireCodec(),
        settings(tree={"sign": sign}),
        build=lambda *args, **more: build(*args, **more),
    )
    band = Band(world.generator("band"))

    def build(*arguments: Any, **options: Any) -> MeteredNode:
        if arguments[0].name in ("n0", "n1", "n2"):
            return LyingNode(Forging(band, alter), *arguments, **options)
        return MeteredNode(*arguments, **options)

    world.roles = {f"n{number}": Role.VOTER if number < 3 else Role.MEMBER for number in range(6)}
    for number in range(6):
        world.add_node(seeds=["n0"] if number else [])
        world.run(0.2)
    wait(world, world.ready, READY, "all ready")
    band.liars = [world.node(f"n{number}").me for number in range(3)]
    return world, band


def shown(world: World) -> list[tuple[object, str]]:
    return [
        (one.delivery.event.attributes["x"], one.delivery.event.publisher)
        for one in world.clients.deliveries
        if one.node == "n4"
    ]


@pytest.mark.parametrize("alter", [value, payload, origin, replayed, stripped])
def test_a_host_that_alters_events_is_found_out(alter: Callable[[Event], Event]) -> None:
    world, band = overlay(True, alter)
    world.subscribe("n4", "x > 1", "mine")
    acknowledged(world)
    world.publish("n3", {"x": 7, "id": "first"}, {"x": 8, "id": "second"})
    world.run(1)
    me = world.node("n3").me.id
    assert shown(world) == [(7, me), (8, me)]
    band.lies = True
    world.publish("n3", {"x": 17, "id": "third"})
    world.run(3)
    assert shown(world) == [(7, me), (8, me)]
    node = world.node("n4")
    assert node.counters["events_unproven"] >= 1
    ((_, kind, fields), *_) = [one for one in world.audit if one[0] == "n4"]
    assert kind == "events refused"
    assert fields["sender"] in [each.id for each in band.liars]
    assert fields["reason"] == (UNSIGNED if alter is stripped else FALSE)
    if alter not in (origin, replayed):
        found = world.ask("n4", Why(world.clients.request(), fields["event"]))
        assert isinstance(found, Explained)
        assert any("refused what" in step for step in found.path)
        assert "it matches, but was refused" in found.reasons[0].summary


@pytest.mark.parametrize(("sign", "alter"), [(False, value), ("lenient", stripped)])
def test_and_is_believed_where_signatures_are_not_wanted(
    sign: SignMode, alter: Callable[[Event], Event]
) -> None:
    world, band = overlay(sign, alter)
    world.subscribe("n4", "x > 1")
    acknowledged(world)
    band.lies = True
    world.publish("n3", {"x": 7})
    world.run(3)
    assert shown(world) == [(99, world.node("n3").me.id)]


def test_who_publishes_in_another_s_name_gets_no_further_than_the_first_host() -> None:
    for sign in (True, False):
        world, _ = overlay(sign, value)
        world.subscribe("n4", "x > 1")
        acknowledged(world)
        forger, victim, hosts = world.node("n5"), world.node("n3").me, ("n0", "n1", "n2")
        forged = Event(victim.id, 1, 1, world.wall("n5"), {"x": 5})
        if sign:
            signer = SimulatedSigner(forger.me.id, str(world.seed))
            (forged,) = EventProofs(signer, True, partial(world.wall, "n5")).sign([forged])
        forger.turns.begin()
        for host in hosts:
            forger.send(world.node(host).me, Visit(victim, 2, ("x",), (forged,)))
        forger._finish_turn()
        world.run(2)
        assert shown(world) == []
        refused = [world.node(host).counters.get("events_unproven", 0) for host in hosts]
        assert refused == [int(sign)] * 3
        if not sign:  # hosts look at who has sent it
            assert any(world.node(host).counters.get("visits_refused") for host in hosts)


def test_a_publisher_that_does_not_sign_hears_that_it_has_to() -> None:
    world, _ = overlay(True, value)
    world.settings = settings()
    world.roles = {**(world.roles or {}), "n6": Role.MEMBER}
    world.add_node(seeds=["n0"])
    wait(world, world.ready, READY, "all ready")
    world.subscribe("n4", "x > 1")
    acknowledged(world)
    world.publish("n6", {"x": 7}, receipt=True)
    world.run(2)
    assert shown(world) == []
    assert world.node("n6").counters["events_refused"] == 1


def test_what_was_refused_is_in_the_audit_file(tmp_path: Path) -> None:
    keys, log = Keys(tmp_path), io.StringIO()
    driver = TrioDriver(Log("debug", log), security=keys.security())
    driver.note("events refused", {"sender": "a" * 32, "events": 3, "reason": FALSE})
    data = keys.issuer.path.parent
    assert verify(data).damage == ""
    last = json.loads((data / NAME).read_text().splitlines()[-1])
    assert (last["kind"], last["sender"], last["reason"]) == ("events refused", "a" * 32, FALSE)
    assert "events_refused" in log.getvalue()


def test_a_node_without_keys_cannot_sign(tmp_path: Path) -> None:
    assert Settings().tree.sign is False
    config = load_config(flags={"data": str(tmp_path), "tree": {"sign": True}})
    with pytest.raises(StartError, match="signs with its key"):
        prepare_keys(config, Log("debug", io.StringIO()))
    for text, mode in (("true", True), ("lenient", "lenient"), ("false", False)):
        found = load_config(environment={"CANOPY_TREE__SIGN": text}, flags={"data": str(tmp_path)})
        assert found.tree.sign == mode
