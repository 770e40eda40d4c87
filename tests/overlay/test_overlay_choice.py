"""P7 in a whole overlay whose work takes time: a publisher passes over the host that is behind."""

from __future__ import annotations

from statistics import mean
from typing import Any

from canopy.sim.world.processor import Processor
from harness.overlays import acknowledged, assert_exact, grown, settings

EVENTS = 200
SLOW = Processor(per_match=0.01)
"""A hundred events per second and host."""


def flood(choice: str) -> tuple[float, dict[str, int]]:
    """One publisher has twice the events that one host can match. The mean delay in seconds, and
    who matched how many."""
    world = grown(8, chosen=settings(tree={"choice": choice}))
    world.subscribe("n1", "x > 0")
    acknowledged(world)
    world.run(10.0)
    hosts = [n for n in world.names() if "x" in world.node(n).hosting.trees]
    publisher = next(n for n in world.names() if n not in (*hosts, "n1"))
    world.publish(publisher, {"x": -1})  # so that the tree is found
    world.run(2.0)
    for driver in world.drivers.values():
        driver.processor = SLOW
    matched: dict[str, int] = {}

    def note(node: str, kind: str, fields: Any) -> None:
        if kind == "match":
            matched[node] = matched.get(node, 0) + 1

    world.recorder.listen = note
    for number in range(EVENTS):
        world.publish(publisher, {"x": number + 1})
        world.run(0.005)
    assert_exact(world)
    published = {p.identity: p.published for p in world.clients.publications}
    delays = [d.time - published[d.delivery.event.identity] for d in world.clients.deliveries]
    assert len(delays) == EVENTS
    return mean(delays), matched


def test_by_time_the_hosts_share_what_is_too_much_for_one() -> None:
    delay, matched = flood("time")
    assert len(matched) >= 2
    assert max(matched.values()) < 0.65 * EVENTS
    assert delay < 0.2  # most of it before the host has said for the first time that it is behind


def test_by_hash_one_host_has_it_all() -> None:
    delay, matched = flood("hash")
    # The last are at hosts that the load brought in, which also take over some of what waited: how
    # much, depends on when they are there.
    assert max(matched.values()) > 0.55 * EVENTS
    assert delay > 0.4  # twice what it is by time; it ends when the load has brought others in
