"""A fork in a whole simulated overlay: found, copied and told of by the nodes' own machines."""

from __future__ import annotations

from harness.overlays import grown, wait
from overlay.client import AppendEvents, Draft, EventsAppended, GetStreams, Streams
from overlay.stream_client import AddStream, RowExplained, WhyRow
from streams.shard.replica import Replica


def test_a_node_that_is_cut_off_appends_and_the_stream_has_its_rows_afterwards() -> None:
    world = grown(3, 3)

    def append(node: str, number: int) -> EventsAppended:
        drafts = (Draft({"n": number}),)
        reply = world.ask(node, AppendEvents(world.clients.request(), "s", drafts))
        assert isinstance(reply, EventsAppended), reply
        return reply

    def stream() -> Streams:
        reply = world.ask("n0", GetStreams(world.clients.request(), "s"))
        assert isinstance(reply, Streams), reply
        return reply

    added = AddStream(world.clients.request(), "s", prefer="availability")
    reply = world.ask("n0", added)
    assert isinstance(reply, Streams), reply
    shard = f"{reply.streams[0].id}/0"

    def replicas() -> dict[str, Replica | None]:
        return {name: world.node(name).streams.hosts.replica(shard) for name in world.names()}

    def leaders() -> list[str]:
        return [name for name, one in replicas().items() if one is not None and one.serves]

    wait(world, lambda: len(leaders()) == 1, 5.0, "the shard has a leader")
    (leader,) = leaders()
    alone = next(name for name in world.names() if name != leader)
    assert append(alone, 1).receipts[0].fork == ""
    world.network.partition([[alone], [name for name in world.names() if name != alone]])
    (receipt,) = append(alone, 2).receipts
    assert receipt.fork
    assert append(leader, 3).receipts[0].fork == ""
    world.network.heal()
    forks = world.node(alone).streams.forks
    wait(world, lambda: not forks.status(shard), 30.0, "the fork is copied")
    told = [fork for each in stream().streams[0].shards[0].replicas for fork in each.forks]
    assert [(each.fork, each.state, each.rows) for each in told] == [(receipt.fork, "copied", 1)]
    found = replicas()[leaders()[0]]
    assert found is not None
    assert found.log.next_offset == 3
    why = world.ask("n0", WhyRow(world.clients.request(), "s", 0, 2))
    assert isinstance(why, RowExplained), why
    assert (why.attributes, why.fork, why.at) == ({"n": 2}, receipt.fork, 0)
