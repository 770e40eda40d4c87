"""Programs that append through whole nodes, in overlays of simulated nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from canopy.sim.world.world import World
from harness.overlays import grown, wait
from overlay.client import (
    AppendEvents,
    Draft,
    EventsAppended,
    Failed,
    GetStreams,
    RemoveStream,
    Streams,
)
from overlay.stream_client import (
    AddStream,
    BeginProducer,
    ProducerReady,
)
from streams.programs.producer.append_session import AppendSession
from streams.programs.producer.producers import shard_of
from streams.services.append.appender import Appender


def ask(world: World, node: str, command: type[Any], *arguments: Any) -> Any:
    return world.ask(node, command(world.clients.request(), *arguments))


def drafts(*numbers: int) -> tuple[Draft, ...]:
    return tuple(Draft({"n": n, "who": f"w{n}"}) for n in numbers)


def founded(world: World, name: str, **options: object) -> list[str]:
    """The names of the stream's shards, once each has a leader."""
    reply = world.ask("n0", AddStream(world.clients.request(), name, **options))  # type: ignore[arg-type]
    assert isinstance(reply, Streams), reply
    info = reply.streams[0]
    shards = [f"{info.id}/{number}" for number in range(len(info.shards))]
    wait(world, lambda: all(leader(world, s) for s in shards), 5.0, "the shards have leaders")
    return shards


def leader(world: World, shard: str) -> str:
    led = (n for n in world.names() if world.node(n).streams.hosts.leading(shard) is not None)
    return next(led, "")


def test_events_appended_anywhere_get_receipts_and_follow_on_one_another() -> None:
    world = grown(4, 1)
    (shard,) = founded(world, "orders")
    first = ask(world, "n1", AppendEvents, "orders", drafts(0, 1))
    second = ask(world, "n3", AppendEvents, "orders", drafts(2))
    assert isinstance(first, EventsAppended)
    assert isinstance(second, EventsAppended)
    assert [r.first for r in (*first.receipts, *second.receipts)] == [0, 2]
    assert first.stream == shard.rpartition("/")[0]
    assert len(first.receipts[0].replicas) >= 2
    for command, code in (
        (AppendEvents(world.clients.request(), "none", drafts(1)), "unknown"),
        (AppendEvents(world.clients.request(), "orders", drafts(1), "p"), "usage"),
        (AppendEvents(world.clients.request(), "orders", (Draft({"n": float("nan")}),)), "event"),
        (BeginProducer(world.clients.request(), "orders", "@n"), "usage"),
        (BeginProducer(world.clients.request(), "orders", "late", 7), "expired"),
    ):
        reply = world.ask("n1", command)
        assert isinstance(reply, Failed)
        assert reply.code == code, reply


def test_an_append_outlives_the_leader_and_its_repeat_is_appended_once() -> None:
    world = grown(4, 2)
    (shard,) = founded(world, "orders")
    assert isinstance(ask(world, "n0", AppendEvents, "orders", drafts(0)), EventsAppended)
    old = leader(world, shard)
    other = next(name for name in world.names() if name != old)
    world.crash(old)
    answered = ask(world, other, AppendEvents, "orders", drafts(1, 2))
    assert isinstance(answered, EventsAppended), answered
    assert answered.receipts[0].first == 1
    assert answered.receipts[0].count == 2
    assert leader(world, shard) not in ("", old)


def test_a_producer_goes_on_with_its_numbers_at_another_node_and_fences_the_former() -> None:
    world = grown(4, 3)
    founded(world, "orders")
    began = ask(world, "n1", BeginProducer, "orders", "p")
    assert isinstance(began, ProducerReady)
    assert began.next == (0,)
    done = ask(world, "n1", AppendEvents, "orders", drafts(0, 1, 2), "p")
    assert isinstance(done, EventsAppended)
    ready = ask(world, "n2", BeginProducer, "orders", "p", 0)
    assert isinstance(ready, ProducerReady)
    assert ready.next == (3,)
    again = ask(world, "n2", AppendEvents, "orders", drafts(0, 1), "p")
    assert isinstance(again, EventsAppended)
    assert again.receipts == (), "they are appended, by the session before"
    both = ask(world, "n2", AppendEvents, "orders", drafts(2, 3, 4), "p")
    assert isinstance(both, EventsAppended)
    (receipt,) = both.receipts
    assert (receipt.first, receipt.count, receipt.places) == (3, 2, (1, 2))
    fenced = ask(world, "n1", AppendEvents, "orders", drafts(9), "p")
    assert isinstance(fenced, Failed)
    assert fenced.code == "fenced"


def test_events_go_to_the_shard_of_their_attribute() -> None:
    world = grown(4, 4)
    founded(world, "orders", shards=3, by="who")
    done = ask(world, "n1", AppendEvents, "orders", drafts(*range(12)))
    assert isinstance(done, EventsAppended)
    for receipt in done.receipts:
        assert {shard_of(f"w{n}", 3) for n in receipt.places} == {receipt.shard}
    assert sorted(n for receipt in done.receipts for n in receipt.places) == list(range(12))
    assert shard_of(3, 64) == shard_of(3.0, 64)
    assert len({shard_of(f"w{n}", 64) for n in range(1_000)}) == 64


def test_a_producer_goes_on_in_each_shard_with_its_own_number() -> None:
    world = grown(4, 6)
    founded(world, "orders", shards=3, by="who")
    began = ask(world, "n1", BeginProducer, "orders", "p")
    assert began.next == (0, 0, 0)
    first = ask(world, "n1", AppendEvents, "orders", drafts(*range(9)), "p")
    assert isinstance(first, EventsAppended)
    numbers = dict(first.next)
    assert sum(numbers.values()) == 9
    ask(world, "n1", AppendEvents, "orders", drafts(*range(9, 15)), "p")
    for firsts in ((0,), (0, 0, -2)):
        wrong = ask(world, "n2", BeginProducer, "orders", "p", -1, firsts)
        assert isinstance(wrong, Failed)
        assert wrong.code == "usage"
    known = tuple(numbers.get(shard, 0) for shard in range(3))
    ready = ask(world, "n2", BeginProducer, "orders", "p", -1, known)
    assert isinstance(ready, ProducerReady)
    assert sum(ready.next) == 15
    again = ask(world, "n2", AppendEvents, "orders", drafts(*range(9, 18)), "p")
    assert isinstance(again, EventsAppended)
    new = sorted(n for receipt in again.receipts for n in receipt.places)
    assert new == [6, 7, 8], "the others are appended, by the session before"
    assert sum({**numbers, **dict(again.next)}.values()) == 18


def test_a_removed_stream_takes_no_more() -> None:
    world = grown(3, 5)
    founded(world, "orders")
    assert isinstance(ask(world, "n1", AppendEvents, "orders", drafts(0)), EventsAppended)
    ask(world, "n0", RemoveStream, "orders")
    world.run(5.0)
    gone = ask(world, "n1", AppendEvents, "orders", drafts(1))
    assert isinstance(gone, Failed)
    assert gone.code == "unknown"


def test_a_batch_of_which_one_shard_takes_its_part_is_not_called_refused() -> None:
    world = grown(4, 4)
    founded(world, "orders", shards=2, by="who", max_rows=3)
    both = {shard_of(f"w{n}", 2): n for n in range(20)}
    assert len(both) == 2
    full = ask(world, "n1", AppendEvents, "orders", drafts(*[both[1]] * 3))
    assert isinstance(full, EventsAppended), full
    world.run(1.0)
    partly = ask(world, "n1", AppendEvents, "orders", drafts(both[0], both[1]))
    assert isinstance(partly, Failed)
    assert partly.code == "in-doubt"
    assert "(quota); the events of shards 0 are appended" in partly.reason
    refused = ask(world, "n1", AppendEvents, "orders", drafts(both[1]))
    assert isinstance(refused, Failed)
    assert refused.code == "quota"


def test_an_owner_that_has_lost_a_stream_ends_nobody_who_has_known_it() -> None:
    """A cluster that took a lost one's place, as after the loss of a side of a cut: until the nodes
    with the shards have told it of the stream, it knows none."""
    world = grown(5, 5)
    (shard,) = founded(world, "orders")
    old = leader(world, shard)
    at, other = [name for name in world.names() if name != old][:2]
    assert isinstance(ask(world, at, AppendEvents, "orders", drafts(0)), EventsAppended)
    for name in world.names():
        world.node(name).streams.owner.owner.state.directory.clear()
    lost = ask(world, other, GetStreams, "orders")
    assert isinstance(lost, Failed)
    assert lost.code == "unknown"
    world.crash(old)
    answered = ask(world, at, AppendEvents, "orders", drafts(1))
    assert isinstance(answered, EventsAppended), answered
    assert answered.receipts[0].first == 1


def test_a_step_is_begun_again_from_its_start_in_each_shard() -> None:
    world = grown(4, 6)
    founded(world, "orders", shards=3, by="who")

    def begin(node: str, step: int) -> Any:
        return ask(world, node, BeginProducer, "orders", "p", -1, (), step)

    assert begin("n1", 1).begins == (0, 0, 0)
    ask(world, "n1", AppendEvents, "orders", drafts(*range(9)), "p")
    second = begin("n1", 2)
    assert second.begins == second.next
    assert sum(second.next) == 9
    ask(world, "n1", AppendEvents, "orders", drafts(*range(9, 15)), "p")
    retried = begin("n2", 2)
    assert retried.begins == second.next
    assert sum(retried.next) == 15
    again = ask(world, "n2", AppendEvents, "orders", drafts(*range(9, 18)), "p")
    assert isinstance(again, EventsAppended)
    new = sorted(n for receipt in again.receipts for n in receipt.places)
    assert new == [6, 7, 8], "the others are appended, by the attempt before"
    late = begin("n3", 1)
    assert isinstance(late, Failed)
    assert late.code == "fenced"


def test_what_comes_for_one_stream_costs_the_same_beside_others_that_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each row is sent when it comes and looked at when the one before is committed, and so is the
    shard that it is for: no other session, and no other shard."""
    world, streams = grown(1), [f"s{number}" for number in range(8)]
    for name in streams:
        founded(world, name)
        assert isinstance(ask(world, "n0", AppendEvents, name, drafts(0)), EventsAppended)
    calls: Counter[str] = Counter()
    pump, flush = AppendSession.pump, Appender.flush

    def pumped(sending: AppendSession) -> None:
        calls["pump"] += 1
        pump(sending)

    def flushed(appender: Appender, everything: bool = False) -> None:
        calls["flush"] += 1
        flush(appender, everything)

    monkeypatch.setattr(AppendSession, "pump", pumped)
    monkeypatch.setattr(Appender, "flush", flushed)
    for name in streams:
        world.drivers["n0"].command(1, AppendEvents(world.clients.request(), name, drafts(1)))
    world.run(1.0)
    assert calls["pump"] == calls["flush"] == 2 * len(streams)
