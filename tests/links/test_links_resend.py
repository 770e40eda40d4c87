"""M3: what was lost on the way is sent again after what round trips take (RFC 6298)."""

from __future__ import annotations

import pytest

from harness.link_world import LinkWorld


@pytest.mark.parametrize(("delay", "least", "most"), [(0.01, 0.4, 0.6), (0.5, 1.0, 3.0)])
def test_a_lost_frame_is_sent_again_after_what_round_trips_take(
    delay: float, least: float, most: float
) -> None:
    world = LinkWorld(delay=delay)
    a, b = world.host("a"), world.host("b")
    for number in range(8):
        a.send(b, number)
        world.run(3.0)
    world.change(loss=1.0)
    a.send(b, 8)
    world.change(loss=0.0)
    world.run(least + delay)
    assert b.numbers(a) == list(range(8))
    world.run(most - least)
    assert b.numbers(a) == list(range(9))
    assert a.counts["link_resent"] == 1


def test_nothing_measured_a_lost_frame_is_sent_again_after_a_heartbeat() -> None:
    world = LinkWorld(delay=0.01)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(0.035)  # the dial and the handshake
    world.change(loss=1.0)
    world.run(0.02)
    world.change(loss=0.0)
    world.run(0.9)
    assert b.numbers(a) == []
    world.run(0.2)
    assert b.numbers(a) == [0]
