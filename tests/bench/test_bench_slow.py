"""What a slow subscriber costs: from measured phases, and the measuring itself (fake clients)."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import trio

from bench.command import Progress
from bench.node.slow_reader import Apart
from bench.node.slow_subscriber import PROGRAM, DelayRecorder, Slow, SteadyPublisher, quantile
from overlay.client import Delivery, Draft, Event, Publish, Published, Status, Subscribed
from tests.support.real.wire_rig import PATIENCE, rig


class FakeClient:
    """A node that delivers what it publishes to whoever asks."""

    def __init__(self) -> None:
        self.waiting: deque[Delivery] = deque()
        self.notices: deque[Any] = deque()

    def ask(self, *_: Any) -> Subscribed:
        return Subscribed(1, "s")

    def request(self, command: Publish, timeout: float) -> Published:
        for draft in command.events:
            self.waiting.append(
                Delivery("s", Event("n", 1, 1, 0.0, draft.attributes), "", "", "", 0)
            )
        return Published.of(1, ())

    def deliveries(self, timeout: float) -> list[Delivery]:
        if not self.waiting:
            time.sleep(0.001)
        return [self.waiting.popleft() for _ in range(len(self.waiting))]


def test_a_quantile_is_by_nearest_rank() -> None:
    assert quantile([5.0, 1.0, 3.0], 0.5) == 3.0
    assert quantile(range(100), 0.99) == 99
    assert quantile([], 0.5) == float("inf")


def test_pairs_of_phases_are_compared_and_what_is_missing_is_counted() -> None:
    slow = Slow("client", Namespace(rate=1.0, trace=0.0), Progress(1))
    slow.slow = "1"
    slow.nodes = Namespace(nodes={"0": None, "1": None})  # type: ignore[assignment]
    slow.phases = [(False, 0.0, 10.0), (True, 10.0, 20.0), (False, 20.0, 30.0), (True, 30.0, 40.0)]
    slow.memory = [
        {"0": zero, "1": one, PROGRAM: 1_000_000 * zero}
        for zero, one in ((10, 50), (20, 60), (30, 5), (40, 6))
    ]
    client: Any = FakeClient()
    other = DelayRecorder(client)
    other.delays = [(5.0, 0.1), (15.0, 0.3), (25.0, 0.1), (35.0, 0.2), (99.0, 9.0)]
    publisher = SteadyPublisher(client, 1.0, 1)
    publisher.sent = [5.0, 15.0, 25.0, 35.0, 45.0, 99.0]
    row = slow._report([other], publisher, {"got": 3, "reported": 1})
    assert row["p99_ratio"] == 2.5
    assert row["p99_ms"] == [[100.0, 300.0], [100.0, 200.0]]
    assert row["rss_mb"] == [[0.0, 0.0], [0.0, 0.0]]
    assert (row["missing"], row["program_mb"]) == (1, [30.0, 40.0])
    assert row["slow"] == {"got": 3, "reported": 1, "unreported": 2}


def test_what_is_published_at_a_rate_is_read_and_timed() -> None:
    client: Any = FakeClient()
    reader, source = DelayRecorder(client), SteadyPublisher(client, 1_000.0, 10)
    reader.start()
    source.start()
    until = time.monotonic() + 20.0
    while len(source.sent) < 20 and time.monotonic() < until:
        time.sleep(0.005)
    source.stopping.set()
    source.join(20.0)
    while len(reader.delays) < len(source.sent) and time.monotonic() < until:
        time.sleep(0.005)
    assert len(reader.delays) == len(source.sent) >= 20


@pytest.mark.trio
async def test_a_program_apart_stalls_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        asked = trio.Event()
        status = one.node.status

        def noted(request: int) -> Status:
            asked.set()
            return status(request)

        monkeypatch.setattr(one.node, "status", noted)
        with await trio.to_thread.run_sync(lambda: Apart(tmp_path, "a = 1")) as program:
            program.say("stall")
            with trio.fail_after(PATIENCE):
                await asked.wait()
            one.driver.turn(one.node.commands, 1, (Publish(1, (Draft({}),) * 5),))
            report = await trio.to_thread.run_sync(program.end)
        assert (report["got"], report["reported"]) == (5, 0)
        assert report["answer_ms"] > 0
