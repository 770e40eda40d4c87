"""Longer faults on real processes (`make faults`): nodes that count as dead and come back, links
that are clogged one by one, real packets that are lost in network namespaces."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.fault_proxy import FaultProxy, Faults
from harness.real_overlay import status
from tests.support.real.namespaces import Namespaces, reason_against
from tests.support.real.proxied_overlay import (
    Flow,
    FlowingOverlay,
    ProxiedOverlay,
    ScatteredOverlay,
    wait_for,
)

pytestmark = [pytest.mark.process, pytest.mark.faults]
NODES = 6
DEATH = 9.0
"""Seconds: longer than `links.dead_after`."""
SHORT = 0.2
"""Seconds between two links: from the first that is clogged to the last that is freed less than a
death takes."""


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[ProxiedOverlay]:
    with FaultProxy() as proxy:
        found = ProxiedOverlay(tmp_path, proxy)
        try:
            found.grow(NODES)
            yield found
        finally:
            found.stop()


@pytest.fixture
def flow(overlay: ProxiedOverlay) -> Iterator[Flow]:
    source, target = overlay.outside()[:2]
    with Flow(overlay, source, target) as found:
        yield found


def primaries(overlay: FlowingOverlay) -> list[int]:
    return [n for n, client in enumerate(overlay.clients) if status(client).role == "primary"]


def test_a_primary_that_slept_long_is_fenced_when_it_wakes(
    overlay: ProxiedOverlay, flow: Flow
) -> None:
    old, slept = overlay.who("primary"), time.monotonic()
    overlay.processes[old].send_signal(signal.SIGSTOP)
    time.sleep(2 * DEATH)
    overlay.processes[old].send_signal(signal.SIGCONT)
    wait_for(lambda: len(primaries(overlay)) == 1 and primaries(overlay) != [old])
    flow.flows_again(time.monotonic())
    flow.exact(slept)


def test_a_primary_that_was_cut_off_is_fenced_when_the_network_heals(
    overlay: ProxiedOverlay, flow: Flow
) -> None:
    old, cut = overlay.who("primary"), time.monotonic()
    overlay.proxy.isolate(str(old))
    time.sleep(DEATH)
    assert any(number != old for number in primaries(overlay))
    overlay.proxy.heal()
    wait_for(lambda: len(primaries(overlay)) == 1 and primaries(overlay) != [old])
    flow.flows_again(time.monotonic())
    flow.exact(cut)


def test_events_flow_around_a_link_to_the_host_that_stays_cut(
    overlay: ProxiedOverlay, flow: Flow
) -> None:
    host, cut = overlay.who("broker"), time.monotonic()
    overlay.proxy.cut(str(flow.source), str(host))
    time.sleep(DEATH)
    assert flow.verdict(cut).first_s is not None, "nothing flows around it"
    overlay.proxy.heal()
    flow.flows_again(time.monotonic())
    flow.exact(cut)


@pytest.mark.parametrize("seed", range(2))
def test_links_that_are_clogged_one_by_one_and_freed_in_any_order_lose_nothing(
    overlay: ProxiedOverlay, flow: Flow, seed: int
) -> None:
    rng, began = random.Random(seed), time.monotonic()
    ways = [(a, b) for a in map(str, range(NODES)) for b in map(str, range(NODES)) if a != b]
    clogged = rng.sample(ways, 12)
    for sender, receiver in clogged:
        overlay.proxy.spoil(sender, receiver, Faults(hold=True))
        time.sleep(SHORT)
    rng.shuffle(clogged)
    for sender, receiver in clogged:
        overlay.proxy.spoil(sender, receiver, Faults())
        time.sleep(SHORT)
    flow.flows_again(time.monotonic())
    found = flow.exact(began)
    assert found.published > 500


def test_a_primary_whose_packets_are_lost_is_replaced_and_fenced(tmp_path: Path) -> None:
    reason = reason_against()
    if reason:
        pytest.skip(reason)
    with Namespaces(NODES) as spaces:
        overlay = ScatteredOverlay(tmp_path, spaces)
        try:
            overlay.grow(NODES)
            source, target = overlay.outside()[:2]
            with Flow(overlay, source, target) as flow:
                old, cut = overlay.who("primary"), time.monotonic()
                spaces.cut(old)
                wait_for(lambda: any(n != old for n in primaries(overlay)))
                flow.flows_again(time.monotonic())
                time.sleep(DEATH)
                spaces.join(old)
                wait_for(lambda: len(primaries(overlay)) == 1 and primaries(overlay) != [old])
                flow.flows_again(time.monotonic())
                flow.exact(cut)
        finally:
            overlay.stop()
