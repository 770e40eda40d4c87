"""The service of docs/guide/extending.md counts every committed row once, whoever leads."""

from __future__ import annotations

from collections import Counter
from typing import Any

from canopy.sim.world.world import World
from canopy.wire.transport.codec import MESSAGES, WireCodec
from examples.row_counts.row_counts import AskRowCounts, RowCounting, RowCounts, RowCountsMoved
from node import Node
from overlay.client import AppendEvents, Draft, EventsAppended, Streams
from overlay.machine import Machine, Peer
from overlay.stream_client import AddStream
from tests.support.overlays import wait

CODEC = WireCodec([*MESSAGES.values(), AskRowCounts, RowCounts, RowCountsMoved])


class Asker(Machine):
    """Keeps what leaders answer."""

    answer: RowCounts | RowCountsMoved | None = None

    def on_answer(self, sender: Peer, message: RowCounts | RowCountsMoved) -> None:
        self.answer = message


class CountingNode(Node):
    """A node with the service."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        led, leading = self.streams.leaderships, self.streams.hosts.leading
        self.asker = Asker(self)
        self.turns.build([RowCounting(self, led, leading, self.driver.wall, "city"), self.asker])


def test_rows_are_counted_at_whichever_node_leads() -> None:
    world: Any = World(3, CODEC, build=CountingNode)
    world.add_node()
    for _ in range(3):
        world.add_node(seeds=["n0"])
    assert world.run_until(world.ready, 300.0)
    reply = world.ask("n0", AddStream(world.clients.request(), "sales"))
    assert isinstance(reply, Streams)
    shard = f"{reply.streams[0].id}/0"
    expected: Counter[Any] = Counter()

    def leader() -> str:
        def found() -> list[str]:
            return [n for n in world.names() if world.node(n).streams.hosts.leading(shard)]

        wait(world, lambda: len(found()) == 1, 10.0, "a leader")
        return found()[0]

    def append(*cities: str) -> None:
        expected.update(cities)
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
    append("Oslo")
    assert (dict(ask(leader()).counts), ask(leader()).end) == (expected, 4)
    append("Rome")
    assert (dict(ask(leader()).counts), ask(leader()).end) == (expected, 5)
    other = next(name for name in world.names() if name != leader())
    assert isinstance(ask(other), RowCountsMoved)
