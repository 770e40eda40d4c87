"""M3 and M5 in a network without faults."""

from __future__ import annotations

from harness.link_world import LinkWorld
from overlay.links.constants import ACK_DELAY
from overlay.links.events import LinkUp
from overlay.links.messages import Ack, Batch


def test_messages_arrive_in_order_in_one_batch_per_turn() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, *range(100))
    world.run(1.0)
    assert b.numbers(a) == list(range(100))
    assert len(a.frames(Batch)) == 1
    assert a.of(LinkUp) == [LinkUp(b.peer, True, 1)]
    assert b.of(LinkUp) == [LinkUp(a.peer, True, 1)]
    assert a.links.connected("b")
    assert a.links.sessions()[0].in_flight_bytes == 0


def test_a_pure_acknowledgement_follows_when_no_batch_does() -> None:
    world = LinkWorld(delay=0.0)
    a, b = world.host("a"), world.host("b")
    a.send(b, 1)
    world.run(0.0)
    assert a.links.sessions()[0].in_flight_bytes > 0
    world.run(ACK_DELAY)
    assert a.links.sessions()[0].in_flight_bytes == 0
    assert [ack.acknowledged for ack in b.frames(Ack)] == [1]


def test_both_directions_share_one_connection_when_both_dial() -> None:
    for seed in range(20):
        world = LinkWorld(seed=seed, jitter=0.02)
        a, b = world.host("a"), world.host("b")
        a.send(b, 1, 2)
        b.send(a, 3, 4)
        world.run(2.0)
        assert world.live() == 1
        assert b.numbers(a) == [1, 2]
        assert a.numbers(b) == [3, 4]
        assert not a.downs()
        assert not b.downs()
        assert len(a.of(LinkUp)) == len(b.of(LinkUp)) == 1
