"""Real nodes, all killed at once and started again: they serve with what their disks have (P1)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.client.blocking import ControlClient
from harness.real_overlay import PATIENCE, Overlay, delivered, status, wait_ready
from overlay.client import Draft, GetRing, Publish, RingClusters, Subscribe

pytestmark = pytest.mark.process


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Overlay]:
    found = Overlay(tmp_path, "tree: {summary_term: 1}")  # a SUBACK after an election waits for it
    yield found
    found.stop()


def wait_members(client: ControlClient, count: int) -> tuple[str, int]:
    """Key and epoch of the one cluster, as soon as it has so many members."""
    until = time.monotonic() + PATIENCE
    while True:
        found = client.ask(GetRing(0), RingClusters).clusters
        if len(found) == 1 and 1 + bool(found[0].standby) + len(found[0].brokers) == count:
            return found[0].key, found[0].epoch
        assert time.monotonic() < until, found
        time.sleep(0.05)


def check(clients: list[ControlClient], first: int) -> None:
    """Each publishes, each gets what it subscribes to, exactly."""
    for number, client in enumerate(clients):
        client.request(Subscribe(0, f"type = 'cpu' AND v BETWEEN {number} AND 5"), PATIENCE)
    wanted: dict[int, list[str]] = {}
    for number, client in enumerate(clients):
        drafts = tuple(
            Draft({"id": f"{first + n}-{number}", "type": "cpu", "v": n % 10}) for n in range(60)
        )
        client.request(Publish(0, drafts), PATIENCE)
        for subscriber in range(len(clients)):
            ids = [f"{first + n}-{number}" for n in range(60) if subscriber <= n % 10 <= 5]
            wanted.setdefault(subscriber, []).extend(ids)
    for number, client in enumerate(clients):
        assert sorted(delivered(client, len(wanted[number]))) == sorted(wanted[number])
        assert client.deliveries(0.1) == []


def test_all_are_killed_at_once_and_started_again(overlay: Overlay) -> None:
    first = overlay.start()
    seed = status(first).address
    clients = [first, overlay.start(seed), overlay.start(seed)]
    wait_ready(*clients)
    key, epoch = wait_members(first, 3)
    ring, ids = status(first).ring, [status(client).node for client in clients]
    check(clients, 0)
    addresses = [status(client).address for client in clients]
    overlay.kill(0, 1, 2)
    for number in (2, 0, 1):
        overlay.start_again(number, addresses[number], *([seed] if number else []))
    clients = [overlay.client_again(number) for number in range(3)]
    wait_ready(*clients)
    assert wait_members(clients[0], 3) >= (key, epoch + 1)
    assert [status(client).node for client in clients] == ids
    assert {status(client).ring for client in clients} == {ring}
    assert all(not status(client).counters.get("founded") for client in clients)
    check(clients, 1_000)


def test_a_damaged_state_is_reported_and_repaired_by_the_others(overlay: Overlay) -> None:
    first = overlay.start()
    seed = status(first).address
    clients = [first, overlay.start(seed), overlay.start(seed)]
    wait_ready(*clients)
    wait_members(first, 3)
    before = status(clients[2])
    overlay.kill(2)
    state = overlay.folder / "2" / "state"
    damaged = bytearray(state.read_bytes())
    damaged[5] ^= 1  # in the first block, which is always there
    state.write_bytes(damaged)
    overlay.start_again(2, before.address, seed)
    clients[2] = overlay.client_again(2)
    wait_ready(*clients)
    wait_members(clients[0], 3)
    assert status(clients[2]).node != before.node
    assert status(clients[2]).replaced == before.node
    assert status(clients[0]).replaced == ""
    assert "state_damaged" in overlay.log(2)
    assert (overlay.folder / "2" / "state.damaged").read_bytes() == damaged
    check(clients, 1_000)
