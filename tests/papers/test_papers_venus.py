"""What VENUS claims of capture, of messages and of the copy, claim by claim (V1 to V6).

Li, Yang, Dou, Liu, Zhang and Li, *VENUS: Distributed Message-oriented Middleware towards
Heterogeneous Database Synchronization*, sections 3 and 4. Each test says what of the paper it
tests; where this project differs it says so, with the reasons in docs/design/sync.md and
docs/design/streams.md. What the paper measures, `python -m bench.papers venus` does.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from bench.papers.capture import TABLE, WORK
from bench.papers.power import copy
from canopy.sim.world.world import World
from harness.overlays import grown
from overlay.client import (
    AppendEvents,
    BeginReading,
    Draft,
    EventsAppended,
    EventsTaken,
    Failed,
    ReadingReady,
    TakeEvents,
)
from overlay.stream_client import AddStream
from streams.programs.transaction.messages import (
    COMMITTED,
    ROLLED_BACK,
    HalfIsPrepared,
    ReviewHalf,
)
from tests.support.shards.producing_world import HalfWorld
from tests.support.sync_pair import Pair

ROWS = 300


def ask(world: World, node: str, command: type[Any], *arguments: Any, **more: Any) -> Any:
    return world.ask(node, command(world.clients.request(), *arguments, **more))


def operations(pair: Pair) -> list[object]:
    """Those of the stream's events, in order, without the ones that say what tables there are."""
    told = [event.attributes["_op"] for event in pair.stream.events if "_op" in event.attributes]
    return [op for op in told if op in ("insert", "update", "delete")]


# --- section 3.3: incremental data, by triggers and log tables ---


def test_section_3_3_each_change_is_captured_once_in_order_behind_the_last_captured(
    tmp_path: Path,
) -> None:
    """Triggers log each insert, update and delete with a number that grows, and the adaptor goes on
    behind the last number that it has captured. Here the stream has that position, and the adaptor
    none of its own: one that starts again captures what happened meanwhile, and nothing twice. A
    delete removes the row; the paper sets a flag in it."""
    source = sqlite3.connect(tmp_path / "source.db", isolation_level=None)
    source.execute(TABLE)
    url, target = f"sqlite:{tmp_path / 'source.db'}", f"sqlite:{tmp_path / 'target.db'}"
    pair = Pair(url, target)
    pair.begin()
    source.execute(WORK[0].statement(1, ROWS))
    pair.go_on()
    source.execute(WORK[1].statement(1, ROWS))  # nobody captures now
    again = Pair(url, target)
    again.stream = pair.stream
    again.capture._stream = again.apply._stream = pair.stream
    pair.close()
    again.begin()
    source.execute(WORK[2].statement(1, ROWS // 2))
    again.go_on()
    wanted = ["insert"] * ROWS + ["update"] * ROWS + ["delete"] * (ROWS // 2)
    assert operations(again) == wanted
    with sqlite3.connect(tmp_path / "target.db") as copied:
        rows = copied.execute("SELECT * FROM student ORDER BY id").fetchall()
    assert rows == source.execute("SELECT * FROM student ORDER BY id").fetchall()
    assert len(rows) == ROWS - ROWS // 2
    again.close()
    source.close()


# --- section 3.3: half messages and review ---


def test_section_3_3_a_half_message_is_delivered_when_it_is_committed_and_removed_if_not() -> None:
    """Steps 1 to 4: a message that is persisted is a half message; the producer's second
    confirmation makes it deliverable, or removes it."""
    world = HalfWorld(1)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    leader = world.peers[0]
    for transaction, number in (("kept", 0), ("taken back", 10)):
        assert isinstance(world.prepare(leader, transaction, number), HalfIsPrepared)
    assert world.visible(leader.id) == {}
    assert world.decide(leader, "kept").outcome == COMMITTED
    assert world.decide(leader, "taken back", commit=False).outcome == ROLLED_BACK
    assert world.visible(leader.id) == {"kept": [0, 1]}


def test_section_3_3_the_producer_of_a_half_without_a_confirmation_is_asked() -> None:
    """Steps 5 to 7: if the second confirmation does not come, the middleware asks the producer,
    and acts by what it then says."""
    world = HalfWorld(1)
    world.run(0.1)
    world.elect(world.peers[0].id)
    world.run(0.5)
    leader = world.peers[0]
    assert isinstance(world.prepare(leader, "lost", 0), HalfIsPrepared)
    world.run(120.0)
    asked = [m for m in world.answers.pop(world.peers[-1].id, []) if isinstance(m, ReviewHalf)]
    assert {message.transaction for message in asked} == {"lost"}
    assert world.decide(leader, "lost").outcome == COMMITTED
    assert world.visible(leader.id) == {"lost": [0, 1]}


# --- section 3.3, table 3: full data from incremental data ---


def test_section_3_3_full_data_are_the_rows_that_are_valid_and_then_increments_follow() -> None:
    """Table 3, and the offset -1 that asks for full data: an insert adds a row, a delete removes
    it, what is repeated changes nothing; then the changes follow. Here an update replaces a row
    too, which the paper's table ignores."""
    world = grown(3, 4)
    ask(world, "n0", AddStream, "t", key="id", deletes="op = 'delete'")
    told = [
        (1, "insert"),
        (2, "insert"),
        (3, "delete"),
        (2, "delete"),
        (4, "insert"),
        (1, "insert"),
    ]
    drafts = tuple(Draft({"id": number, "op": op}) for number, op in told)
    assert isinstance(ask(world, "n1", AppendEvents, "t", drafts), EventsAppended)
    world.run(1.0)
    ready = ask(world, "n2", BeginReading, "t", "op <> 'delete'", "keys")
    assert isinstance(ready, ReadingReady), ready
    full: list[object] = []
    while len(full) < 2:
        taken = ask(world, "n2", TakeEvents, ready.request)
        assert isinstance(taken, EventsTaken)
        full += [event.attributes["id"] for event in taken.events]
    assert full == [4, 1]
    ask(world, "n1", AppendEvents, "t", (Draft({"id": 5, "op": "insert"}),))
    taken = ask(world, "n2", TakeEvents, ready.request)
    assert [event.attributes["id"] for event in taken.events] == [5]


# --- section 3.1: availability or consistency ---


def test_section_3_1_without_a_majority_a_stream_refuses_or_goes_on_as_it_was_founded() -> None:
    """When more than half of the brokers are down, "high availability" lets one that lives serve,
    and "strong consistency" waits or refuses. Here it is an option of each stream, and what is
    taken without a majority is a fork, which is copied when there is one again."""
    world = grown(3, 3)
    for name in ("consistency", "availability"):
        ask(world, "n0", AddStream, name, prefer=name)
    world.run(2.0)
    alone = "n2"
    world.network.partition([[alone], ["n0", "n1"]])
    world.run(5.0)
    row = (Draft({"n": 1}),)
    refused = ask(world, alone, AppendEvents, "consistency", row)
    assert isinstance(refused, Failed)
    assert refused.code == "no-majority"
    taken = ask(world, alone, AppendEvents, "availability", row)
    assert isinstance(taken, EventsAppended)
    assert taken.receipts[0].fork


# --- section 4.4: consistency when a broker fails ---


def test_section_4_4_the_copy_is_the_same_after_losses_of_power() -> None:
    """Inserts, updates and deletes while the broker's machine loses its power again and again: no
    change is lost, none is repeated, and the tables are the same. One replica, as in the paper."""
    found = copy(seed=1, replicas=1, changes=900)
    assert found["losses_of_power"] >= 9
    assert (found["lost"], found["repeated"], found["same"]) == (0, 0, True)
