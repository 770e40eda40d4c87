"""Streams whose nodes leave in order, and streams that have lost their majority: in overlays of
simulated nodes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from canopy.sim.world.world import CLIENT, World
from harness.overlays import grown, wait
from overlay.client import (
    NO_MAJORITY,
    AppendEvents,
    BeginReading,
    Command,
    Draft,
    EventsAppended,
    EventsTaken,
    Failed,
    ReadingReady,
    Streams,
    TakeEvents,
)
from overlay.stream_client import (
    AddStream,
    AttachGroup,
    BeginProducer,
    GetGroups,
    GetTransactions,
    PrepareEvents,
    ProducerReady,
    RowsTaken,
    TakeRows,
    WhyRow,
)
from streams.access.reasons import IN_DOUBT

STREAM = "quakes"
ROW = (Draft({"mag": 5.1}, b""),)


def founded(world: World, replicas: int = 3) -> str:
    """Found the stream and append to it; returns the name of its shard."""
    reply = world.ask("n0", AddStream(world.clients.request(), STREAM, replicas=replicas))
    assert isinstance(reply, Streams)
    assert isinstance(append(world, "n0"), EventsAppended)
    return f"{reply.streams[0].id}/0"


def append(world: World, node: str) -> object:
    return world.ask(node, AppendEvents(world.clients.request(), STREAM, ROW))


def rows(world: World, node: str) -> int:
    """How many rows a program reads there."""
    begin = world.clients.request()
    ready = world.ask(node, BeginReading(begin, STREAM, "", "first"))
    assert isinstance(ready, ReadingReady)
    found, ((_, end),) = 0, ready.shards
    while found < end:
        found += len(world.ask(node, TakeEvents(world.clients.request(), begin)).events)  # type: ignore[attr-defined]
    return found


def numbered(world: World, node: str, number: int) -> None:
    """Append the row with this number as a producer that counts its rows."""
    begun = world.ask(node, BeginProducer(world.clients.request(), STREAM, "p", number))
    assert isinstance(begun, ProducerReady), begun
    done = world.ask(node, AppendEvents(world.clients.request(), STREAM, ROW, "p"))
    assert isinstance(done, EventsAppended), done


def leader(world: World, shard: str) -> str:
    hosts = {name: world.node(name).streams.hosts for name in world.names()}
    return next((n for n, each in hosts.items() if each.leading(shard) is not None), "")


def replicas(world: World, shard: str) -> set[str]:
    """The names of those who are replicas by the leader's log."""
    replica = world.node(leader(world, shard)).streams.hosts.leading(shard)
    ids = {peer.id for peer in replica.replicas}
    return {n for n, driver in world.drivers.items() if driver.node.me.id in ids}


def leave(world: World, *names: str) -> None:
    """Have nodes leave in order, and end."""
    for name in names:
        world.drain(name)
    wait(world, lambda: not {*names} & {*world.names()}, 20.0, f"{names} have left")


def unreleased(world: World) -> dict[str, int]:
    return {name: world.node(name).streams.unreleased for name in world.names()}


@pytest.mark.parametrize("leads", [True, False])
def test_a_stream_of_two_nodes_survives_the_leaving_of_either(leads: bool) -> None:
    world = grown(2)
    shard = founded(world)
    led = leader(world, shard)
    (other,) = {"n0", "n1"} - {led}
    left, stays = (led, other) if leads else (other, led)
    leave(world, left)
    assert isinstance(append(world, stays), EventsAppended)
    assert rows(world, stays) == 2
    world.restart(left)
    wait(world, lambda: replicas(world, shard) == {"n0", "n1"}, 30.0, "it is a replica again")
    leave(world, stays)
    assert rows(world, left) == 2


def test_two_of_three_leave_and_the_last_one_goes_on() -> None:
    world = grown(3)
    shard = founded(world)
    first = leader(world, shard)
    leave(world, first)
    assert len(replicas(world, shard)) == 3, "who is back soon stays a replica"
    leave(world, leader(world, shard))
    (last,) = world.names()
    assert isinstance(append(world, last), EventsAppended)
    assert rows(world, last) == 2


def test_nodes_that_leave_together_do_not_wait_for_one_another() -> None:
    world = grown(3)
    founded(world)
    for name in ("n0", "n1", "n2"):
        world.drain(name)
    wait(world, lambda: not any(unreleased(world).values()), 3.0, "no shard keeps anybody")
    wait(world, lambda: not world.names(), 20.0, "all have left")
    for name in ("n0", "n1", "n2"):
        world.restart(name)
    wait(world, world.ready, 60.0, "they are ready")
    wait(world, lambda: isinstance(append(world, "n0"), EventsAppended), 30.0, "they append")
    assert rows(world, "n1") >= 2


def asked(world: World) -> Sequence[Command]:
    """Everything that needs a majority, or a leader."""
    request = world.clients.request
    return (
        BeginProducer(request(), STREAM, "till"),
        PrepareEvents(request(), STREAM, "t1", "till", ROW),
        GetTransactions(request(), STREAM),
        AttachGroup(request(), STREAM, "workers"),
        AppendEvents(request(), STREAM, ROW),
    )


def read(world: World) -> Sequence[Command]:
    request = world.clients.request
    return (
        BeginReading(request(), STREAM, "", "first"),
        GetGroups(request(), STREAM),
        WhyRow(request(), STREAM, 0, 0),
    )


def waiting(world: World, node: str) -> list[int]:
    """Programs that read, and that share, have taken everything and wait; returns their requests,
    with the attachment's just before."""
    requests = []
    for begin, take in ((BeginReading, TakeEvents), (AttachGroup, TakeRows)):
        number = world.clients.request()
        more = {"group": "readers"} if begin is AttachGroup else {}
        assert not isinstance(world.ask(node, begin(number, STREAM, **more)), Failed)
        requests.append(world.clients.request())
        more = {"most": 9} if take is TakeRows else {}
        world.drivers[node].command(CLIENT, take(requests[-1], number, **more))
    world.run(2.0)
    assert not world.clients.answers.keys() & {*requests}
    return requests


def ask_more(world: World, node: str, request: int) -> int:
    """Wait for more where `request` has waited."""
    again = world.clients.request()
    is_group = isinstance(world.clients.answers[request], RowsTaken)
    take = TakeRows(again, request - 1, 9) if is_group else TakeEvents(again, request - 1)
    world.drivers[node].command(CLIENT, take)
    return again


@pytest.mark.parametrize("seed", [1, 2])
def test_programs_hear_at_once_that_there_is_no_majority_and_go_on_when_there_is(seed: int) -> None:
    world = grown(3, seed)
    shard = founded(world)
    (owner,) = (n for n in world.names() if world.node(n).streams.owner.entries())
    numbered(world, owner, 0)
    waits = waiting(world, owner)
    lost = [name for name in world.names() if name != owner]
    for name in lost:
        world.crash(name)
    world.run(36.0)  # its cluster has lost its majority as well, and goes on as a fork
    leads = leader(world, shard) == owner
    for request in waits:
        told = world.clients.answers[request]
        assert isinstance(told, EventsTaken | RowsTaken), told
        assert told.waits.startswith("no majority: 1 of 3 replicas of quakes answer")
    waits = [ask_more(world, owner, request) for request in waits]
    for command in (*asked(world), *(() if leads else read(world))):
        refused = world.ask(owner, command, 2.0)
        assert isinstance(refused, Failed), (command, refused)
        assert refused.code in (NO_MAJORITY, IN_DOUBT), (command, refused)
        assert refused.reason.startswith("no majority: 1 of 3 replicas of quakes answer")
        if not leads:
            assert refused.code == NO_MAJORITY
    refused = world.ask(owner, AppendEvents(world.clients.request(), STREAM, ROW, "p"), 2.0)
    assert isinstance(refused, Failed)
    assert refused.reason.startswith("no majority: 1 of 3 replicas of quakes answer")
    world.restart(lost[0])
    wait(world, lambda: isinstance(append(world, owner), EventsAppended), 30.0, "rows are appended")
    late = world.ask(owner, AppendEvents(world.clients.request(), STREAM, ROW, "p"), 2.0)
    assert isinstance(late, Failed), "it would take the number of the row that was refused"
    numbered(world, owner, 1)
    assert rows(world, owner) == (5 if leads else 4), "what was in doubt came once"
    for request in waits:
        told = world.clients.answers[request]
        assert isinstance(told, EventsTaken | RowsTaken), told
        assert told.waits == ""
