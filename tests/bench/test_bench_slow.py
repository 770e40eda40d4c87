"""What a slow subscriber costs: from measured phases, and the measuring itself (fake clients)."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import deque
from typing import Any

from bench.recovery import Progress
from bench.slow_subscriber import Reader, Slow, Source, quantile
from overlay.client import Delivery, Event, Publish, Published, Subscribed


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
    slow = Slow("client", Namespace(rate=1.0), Progress(1))
    slow.slow = "1"
    slow.nodes = Namespace(nodes={"0": None, "1": None})  # type: ignore[assignment]
    slow.phases = [(False, 0.0, 10.0), (True, 10.0, 20.0), (False, 20.0, 30.0), (True, 30.0, 40.0)]
    slow.memory = [{"0": 10, "1": 50}, {"0": 20, "1": 60}, {"0": 30, "1": 5}, {"0": 40, "1": 6}]
    client: Any = FakeClient()
    other, slow.reader = Reader(client), Reader(client)
    other.delays = [(5.0, 0.1), (15.0, 0.3), (25.0, 0.1), (35.0, 0.2), (99.0, 9.0)]
    publisher = Source(client, 1.0, 1)
    publisher.sent = [5.0, 15.0, 25.0, 35.0, 45.0, 99.0]
    row = slow._report([other], publisher)
    assert row["p99_ratio"] == 2.5
    assert row["p99_ms"] == [[100.0, 300.0], [100.0, 200.0]]
    assert row["rss_mb"] == [[0.0, 0.0], [0.0, 0.0]]
    assert (row["missing"], row["slow_got"]) == (1, 0)


def test_a_reader_that_is_stalled_takes_nothing_and_goes_on_later() -> None:
    client: Any = FakeClient()
    reader, source = Reader(client), Source(client, 1_000.0, 10)
    reader.stalled.set()
    reader.start()
    source.start()
    until = time.monotonic() + 20.0
    while len(source.sent) < 20 and time.monotonic() < until:
        time.sleep(0.005)
    assert not reader.delays
    reader.stalled.clear()
    source.stopping.set()
    source.join(20.0)
    while len(reader.delays) < len(source.sent) and time.monotonic() < until:
        time.sleep(0.005)
    assert len(reader.delays) == len(source.sent) >= 20
