"""`canopy bench`: what it counts and computes, on clients that hand events over at once."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from canopy.cli.bench import STAMP, MeasurementPlan, drafts, measure, percentiles
from canopy.cli.main import main
from canopy.client.errors import UnreachableError
from canopy.client.frames import OpaqueEvent
from overlay.client import Draft


class Feed:
    """The events of one subscriber."""

    def __init__(self) -> None:
        self.events: queue.Queue[list[OpaqueEvent]] = queue.Queue()
        self.closed = False

    def receive(self, timeout: float) -> list[OpaqueEvent]:
        try:
            return self.events.get(timeout=timeout)
        except queue.Empty:
            return []

    def close(self) -> None:
        self.closed = True


class Overlay:
    """Clients that share one overlay; `loses` and `repeats` are numbers of events, `refuses` one
    that is refused."""

    def __init__(
        self, loses: Sequence[int] = (), repeats: Sequence[int] = (), refuses: int = -1
    ) -> None:
        self.loses, self.repeats, self.refuses = loses, repeats, refuses
        self.feeds: list[Feed] = []
        self.selectors: list[str] = []
        self.published: list[Draft] = []
        self.batches: list[int] = []

    def gather(self, selectors: list[str], *, timeout: float) -> Feed:
        assert not self.published, "subscribed before anything is published"
        self.selectors += selectors
        self.feeds.append(Feed())
        return self.feeds[-1]

    def publish_many(self, events: list[Draft], *, receipt: bool, timeout: float) -> Any:
        self.published += events
        self.batches.append(len(events))
        refused = []
        for place, draft in enumerate(events):
            number, _ = STAMP.unpack_from(draft.payload)
            if number == self.refuses:
                refused.append((place, "no"))
                continue
            attributes = msgspec.Raw(msgspec.msgpack.encode(draft.attributes))
            event = OpaqueEvent("p", 1, number, 0.0, attributes, draft.payload)
            times = 0 if number in self.loses else 2 if number in self.repeats else 1
            for feed in self.feeds:
                feed.events.put([event] * times)
        return SimpleNamespace(refused=refused)


def plan(
    events: int = 1_200, rate: float = 0.0, timeout: float = 0.2, size: int = 20
) -> MeasurementPlan:
    return MeasurementPlan(events, size, rate, receipt=False, timeout=timeout)


def measured(
    overlay: Any, chosen: MeasurementPlan, sources: int = 1, sinks: int = 1, **named: Any
) -> Any:
    return measure([overlay] * sources, [overlay] * sinks, chosen, **named)


def test_all_that_is_published_is_delivered_to_all() -> None:
    overlay = Overlay()
    stages: dict[str, tuple[int, int]] = {}
    found = measured(
        overlay, plan(), sinks=2, show=lambda stage, *done: stages.update({stage: done})
    )
    assert (found.published, found.expected, found.delivered) == (1_200, 2_400, 2_400)
    assert (found.missing, found.repeated, found.refused) == (0, 0, 0)
    assert stages == {"subscribe": (2, 2), "publish": (1_200, 1_200), "deliver": (2_400, 2_400)}
    assert len(found.subscribe_seconds) == 2
    assert found.publish_rate > 0
    assert found.delivery_rate > 0
    assert all(feed.closed for feed in overlay.feeds)
    assert {len(one.payload) for one in overlay.published} == {20}
    (run,) = {one.attributes["canopy_bench"] for one in overlay.published}
    assert set(overlay.selectors) == {f"canopy_bench = '{run}'"}


def test_what_is_missing_repeated_and_refused_is_counted() -> None:
    found = measured(Overlay(loses=(3, 4), repeats=(5,), refuses=9), plan())
    assert (found.published, found.refused) == (1_199, 1)
    assert (found.delivered, found.missing, found.repeated) == (1_197, 2, 1)


def test_sources_take_turns_and_a_rate_makes_the_batches_small() -> None:
    first, second = Overlay(), Overlay()
    second.feeds = first.feeds
    found = measure([first, second], [first], plan(40, rate=1_000.0))  # type: ignore[list-item]
    assert (first.batches, second.batches) == ([10, 10], [10, 10])
    assert found.delivered == 40


def test_latencies_are_from_the_batch_to_the_subscriber() -> None:
    times = iter(range(10_000))
    found = measured(Overlay(), plan(1), clock=lambda: float(next(times)))
    assert found.latency_ms["min"] == found.latency_ms["max"] > 0
    assert found.latency_ms["max"] % 1_000 == 0, "whole ticks of the clock"


def test_percentiles_are_of_the_nearest_rank() -> None:
    found = percentiles([float(n) for n in range(1_000, 0, -1)])
    assert found == {
        "min": 1.0, "p50": 500.0, "p90": 900.0, "p99": 990.0, "p99.9": 999.0, "max": 1_000.0,
    }  # fmt: skip
    assert percentiles([7.0]) == dict.fromkeys(found, 7.0)
    assert percentiles([]) == {}


@pytest.mark.parametrize("size", [0, STAMP.size, 100])
def test_payloads_have_the_size_that_was_asked_for(size: int) -> None:
    (draft,) = drafts(plan(size=size), "r", 7, 1, 2.5)
    assert len(draft.payload) == max(size, STAMP.size)
    assert STAMP.unpack_from(draft.payload) == (7, 2.5)


def test_a_failure_ends_the_readers() -> None:
    class Broken(Overlay):
        def publish_many(self, events: list[Draft], *, receipt: bool, timeout: float) -> Any:
            raise UnreachableError("gone")

    overlay = Broken()
    with pytest.raises(UnreachableError):
        measured(overlay, plan())
    assert all(feed.closed for feed in overlay.feeds)


def test_no_node_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANOPY_WAIT", "0")
    assert main(["bench", "--from", "/nowhere", "--to", "/nowhere"]) == 3
