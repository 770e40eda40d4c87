"""A transaction in several shards is decided by one of them, whoever asks when."""

from __future__ import annotations

from typing import Any

import pytest

from canopy.sim.world.world import CLIENT, World
from harness.overlays import grown
from overlay.client import Draft, Failed, GetStreams, Streams
from overlay.stream_client import (
    AddStream,
    DecideTransaction,
    GetTransactions,
    PrepareEvents,
    Transactions,
    TransactionState,
)
from streams.services.half import Halves

SHARDS = 3


def ask(world: World, node: str, command: type[Any], *arguments: Any) -> Any:
    return world.ask(node, command(world.clients.request(), *arguments))


def prepared(world: World, transaction: str) -> None:
    drafts = tuple(Draft({"k": n, "n": n}) for n in range(12))
    reply = ask(world, "n1", PrepareEvents, "orders", transaction, "shop", drafts)
    assert isinstance(reply, TransactionState), reply


def rows(world: World) -> int:
    """Events of the stream in all shards."""
    reply = ask(world, "n0", GetStreams, "orders")
    assert isinstance(reply, Streams)
    return sum(max(r.next for r in shard.replicas) for shard in reply.streams[0].shards)


def waiting(world: World) -> int:
    reply = ask(world, "n0", GetTransactions, "orders", "")
    assert isinstance(reply, Transactions)
    return len(reply.transactions)


@pytest.fixture
def world() -> World:
    made = grown(4)
    assert isinstance(ask(made, "n0", AddStream, "orders", SHARDS, "k"), Streams)
    made.run(3.0)
    return made


def test_opposite_decisions_at_once_are_one_decision(world: World) -> None:
    """At one moment a program commits and somebody rolls back, again and again."""
    decided = []
    for number in range(12):
        transaction = f"shop.{number}"
        prepared(world, transaction)
        assert waiting(world) == SHARDS
        before = rows(world)
        requests = {}
        for node, commit in (("n1", True), ("n2", False)):
            request = requests[node] = world.clients.request()
            command = DecideTransaction(request, "orders", transaction, commit)
            world.drivers[node].command(CLIENT, command)
            world.run((number % 4) * 0.003)
        world.run(3.0)
        outcomes = [world.clients.answers.pop(request) for request in requests.values()]
        assert all(isinstance(one, TransactionState) for one in outcomes), outcomes
        assert len({one.outcome for one in outcomes}) == 1
        world.run(1.0)
        assert waiting(world) == 0
        appended = rows(world) - before
        assert appended == (12 if outcomes[0].outcome == "committed" else 0)
        decided.append(outcomes[0].outcome)
    assert len(set(decided)) == 2, f"both should have been first sometimes: {decided}"


def test_a_half_that_comes_after_the_decision_finds_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half of the deciding shard is late: somebody rolls the others back meanwhile."""
    original = Halves.on_prepare_half
    late: list[Any] = []

    def prepare(self: Halves, sender: Any, message: Any) -> None:
        if message.shard.endswith(f"/{message.decider}"):
            late.append((self, sender, message))
        else:
            original(self, sender, message)

    monkeypatch.setattr(Halves, "on_prepare_half", prepare)
    drafts = tuple(Draft({"k": n, "n": n}) for n in range(12))
    request = world.clients.request()
    command = PrepareEvents(request, "orders", "late", "shop", drafts)
    world.drivers["n1"].command(CLIENT, command)
    world.run(1.0)
    assert waiting(world) == SHARDS - 1
    rolled = ask(world, "n2", DecideTransaction, "orders", "late", False)
    assert isinstance(rolled, TransactionState), rolled
    assert rolled.outcome == "rolled-back"
    monkeypatch.setattr(Halves, "on_prepare_half", original)
    for halves, sender, message in late:
        original(halves, sender, message)
    world.run(3.0)
    assert waiting(world) == 0
    committed = ask(world, "n1", DecideTransaction, "orders", "late", True)
    assert isinstance(committed, TransactionState), committed
    assert (committed.outcome, rows(world)) == ("rolled-back", 0)


def test_what_was_never_prepared_cannot_be_decided(world: World) -> None:
    for commit in (True, False):
        reply = ask(world, "n1", DecideTransaction, "orders", "none", commit)
        assert isinstance(reply, Failed)
        assert reply.code == "unknown-transaction"
