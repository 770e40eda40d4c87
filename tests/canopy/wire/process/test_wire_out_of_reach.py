"""A real node that is stopped for a while: what is for it waits, or its program hears of a gap."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from canopy.client.blocking import ControlClient
from harness.real_overlay import PATIENCE, Overlay, status, wait_ready
from overlay.client import Draft, Dropped, Publish, Subscribe

pytestmark = pytest.mark.process

CONFIG = """
links: {heartbeat: 0.2, dead_after: 1.0}
cluster: {size: 2}
tree: {held_events: 50}
"""
HELD, LOST = 50, 100  # at least; how many are held twice depends on the pace of the machine


def counted(clients: list[ControlClient], name: str) -> int:
    return sum(status(client).counters.get(name, 0) for client in clients)


def publish_until(others: list[ControlClient], counter: str, least: int, published: int) -> int:
    """Publish at the first of the nodes until they have counted so much; all published so far."""
    until = time.monotonic() + PATIENCE
    while counted(others, counter) < least:
        assert time.monotonic() < until, [status(client).counters for client in others]
        drafts = tuple(Draft({"v": published + n}) for n in range(20))
        others[0].request(Publish(0, drafts, receipt=True), PATIENCE)
        published += 20
        time.sleep(0.05)
    return published


def test_a_node_that_was_stopped_gets_what_was_held_and_hears_of_the_rest(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path, CONFIG)
    try:
        first = overlay.start()
        seed = status(first).address
        others = [first, overlay.start(seed)]
        subscriber = overlay.start(seed)
        wait_ready(*others, subscriber)
        subscriber.request(Subscribe(0, "v >= 0"), PATIENCE)
        overlay.processes[2].send_signal(signal.SIGSTOP)
        published = publish_until(others, "deliveries_held", HELD, 0)
        # The oldest of these lie in the stopped node's socket as well, and may come after all: what
        # is given up from here on was published after its links were closed.
        lost_before = counted(others, "deliveries_lost")
        published = publish_until(others, "deliveries_lost", lost_before + LOST, published)
        overlay.processes[2].send_signal(signal.SIGCONT)
        came: set[int] = set()
        lost = 0
        gaps: list[Dropped] = []
        while len(came) + lost < published or not gaps:
            news = subscriber.deliveries(PATIENCE)
            gaps = [one for one in subscriber.notices if isinstance(one, Dropped)]
            assert news or gaps, f"{len(came)} of {published} came, {lost} reported"
            came.update(int(str(one.event.attributes["v"])) for one in news)
            lost = sum(one.count for one in gaps)
        assert len(came) >= 40
        assert {one.code for one in gaps} == {"unreachable"}
    finally:
        overlay.processes[2].send_signal(signal.SIGCONT)
        overlay.stop()
