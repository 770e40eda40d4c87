"""Nodes whose wall clocks differ, and jump: no promise depends on them (overlay/machine.py)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.client.blocking import ControlClient
from harness.real_overlay import PATIENCE, Overlay, delivered, status, wait_ready
from overlay.client import Draft, Publish, Subscribe

pytestmark = pytest.mark.process

HOUR = 3_600.0
DAY = 24 * HOUR

SITE = """
import os, time
true, seen = time.time, [0.0, -1.0]  # seconds that it is off, and when that was read

def wrong():
    now = time.monotonic()
    if now > seen[1] + 0.02:
        with open(os.environ["CANOPY_TEST_CLOCK"]) as file:
            seen[:] = float(file.read() or seen[0]), now
    return true() + seen[0]

time.time = wrong
time.time_ns = lambda: int(wrong() * 1e9)
"""
"""Imported by each process before all else (sitecustomize)."""


class Clocks:
    """Nodes with clocks that are wrong by as much as a test says."""

    def __init__(self, overlay: Overlay, monkeypatch: pytest.MonkeyPatch) -> None:
        self.overlay = overlay
        self.monkeypatch = monkeypatch
        (overlay.folder / "sitecustomize.py").write_text(SITE)
        paths = (str(overlay.folder), os.environ.get("PYTHONPATH", ""))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))

    def set(self, number: int, seconds: float) -> None:
        """From now on the clock of this node is off by so much."""
        file = self.overlay.folder / f"{number}.clock"
        file.with_suffix(".new").write_text(str(seconds))
        file.with_suffix(".new").rename(file)

    def start(self, seconds: float, *peers: str) -> ControlClient:
        """A node whose clock is off by so much."""
        number = len(self.overlay.processes)
        self.set(number, seconds)
        self.monkeypatch.setenv("CANOPY_TEST_CLOCK", str(self.overlay.folder / f"{number}.clock"))
        return self.overlay.start(*peers)


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocks]:
    overlay = Overlay(tmp_path)
    yield Clocks(overlay, monkeypatch)
    overlay.stop()


def test_clocks_that_differ_and_jump_cost_no_event(clocks: Clocks) -> None:
    founder = clocks.start(0.0)
    seed = status(founder).address
    publisher, subscriber = clocks.start(HOUR, seed), clocks.start(-HOUR, seed)
    wait_ready(founder, publisher, subscriber)
    subscriber.request(Subscribe(0, "n >= 0"), PATIENCE)
    expected = 0
    for jump in (0.0, DAY, -DAY):
        clocks.set(1, HOUR + jump)
        clocks.set(2, -HOUR - jump)
        time.sleep(0.1)  # until the processes have read it
        drafts = tuple(Draft({"id": str(expected + n), "n": n}) for n in range(50))
        publisher.request(Publish(0, drafts, receipt=True), PATIENCE)
        assert delivered(subscriber, 50) == [str(expected + n) for n in range(50)]
        expected += 50
    founder.request(Subscribe(0, "late = 1"), PATIENCE)
    publisher.request(Publish(0, (Draft({"id": "last", "late": 1}),)), PATIENCE)
    (last,) = founder.deliveries(PATIENCE)
    assert last.event.attributes["id"] == "last"
    assert abs(last.event.time - time.time()) > HOUR, "the publisher's clock is wrong indeed"
