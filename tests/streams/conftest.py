"""Real nodes that tests of streams share: each has a stream of its own there."""

import time
from collections.abc import Iterator

import pytest

from harness.real_overlay import PATIENCE, Overlay, status, wait_ready


@pytest.fixture(scope="session")
def four_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overlay]:
    found = Overlay(tmp_path_factory.mktemp("four"))
    try:
        address = status(found.start()).address
        for _ in range(3):
            found.start(address)
        yield found
    finally:
        found.stop()


@pytest.fixture
def overlay(four_nodes: Overlay) -> Overlay:
    """Four nodes that know each other. Those that a test before has killed are started again."""
    alive = [n for n, process in enumerate(four_nodes.processes) if process.poll() is None]
    address = status(four_nodes.clients[alive[0]]).address
    for number in range(len(four_nodes.processes)):
        if number not in alive:
            four_nodes.start_again(number, "127.0.0.1:0", address)
            four_nodes.client_again(number)
    wait_ready(*four_nodes.clients)
    until = time.monotonic() + PATIENCE
    while min(status(client).neighbours for client in four_nodes.clients) < 3:
        assert time.monotonic() < until, "not everybody is in everybody's view"
        time.sleep(0.05)
    return four_nodes
