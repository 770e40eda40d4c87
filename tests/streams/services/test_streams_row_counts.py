"""The service of docs/guide/extending.md counts every committed row once, whoever leads."""

from __future__ import annotations

from typing import Any

from canopy.sim.world.world import World
from canopy.wire.transport.codec import MESSAGES, WireCodec
from examples.row_counts.row_counts import AskRowCounts, RowCounting, RowCounts, RowCountsMoved
from harness.overlays import wait
from node import Node
from overlay.client import AppendEvents, Draft, EventsAppended
from overlay.machine import Machine, Peer
from overlay.stream_client import AddStream


class Asker(Machine):
    answer: RowCounts | RowCountsMoved | None = None

    def on_answer(self, sender: Peer, message: RowCounts | RowCountsMoved) -> None:
        self.answer = message


class CountingNode(Node):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        led, leading = self.streams.leaderships, self.streams.hosts.leading
        self.asker = Asker(self)
        self.turns.build([RowCounting(led, leading, "city"), self.asker])


def test_rows_are_counted_at_whichever_node_leads() -> None:
    codec = WireCodec([*MESSAGES.values(), AskRowCounts, RowCounts, RowCountsMoved])
    world: Any = World(3, codec, build=CountingNode)
    for seeds in ([], ["n0"], ["n0"], ["n0"]):
        world.add_node(seeds=seeds)
    assert world.run_until(world.ready, 300.0)
    reply = world.ask("n0", AddStream(world.clients.request(), "sales"))
    shard = f"{reply.streams[0].id}/0"

    def leads(name: str) -> bool:
        return world.node(name).streams.hosts.leading(shard) is not None

    def append(*cities: str) -> None:
        drafts = tuple(Draft({"city": city}) for city in cities)
        done = world.ask("n0", AppendEvents(world.clients.request(), "sales", drafts))
        assert isinstance(done, EventsAppended), done

    def ask(asked: str) -> Any:
        node = world.node("n0")
        node.asker.answer = None
        node.turns.begin()
        node.send(world.node(asked).me, AskRowCounts(shard, 1))
        node._finish_turn()
        wait(world, lambda: node.asker.answer is not None, 5.0, "an answer")
        return node.asker.answer

    append("Bonn", "Rome", "Bonn")
    (leader,) = filter(leads, world.names())
    assert dict(ask(leader).counts) == {"Bonn": 2, "Rome": 1}
    append("Rome")
    assert (dict(ask(leader).counts), ask(leader).end) == ({"Bonn": 2, "Rome": 2}, 4)
    other = next(name for name in world.names() if name != leader)
    assert isinstance(ask(other), RowCountsMoved)
