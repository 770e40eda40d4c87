"""A real node that is stopped for a while: what is for it waits, or its program hears of a gap."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from canopy.client.blocking import ControlClient
from overlay.client import Draft, Dropped, Publish, Subscribe
from tests.support.real_overlay import PATIENCE, Overlay, status, wait_ready

pytestmark = pytest.mark.process

CONFIG = """
links: {heartbeat: 0.2, dead_after: 1.0}
cluster: {size: 2}
tree: {held_events: 50}
"""
HELD, LOST = 50, 100  # at least; how many are held twice depends on the pace of the machine


def counted(clients: list[ControlClient], name: str) -> int:
    return sum(status(client).counters.get(name, 0) for client in clients)


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
        until = time.monotonic() + PATIENCE
        published = 0
        while (
            counted(others, "deliveries_held") < HELD or counted(others, "deliveries_lost") < LOST
        ):
            assert time.monotonic() < until, [status(client).counters for client in others]
            drafts = tuple(Draft({"v": published + n}) for n in range(20))
            first.request(Publish(0, drafts, receipt=True), PATIENCE)
            published += 20
            time.sleep(0.05)
        overlay.processes[2].send_signal(signal.SIGCONT)
        came: set[int] = set()
        lost = 0
        while len(came) + lost < published:
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
