"""Programs' transactions through their nodes: whole and decided once, through faults by seed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from canopy.sim.world.world import World
from harness.overlays import grown
from overlay.client import BeginReading, Done, Draft, EventsTaken, Failed, GetStreams, TakeEvents
from overlay.client import Streams as StreamsReply
from overlay.machine import Peer
from overlay.stream_client import (
    DecideTransaction,
    GetTransactions,
    LeaveUnknown,
    PrepareEvents,
    ReviewsAsked,
    TakeReviews,
    Transactions,
    TransactionState,
)
from streams.access.ask import Ask, Asks, LeaderQuestion
from streams.access.locator import StreamLocated
from streams.directory.entry import ShardPlace, StreamEntry, StreamOptions
from streams.programs.transaction import transactors
from streams.programs.transaction.transactors import LookAtTransactions
from streams.services import half as halves
from tests.streams.programs.producer.test_streams_producers import ask, drafts, founded, leader
from tests.streams.programs.transaction.transaction_programs import trial_of_transactions
from tests.support.examples import seeds


@pytest.mark.parametrize("seed", seeds(8))
def test_transactions_are_whole_and_decided_as_their_programs_say(seed: int) -> None:
    assert sum(trial_of_transactions(seed).values()) > 0


def prepared(world: World, node: str, transaction: str, events: tuple[Draft, ...]) -> None:
    state = ask(world, node, PrepareEvents, "orders", transaction, "shop", events)
    assert isinstance(state, TransactionState), state
    assert state.outcome == "prepared"


def decided(world: World, node: str, transaction: str, commit: bool) -> TransactionState:
    state = ask(world, node, DecideTransaction, "orders", transaction, commit)
    assert isinstance(state, TransactionState), state
    return state


def waiting(world: World, node: str) -> list[tuple[int, str, bool]]:
    found = ask(world, node, GetTransactions, "orders")
    assert isinstance(found, Transactions), found
    return [(one.shard, one.transaction, one.parked) for one in found.transactions]


def rows(world: World, node: str) -> list[Any]:
    """What a program reads from the beginning."""
    request = world.clients.request()
    world.ask(node, BeginReading(request, "orders", start="first"))
    world.run(1.0)  # all shards have sent what they have
    taken = ask(world, node, TakeEvents, request)
    assert isinstance(taken, EventsTaken)
    return sorted(event.attributes["n"] for event in taken.events)


def refused(reply: Any) -> str:
    assert isinstance(reply, Failed), reply
    return reply.code


class Places:
    """Who leads the shards of streams that have been located."""

    def __init__(self, **known: tuple[Peer | None, ...]) -> None:
        self.known = known

    def locate(self, name: str) -> None:
        pass

    def located(self, name: str) -> StreamLocated:
        shards = (ShardPlace(()),) * len(self.known[name])
        entry = StreamEntry(name, "5", StreamOptions(), shards)
        return StreamLocated(name, entry, self.known[name])

    def leader(self, name: str, shard: int) -> Peer | None:
        return self.known[name][shard] if name in self.known else None

    def tell_losses(self, told: Any) -> None: ...

    def mistaken(self, name: str, shard: int, node: str) -> None:
        raise AssertionError("nobody was asked")


def test_where_a_stream_of_fewer_shards_is_says_nothing_of_another() -> None:
    """A node ended when it heard of a stream with one shard while it looked for the third one of
    another."""
    sent: list[Any] = []
    port: Any = SimpleNamespace(
        now=0.0,
        send=lambda peer, message: sent.append((peer, message)),
        set_timer=lambda delay, timer: None,
    )
    places = Places(single=(Peer("a" * 16, ""),))
    asks = Asks(port, places, LookAtTransactions())
    made: Any = lambda number: number  # noqa: E731
    question = LeaderQuestion(1, "orders", 2, made)
    asks.ask(Ask(question, lambda answer: None))
    asks.located(places.located("single"))
    assert not sent
    leader = Peer("b" * 16, "")
    places.known["orders"] = (None, None, leader)
    asks.located(places.located("orders"))
    assert sent == [(leader, 1)]


def test_a_transaction_in_several_shards_is_decided_anywhere() -> None:
    world = grown(4, 1)
    founded(world, "orders", shards=3, by="who")
    prepared(world, "n1", "a", drafts(*range(9)))
    prepared(world, "n2", "b", drafts(100))
    prepared(world, "n1", "a", drafts(*range(9)))  # once more is the same
    names = [name for _, name, _ in waiting(world, "n3")]
    assert sorted(names) == ["a", "a", "a", "b"]
    assert decided(world, "n2", "b", False).outcome == "rolled-back"
    done = decided(world, "n3", "a", True)
    assert (done.outcome, sum(receipt.count for receipt in done.receipts)) == ("committed", 9)
    assert decided(world, "n0", "a", False).outcome == "committed", "the first decision stays"
    assert rows(world, "n1") == list(range(9))
    assert waiting(world, "n3") == []
    unknown = ask(world, "n1", DecideTransaction, "orders", "never", True)
    assert refused(unknown) == "unknown-transaction"
    taken = ask(world, "n1", PrepareEvents, "orders", "a", "shop", drafts(1))
    assert taken.outcome == "committed"
    for bad in (("", "shop", drafts(1)), ("c", "@n", drafts(1)), ("c", "shop", ())):
        assert refused(ask(world, "n1", PrepareEvents, "orders", *bad)) == "usage"


def test_a_transaction_outlives_the_leader_that_has_prepared_it() -> None:
    world = grown(4, 2)
    (shard,) = founded(world, "orders")
    old = leader(world, shard)
    other = next(name for name in world.names() if name != old)
    prepared(world, other, "a", drafts(1, 2))
    world.crash(old)
    assert decided(world, other, "a", True).outcome == "committed"
    assert rows(world, other) == [1, 2]


def test_the_stream_asks_the_program_and_parks_what_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(halves, "REVIEW_AFTER", 5_000_000_000)
    monkeypatch.setattr(halves, "REVIEWS_MOST", 2)
    world = grown(4, 3)
    (shard,) = founded(world, "orders")
    prepared(world, "n1", "known", drafts(1))
    asked = ask(world, "n1", TakeReviews, "orders", "shop")
    assert isinstance(asked, ReviewsAsked)
    assert asked.transactions == ("known",)
    assert decided(world, "n1", "known", True).outcome == "committed"
    prepared(world, "n1", "lost", drafts(2))
    for _ in range(2):
        asked = ask(world, "n1", TakeReviews, "orders", "shop")
        assert asked.transactions == ("lost",)
        assert isinstance(ask(world, "n1", LeaveUnknown, "orders", "lost"), Done)
    world.run(1.0)
    assert waiting(world, "n2") == [(0, "lost", True)]
    found = ask(world, "n0", GetStreams, "orders")
    assert isinstance(found, StreamsReply)
    (first,) = [r for r in found.streams[0].shards[0].replicas if r.state == "leads"]
    assert (first.halves, first.parked) == (1, 1)
    counters = world.node(leader(world, shard)).counters
    assert (counters["halves_parked"], counters["incidents_half_parked"]) == (1, 1)
    assert rows(world, "n3") == [1]
    assert decided(world, "n2", "lost", True).outcome == "committed"  # by an operator
    assert rows(world, "n3") == [1, 2]


def test_another_program_that_answers_for_the_producer_ends_the_former() -> None:
    world = grown(3, 4)
    founded(world, "orders")
    prepared(world, "n1", "a", drafts(1))
    first, second = world.clients.request(), world.clients.request()
    for request in (first, second):
        world.drivers["n1"].command(0, TakeReviews(request, "orders", "shop"))
    world.run(0.5)
    assert refused(world.clients.answers[first]) == "fenced"
    assert second not in world.clients.answers


def test_what_a_node_prepares_at_once_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = grown(4, 6)
    founded(world, "orders")
    prepared(world, "n1", "a", drafts(1))
    monkeypatch.setattr(transactors, "PREPARING_MOST", 150)
    requests = [world.clients.request() for _ in range(4)]
    for name, request in zip("bcde", requests, strict=True):
        command = PrepareEvents(request, "orders", name, "shop", drafts(*range(4)))
        world.drivers["n1"].command(0, command)
    world.run(5.0)
    answers = [world.clients.answers[request] for request in requests]
    said = [each.code if isinstance(each, Failed) else each.outcome for each in answers]
    assert said.count("full") in (1, 2, 3)
    assert said.count("prepared") == 4 - said.count("full")
    prepared(world, "n1", "f", drafts(1))


def test_a_new_leader_asks_about_what_the_former_has_prepared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(halves, "REVIEW_AFTER", 5_000_000_000)
    world = grown(4, 5)
    (shard,) = founded(world, "orders")
    old = leader(world, shard)
    other = next(name for name in world.names() if name != old)
    prepared(world, other, "a", drafts(1))
    world.crash(old)
    asked = ask(world, other, TakeReviews, "orders", "shop")
    assert isinstance(asked, ReviewsAsked)
    assert asked.transactions == ("a",)
