"""Real nodes that tests of streams share: each has a stream of its own there."""

import time
from collections.abc import Iterator

import pytest

from harness.real_overlay import PATIENCE, Overlay, status, wait_ready


@pytest.fixture(scope="session")
def four_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overlay]:
    found = Overlay(tmp_path_factory.mktemp("four"))
    try:
        found.grow(4)
        yield found
    finally:
        found.stop()


@pytest.fixture
def overlay(four_nodes: Overlay) -> Overlay:
    """Four nodes that know each other. Those that a test before has killed are started again."""
    killed = [n for n, process in enumerate(four_nodes.processes) if process.poll() is not None]
    four_nodes.restart(*killed)
    wait_ready(*four_nodes.clients)
    until = time.monotonic() + PATIENCE
    while min(status(client).neighbours for client in four_nodes.clients) < 3:
        assert time.monotonic() < until, "not everybody is in everybody's view"
        time.sleep(0.05)
    return four_nodes
