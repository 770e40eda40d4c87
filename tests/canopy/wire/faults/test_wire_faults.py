"""Faults from outside, on real processes: cut, one-way and clogged links, a paused primary, a
killed one. What is published arrives exactly once."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from harness.fault_proxy import FaultProxy, Faults
from harness.real_overlay import PATIENCE, status
from overlay.client import Subscribe
from tests.support.real.proxied_overlay import Flow, ProxiedOverlay, wait_for

pytestmark = pytest.mark.process
NODES = 6


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxiedOverlay]:
    """Six nodes, three of them a cluster. Each test leaves it able to serve."""
    with FaultProxy() as proxy:
        found = ProxiedOverlay(tmp_path_factory.mktemp("proxied"), proxy)
        try:
            found.grow(NODES)
            yield found
        finally:
            found.stop()


@pytest.fixture
def flow(overlay: ProxiedOverlay) -> Iterator[Flow]:
    """Events between two nodes that are in no cluster."""
    source, target = overlay.outside()[:2]
    with Flow(overlay, source, target) as found:
        yield found
    overlay.proxy.heal()


def test_links_that_are_cut_one_way_and_clogged_for_a_while_lose_nothing(
    overlay: ProxiedOverlay, flow: Flow
) -> None:
    source, broker = str(flow.source), str(overlay.who("broker"))
    began = time.monotonic()
    # One is reset, and dialled again; who has a connection to whom just now is the nodes' affair.
    others = [str(number) for number in range(NODES) if number != flow.source]
    wait_for(lambda: any(overlay.proxy.close(source, other) for other in others))
    flow.flows_again(began)
    for lossy in ([(source, broker)], [(broker, source)], [(source, broker), (broker, source)]):
        for sender, receiver in lossy:
            overlay.proxy.spoil(sender, receiver, Faults(hold=True))
        time.sleep(0.4)
        overlay.proxy.heal()
    overlay.proxy.spoil(source, broker, Faults(delay=0.05, rate=200_000.0))
    overlay.proxy.spoil(broker, source, Faults(damage=0.2))
    flow.flows_again(time.monotonic())
    time.sleep(0.5)
    overlay.proxy.heal()
    found = flow.exact(began)
    assert found.published > 300


def test_a_paused_primary_is_replaced_and_fenced_when_it_wakes(
    overlay: ProxiedOverlay, flow: Flow
) -> None:
    old = overlay.who("primary")
    epoch = overlay.cluster(flow.source).epoch
    paused = time.monotonic()
    overlay.processes[old].send_signal(signal.SIGSTOP)
    try:
        wait_for(
            lambda: any(
                status(overlay.clients[n]).role == "primary" for n in range(NODES) if n != old
            )
        )
        flow.flows_again(time.monotonic())
    finally:
        overlay.processes[old].send_signal(signal.SIGCONT)
    wait_for(lambda: status(overlay.clients[old]).role != "primary")
    cluster = overlay.cluster(flow.source)
    assert cluster.epoch > epoch
    assert cluster.primary != overlay.ids[old]
    flow.flows_again(time.monotonic())
    flow.exact(paused)


def test_a_killed_primary_is_replaced_while_events_flow(
    overlay: ProxiedOverlay, flow: Flow
) -> None:
    old = overlay.who("primary")
    killed = time.monotonic()
    overlay.proxy.leave(str(old))
    overlay.kill(old)
    wait_for(lambda: any(status(overlay.clients[n]).role == "primary" for n in alive(overlay)))
    flow.flows_again(time.monotonic())
    overlay.clients[flow.target].request(Subscribe(0, "late = 1"), PATIENCE)
    flow.exact(killed)


def alive(overlay: ProxiedOverlay) -> list[int]:
    return [n for n, process in enumerate(overlay.processes) if process.poll() is None]
