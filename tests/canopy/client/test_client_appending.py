"""Programs and commands that append to a stream of one real node, which is killed and comes
back."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import canopy
import canopy.aio
from canopy.cli.main import main
from canopy.client.errors import CommandFailed, EventRefusedError
from canopy.sinks.sqlite import SqliteOutbox
from harness.real_overlay import PATIENCE, Overlay, wait_ready
from overlay.client import GetStreams, Streams
from overlay.stream_client import AddStream
from tests.canopy.sinks import killed_producer

pytestmark = pytest.mark.process


class Node:
    """A node with a stream of one replica, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.overlay = Overlay(folder)
        wait_ready(self.overlay.start())
        self.data = folder / "0"
        with canopy.connect(self.data) as client:
            made = client.ask(AddStream(0, "orders", replicas=1), Streams, PATIENCE)
            client.ask(AddStream(0, "many", 3, "n", 1), Streams, PATIENCE)
            self.shard = self.data / "streams" / made.streams[0].id / "0"

    def start(self) -> None:
        self.overlay.restart(0)
        wait_ready(*self.overlay.clients)

    def next(self) -> int:
        """The offset of the next row."""
        with canopy.connect(self.data) as client:
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                found = client.ask(GetStreams(0, "orders"), Streams).streams[0].shards[0]
                if found.leader:
                    return found.replicas[0].next
                time.sleep(0.05)
        raise AssertionError("the stream has no leader")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"))
    yield made
    made.overlay.stop()


def test_a_program_appends_and_what_it_may_not_is_refused(node: Node) -> None:
    begin = node.next()
    with canopy.connect(node.data) as client:
        done = client.append("orders", ({"n": n} for n in range(600)))
        assert done.count == 600
        assert [r.first for r in done.receipts] == [begin, begin + 256, begin + 512]
        one = client.append("orders", ({"n": n} for n in range(600)), atomic=True)
        assert [r.count for r in one.receipts] == [600]
        with pytest.raises(EventRefusedError, match="event 1"):
            client.append("orders", [{"n": 1}, {"n": float("inf")}])
        with pytest.raises(CommandFailed, match="no stream nowhere") as failed:
            client.append("nowhere", [{"n": 1}])
        assert failed.value.in_doubt == 0
        with pytest.raises(CommandFailed) as failed:
            client.append("orders", [canopy.Draft({"n": 1}, b"x" * 2_000_000)])
    assert node.next() == begin + 1_200


def test_a_producer_appends_each_event_once_while_its_node_is_killed(node: Node) -> None:
    with canopy.connect(node.data) as client, canopy.connect(node.data) as second:
        begun = canopy.ProducerStart()
        replaced = client.producer("orders", "desk", start=begun)
        replaced.append([{"n": n} for n in range(3)])
        rightful = second.producer("orders", "desk")
        rightful.append([{"n": n} for n in range(3)])
        begin = node.next()
        producer = client.producer("orders", "till")
        assert producer.next == (0,)
        producer.append([{"n": n} for n in range(10)])
        several, events = client.producer("many", "till"), [{"n": n} for n in range(3_000)]
        with ThreadPoolExecutor() as pool:
            others = pool.submit(several.append, events, timeout=PATIENCE)
            until = time.monotonic() + PATIENCE
            while sum(several.next) < 200:
                assert time.monotonic() < until
                time.sleep(0.001)
            node.overlay.kill(0)
            threading.Timer(0.5, node.start).start()
            done = producer.append([{"n": n} for n in range(10, 2_000)], timeout=PATIENCE)
            assert others.result().count == 3_000
        assert done.count == 1_990
        assert producer.next == (2_000,)
        assert sum(several.next) == 3_000
        last = several.next
        for _ in range(2):
            with pytest.raises(CommandFailed, match="replaced") as failed:
                replaced.append([{"n": n} for n in range(3)])
            assert failed.value.code == "fenced"
        with pytest.raises(CommandFailed, match="replaced"):
            client.producer("orders", "desk", start=begun)
        assert rightful.append([{"n": 6}]).receipts[0].first == begin + 2_000
    with canopy.connect(node.data) as client:
        again = client.producer("many", "till", [n - 5 for n in last])
        assert again.next == tuple(n - 5 for n in last)
        with client.read("many", start="first") as reading:
            assert reading.ends == dict(enumerate(last)), "none is lost, and none there twice"
            found = [event.attributes["n"] for event in itertools.islice(reading, 3_000)]
        assert sorted(found) == list(range(3_000))  # type: ignore[type-var]
    assert node.next() == begin + 2_001
    with canopy.connect(node.data) as client:
        again = client.producer("orders", "till", 1_990)
        assert again.append([{"n": n} for n in range(1_990, 2_003)]).receipts[0].count == 3
        with canopy.connect(node.data) as other:
            assert other.producer("orders", "till").next == (2_003,)
        with pytest.raises(CommandFailed) as failed:
            again.append([{"n": 0}])
        assert failed.value.code == "fenced"


def test_tasks_append_as_threads_do(node: Node) -> None:
    async def run() -> tuple[int, int]:
        async with canopy.aio.connect(node.data) as client:
            done = await client.append("orders", [{"n": n} for n in range(300)])
            producer = await client.producer("orders", "task", 0)
            mine = await producer.append([{"n": n} for n in range(5)])
            return done.count, mine.receipts[0].count

    assert asyncio.run(run()) == (300, 5)


def test_what_a_killed_producer_has_committed_is_read_and_nothing_else(
    node: Node, tmp_path: Path
) -> None:
    database = tmp_path / "shop.db"
    with sqlite3.connect(database) as made:
        made.execute("CREATE TABLE sold (n)")
    begin, points = node.next(), ("prepared", "committed")
    for where in points:
        script = [sys.executable, "-m", killed_producer.__name__]
        ended = subprocess.run([*script, str(node.data), str(database), where], check=False)
        assert ended.returncode == -signal.SIGKILL
    with canopy.connect(node.data) as client:
        left = client.transactions("orders")
        assert {one.producer for one in left} == {"shop prepared", "shop committed"}
        assert node.next() == begin, "halves are seen by nobody"
        db = sqlite3.connect(database)
        for where in points:
            assert SqliteOutbox(db, client, "orders", f"shop {where}").relay() == 1
        assert client.transactions("orders") == ()
        with client.read("orders", start=begin) as reading:
            found = [event.attributes["sold"] for event in reading.take(PATIENCE)]
    assert found == ["committed"]
    assert db.execute("SELECT n FROM sold").fetchall() == [("committed",)]
    assert db.execute("SELECT * FROM canopy_outbox").fetchall() == []


def test_a_feed_is_appended_once_and_its_receipts_are_proved(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed, receipts = tmp_path / "feed.jsonl", tmp_path / "receipts.jsonl"
    feed.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(50)) + "no json\n")
    connect = ["--connect", str(node.data)]
    to = ["--stream", "orders", "--producer", "feed", "--first", "0"]
    begin = node.next()
    assert main(["pub", *to, "--receipts", str(receipts), str(feed), "--json", *connect]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["appended"], said["refused"], said["without_receipt"]) == (50, 1, 0)
    assert said["offsets"] == [{"shard": 0, "first": begin, "last": begin + 49}]
    assert main(["pub", *to, str(feed), "--json", "--strict", *connect]) == 1
    assert json.loads(capsys.readouterr().out)["without_receipt"] == 50
    assert node.next() == begin + 50
    (line,) = receipts.read_text().splitlines()
    one = tmp_path / "one.json"
    one.write_text(line)
    assert main(["stream", "verify", str(node.shard), "--receipt", str(one)]) == 0
    assert "proved" in capsys.readouterr().out
    assert main(["pub", "--producer", "feed", str(feed), *connect]) == 2
