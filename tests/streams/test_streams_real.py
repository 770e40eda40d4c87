"""A stream of real processes: nodes are killed while a program appends, and nothing is lost."""

from __future__ import annotations

import threading
import time

import pytest

from canopy.client.blocking import ControlClient
from canopy.client.client import connect
from harness.real_overlay import PATIENCE, Overlay, status, wait_ready
from overlay.client import AppendEvents, Draft, EventsAppended, GetStreams, Streams
from overlay.info import AppendReceipt, ShardInfo
from overlay.stream_client import AddStream
from streams.log.shard_log import parse_name
from streams.log.verify import Receipt, Verifier

pytestmark = pytest.mark.process


def shard(client: ControlClient, stream: str) -> ShardInfo:
    return client.ask(GetStreams(0, stream), Streams, PATIENCE).streams[0].shards[0]


class Appending(threading.Thread):
    """A program that appends one row after the other, and keeps the receipts."""

    def __init__(self, client: ControlClient) -> None:
        super().__init__()
        self.client = client
        self.receipts: list[AppendReceipt] = []
        self.ended = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ended.is_set():
                row = (Draft({"n": len(self.receipts)}),)
                done = self.client.ask(AppendEvents(0, "appended", row), EventsAppended, PATIENCE)
                self.receipts += done.receipts
        except BaseException as error:
            self.error = error

    def more(self, count: int) -> None:
        """Wait until so many more rows are acknowledged."""
        wanted, until = len(self.receipts) + count, time.monotonic() + PATIENCE
        while len(self.receipts) < wanted:
            assert self.error is None, self.error
            assert time.monotonic() < until, f"only {len(self.receipts)} of {wanted}"
            time.sleep(0.02)


def test_rows_survive_the_loss_of_leaders_and_each_has_a_receipt_that_proves_it(
    overlay: Overlay,
) -> None:
    first = overlay.clients[0]
    made = first.ask(AddStream(0, "appended"), Streams, PATIENCE).streams[0]
    nodes = {status(client).node: place for place, client in enumerate(overlay.clients)}
    stays = next(p for n, p in nodes.items() if n not in {r.node for r in made.shards[0].replicas})
    program = Appending(ControlClient.connect(overlay.folder / str(stays)))
    program.start()
    program.more(20)
    for _ in range(2):
        lost = nodes[shard(overlay.clients[stays], "appended").leader]
        overlay.kill(lost)
        program.more(20)
        overlay.restart(lost)
        wait_ready(overlay.clients[lost])
        program.more(20)
    program.ended.set()
    program.join(PATIENCE)
    assert program.error is None
    until = time.monotonic() + PATIENCE
    while len({r.committed for r in shard(overlay.clients[stays], "appended").replicas}) > 1:
        assert time.monotonic() < until
        time.sleep(0.1)
    last = program.receipts[-1]
    offsets = [receipt.first for receipt in program.receipts]
    assert len(set(offsets)) == len(offsets)
    for replica in shard(overlay.clients[stays], "appended").replicas:
        folder = overlay.folder / str(nodes[replica.node]) / "streams" / made.id / "0"
        files = {p.name: p.read_bytes() for p in folder.iterdir() if parse_name(p.name)}
        for one in (program.receipts[0], program.receipts[len(offsets) // 2], last):
            proof = Receipt(made.id, 0, one.epoch, one.first, one.count, one.chunk, one.hash)
            found = Verifier(proof.name, proof).run(sorted(files), files.__getitem__)
            assert (found.fault, found.receipt) == (None, "proved")
        assert found.rows >= len(offsets)
    program.client.close()


def test_a_program_reads_by_content_and_goes_on_when_its_leader_is_lost(overlay: Overlay) -> None:
    first = overlay.clients[0]
    made = first.ask(AddStream(0, "read"), Streams, PATIENCE).streams[0]
    nodes = {status(client).node: place for place, client in enumerate(overlay.clients)}
    stays = next(p for n, p in nodes.items() if n not in {r.node for r in made.shards[0].replicas})
    rows = [{"n": number, "even": number % 2 == 0} for number in range(60)]
    found: list[int] = []
    with connect(overlay.folder / str(stays), reconnect=PATIENCE) as client:
        client.append("read", rows[:20])
        reading = client.read("read", "even = TRUE", start="first", durable="d")
        while len(found) < 10:
            found += [event.attributes["n"] for event in reading.take(PATIENCE)]  # type: ignore[misc]
        reading.commit()
        overlay.kill(nodes[shard(overlay.clients[stays], "read").leader])
        client.append("read", rows[20:40], timeout=PATIENCE)
        while len(found) < 20:
            found += [event.attributes["n"] for event in reading.take(PATIENCE)]  # type: ignore[misc]
        reading.close()
        client.append("read", rows[40:], timeout=PATIENCE)
        with client.read("read", "even = TRUE", durable="d") as again:
            late = [event.attributes["n"] for event in again.take(PATIENCE)]
    assert found == list(range(0, 40, 2))
    assert late == list(range(20, 60, 2))  # behind what was committed, not behind what was shown
