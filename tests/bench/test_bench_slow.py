"""What a slow subscriber costs: from measured phases, and the measuring itself (fake clients)."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import trio

from bench.command import Progress
from bench.node.slow_reader import Apart
from bench.node.slow_subscriber import FLOW, PROGRAM, Slow, quantile
from harness.recovery.flows import FlowSubscriber
from harness.recovery.verdict import DeliveredEvent, PublishedEvent
from overlay.client import Draft, Publish, Status
from tests.support.real.wire_rig import PATIENCE, rig


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
    client: Any = None
    other = FlowSubscriber(client)
    times = (5.0, 15.0, 25.0, 35.0, 45.0, 99.0)
    sent = {str(number): PublishedEvent(at, FLOW, True) for number, at in enumerate(times)}
    sent["unwanted"] = PublishedEvent(50.0, FLOW, False)
    took = ((0, 0.1), (1, 0.3), (2, 0.1), (3, 0.2), (5, 9.0))
    other.arrivals = [DeliveredEvent(times[n] + delay, FLOW, str(n)) for n, delay in took]
    row = slow._report([other], sent, {"got": 3, "reported": 1})
    assert row["p99_ratio"] == 2.5
    assert row["p99_ms"] == [[100.0, 300.0], [100.0, 200.0]]
    assert row["rss_mb"] == [[0.0, 0.0], [0.0, 0.0]]
    assert (row["missing"], row["program_mb"]) == (1, [30.0, 40.0])
    assert row["slow"] == {"got": 3, "reported": 1, "unreported": 2}


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
