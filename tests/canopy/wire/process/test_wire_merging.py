"""Two overlays of real processes, founded apart, become one when a node knows both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.client.blocking import ControlClient
from harness.real_overlay import PATIENCE, Overlay, status, wait_ready
from overlay.client import Draft, GetIncidents, Incidents, Publish, Subscribe

pytestmark = pytest.mark.process

WITHIN = 15.0
"""Seconds in which there is one ring."""


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Overlay]:
    found = Overlay(tmp_path)
    yield found
    found.stop()


class Side:
    """A founder, which publishes, and a subscriber."""

    def __init__(self, overlay: Overlay, name: str) -> None:
        self.name = name
        self.nodes: list[ControlClient] = [overlay.start()]
        self.address = status(self.nodes[0]).address
        self.nodes.append(overlay.start(self.address))
        self.publisher, self.subscriber = self.nodes
        wait_ready(*self.nodes)
        self.subscriber.request(Subscribe(0, "v >= 0"), PATIENCE)
        self.published = 0
        self.seen: Counter[str] = Counter()

    def go_on(self) -> None:
        """Publish a few, and see what has come."""
        drafts = []
        for _ in range(5):
            drafts.append(Draft({"id": f"{self.name}{self.published}", "v": self.published}))
            self.published += 1
        self.publisher.request(Publish(0, tuple(drafts)), PATIENCE)
        self.look(0.02)

    def look(self, seconds: float) -> bool:
        """Whether anything came."""
        news = self.subscriber.deliveries(seconds)
        self.seen.update(str(one.event.attributes["id"]) for one in news)
        return bool(news)

    def sees(self, other: Side) -> bool:
        return any(id_.startswith(other.name) for id_ in self.seen)


def test_two_overlays_become_one_and_no_subscriber_misses_an_event(overlay: Overlay) -> None:
    one, other = sides = Side(overlay, "a"), Side(overlay, "b")
    for _ in range(10):
        for side in sides:
            side.go_on()
    assert not one.sees(other)
    assert not other.sees(one)
    overlay.start(one.address, other.address)
    met = time.monotonic()
    while not (one.sees(other) and other.sees(one)):
        assert time.monotonic() < met + WITHIN
        for side in sides:
            side.go_on()
    both = [side.published for side in sides]  # from here on all programs see everything
    for _ in range(10):
        for side in sides:
            side.go_on()
    for side in sides:
        while side.look(0.5):
            pass
    for side, (mate, since) in zip(sides, [(other, both[1]), (one, both[0])], strict=True):
        wanted = [f"{side.name}{n}" for n in range(side.published)]
        wanted += [f"{mate.name}{n}" for n in range(since, mate.published)]
        assert [id_ for id_ in wanted if id_ not in side.seen] == []
        assert set(side.seen.values()) == {1}
    ended = [
        any(i.what == "ring ended" for i in node.ask(GetIncidents(0), Incidents).incidents)
        for side in sides
        for node in side.nodes
    ]
    assert sorted([all(ended[:2]), all(ended[2:])]) == [False, True]
    assert sum(ended) == 2
