"""No event, selector or command ends the nodes that see it, whatever is in it."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from canopy.sim.world.world import World
from harness.overlays import READY, acknowledged, grown, wait
from matching import EVERYTHING, SelectorError, compile_selector
from overlay.client import (
    BeginReading,
    Draft,
    DryRun,
    Event,
    EventsTaken,
    Publish,
    Subscribe,
    TakeEvents,
)
from overlay.upper_tree.host.assigned_trees import AssignedTrees
from overlay.upper_tree.host.visit_handler import VisitHandler
from overlay.upper_tree.messages import Deliver, Install, Register, Registration, Undelivered, Visit
from overlay.upper_tree.subscriber.receiver import Receiver
from tests.attacks.test_attacks_honest import ask, overlay, work
from tests.attacks.test_attacks_messages import said

VALUES: tuple[Any, ...] = (
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 1, True, False, None),
    *(2**63 - 1, -(2**63), 2**64 - 1, 2**53 + 1, "", " ", "\0", "a" * 5_000, "\U0010ffff"),
    *("\u202e\0", "e\u0301", "\r\n\x1b[31m", "1", "\ufffe"),
)
NAMES = ("x", "y", "", "$event", "$", "n" * 300, "\0", "id", "type", "e\u0301", "x y", "NULL", "'")
WORDS = (
    *[
        "x",
        "y",
        "1",
        "1.5",
        "'a'",
        "NULL",
        "TRUE",
        "(",
        ")",
        "=",
        "<>",
        "<",
        ">",
        "AND",
        "OR",
        "NOT",
        "IN",
        "LIKE",
        "BETWEEN",
        "IS",
        "+",
        "-",
        "*",
        "/",
        ",",
        "'%'",
    ],
    *("ESCAPE", "1e308", "9223372036854775807", "'\U0010ffff'", "'\0'"),
)
LARGE = (
    " OR ".join(f"x = {k}" for k in range(1_024)),
    "NOT " * 100 + "x > 1",
    "x = 1 AND " * 60 + "y = 2",
)
LIAR = "n4"


def hostile(rng: Random, publisher: str, sequence: int) -> Event:
    names = rng.sample(NAMES, rng.randrange(6))
    attributes = {name: rng.choice(VALUES) for name in (*names, "x")}
    time = rng.choice((0.0, math.nan, math.inf, -1e300))
    return Event(publisher, 1, sequence, time, attributes, b"\xff", rng.choice(("", "\0")))


def selectors(rng: Random, count: int) -> list[str]:
    found = [*LARGE]
    while len(found) < count:
        text = " ".join(rng.choice(WORDS) for _ in range(rng.choice((3, 5, 9))))
        try:
            compile_selector(text)
        except SelectorError:
            continue
        found.append(text)
    return found


def test_hostile_values_end_no_node_and_all_come_back_together() -> None:
    """By programs, by publishers that look at nothing, by hosts, by what comes back; then all
    nodes start again at once, with their registrations and the rows of streams."""
    world, rng = overlay(split_at=500), Random(3)
    work(world)
    texts = selectors(rng, 40)
    for text in texts:
        ask(world, rng.choice(("n1", "n8", "n10")), Subscribe(0, text))
    world.run(5)
    liar = world.node(LIAR).me
    victims = [name for name in world.names() if name != LIAR]
    for round_ in range(3):
        for number, name in enumerate(victims):
            first = 1_000 + 500 * round_ + 40 * number
            events = tuple(hostile(rng, liar.id, first + k) for k in range(rng.choice((1, 40))))
            token = world.node(name).receiver._own.token
            victim = world.node("n10").me
            kept = Registration(f"{liar.id}.1.{first}/0", "x", liar, rng.choice(texts), EVERYTHING)
            for message in (
                Visit(liar, 1, ("$event",), events),
                Deliver("x", EVERYTHING, 2, events, token=token),
                Undelivered("x", EVERYTHING, 2, events, victim, 0, token),
                Register(1, (kept, replace(kept, selector="x >", id=kept.id + "1"))),
                Install("x", 1, (kept,)),
            ):
                said(world, LIAR, name, message)
            drafts = tuple(Draft(event.attributes, b"", "", event.time) for event in events[:5])
            ask(world, name, Publish(0, drafts))
            ask(world, name, DryRun(0, drafts))
        world.run(0.3)
    names = world.names()
    assert len(names) == 12
    assert not any(world.node(name).counters.get("faults_contained") for name in names)
    for name in names:
        world.crash(name)
    for name in names:
        world.restart(name)
    wait(world, world.ready, READY, "ready again")
    sent = sum(world.node(name).counters["other_messages"] for name in names)
    assert sent < 60 * len(names)  # no storm
    reading = ask(world, "n1", BeginReading(0, "s", "", "first"))
    take = ask(world, "n1", TakeEvents(0, reading))
    wait(world, lambda: take in world.clients.answers, 30, "the stream's rows")
    assert isinstance(world.clients.answers[take], EventsTaken)
    world.subscribe("n10", "x > 1")
    acknowledged(world)
    since = len(world.clients.deliveries)
    world.publish("n8", {"x": 3})
    world.run(3)
    [seen] = world.clients.deliveries[since:]
    assert (seen.node, seen.delivery.event.attributes) == ("n10", {"x": 3})


# --- what is not known yet: a fault is contained where users' data goes through ---


class PoisonedError(Exception):
    """A fault of the program."""


def poison(patch: pytest.MonkeyPatch, owner: Any, method: str, is_bad: Any) -> None:
    original = getattr(owner, method)

    def faulty(self: Any, *arguments: Any, **named: Any) -> Any:
        if is_bad(self, *arguments):
            raise PoisonedError("poisoned")
        return original(self, *arguments, **named)

    patch.setattr(owner, method, faulty)


def fed(world: World, name: str) -> list[Any]:
    return sorted(
        one.delivery.event.attributes["x"] for one in world.clients.deliveries if one.node == name
    )


def with_subscriber() -> World:
    world = grown(5)
    world.subscribe("n3", "x > 0")
    world.subscribe("n4", "x > 0")
    acknowledged(world)
    return world


def contained(world: World) -> int:
    return sum(world.node(name).counters.get("faults_contained", 0) for name in world.names())


def test_an_event_that_no_host_can_match_is_refused_and_goes_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_subscriber()
    poison(
        monkeypatch, VisitHandler, "match",
        lambda self: any(event.attributes.get("x") == 66 for event in self.visit.events),
    )  # fmt: skip
    made = world.publish("n2", {"x": 1}, {"x": 66}, {"x": 3})
    world.run(20)
    assert len(world.names()) == 5
    assert fed(world, "n3") == fed(world, "n4") == [1, 3]
    assert contained(world) == 1  # at one host
    assert world.node("n2").counters["events_refused"] == 1
    assert world.status("n2").pending == 0
    assert made


def test_one_that_an_interested_node_cannot_show_is_said_to_be_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_subscriber()
    poison(
        monkeypatch, Receiver, "_take",
        lambda self, sender, message: message.events[0].attributes.get("x") == 66,
    )  # fmt: skip
    for value in (1, 66, 3):
        world.publish("n2", {"x": value})
        world.run(2)
    assert fed(world, "n3") == fed(world, "n4") == [1, 3]
    assert contained(world) == 2
    assert len(world.names()) == 5


def test_a_command_that_brings_a_fault_to_light_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_subscriber()
    monkeypatch.setitem(world.node("n1")._commands, DryRun, lambda client, command: [][1])
    failed = world.ask("n1", DryRun(world.clients.request(), ()))
    assert (failed.code, len(world.names())) == ("fault", 5)  # type: ignore[attr-defined]
    world.publish("n1", {"x": 1})
    world.run(5)
    assert fed(world, "n3") == [1]


def test_what_belongs_to_owners_still_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of an owner's state nobody knows: what is on disk is whole."""
    poison(monkeypatch, AssignedTrees, "on_assign", lambda *_: True)
    world = grown(3)
    world.subscribe("n1", "x > 0")
    with pytest.raises(PoisonedError):
        world.run(5)
