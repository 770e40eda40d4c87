"""M3 and V3: what comes before its turn is kept, and only what was lost is sent again."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from harness.link_world import LinkWorld
from overlay.links.messages import BATCH_OVERHEAD, Ack, Batch
from overlay.links.receive_buffer import Arrival, DigestMismatchError, ReceiveBuffer


def batch(number: int, body: bytes = b"\x90") -> Batch:
    return Batch(number, 0, 1 << 20, zlib.crc32(body), False, body)


def take(receive_buffer: ReceiveBuffer, number: int) -> tuple[str, list[int], int]:
    """What becomes of a batch, which kept ones follow it, and the gap to report."""
    arrival = receive_buffer.receive(batch(number))
    followers = []
    while arrival is Arrival.FILLS_GAP and (one := receive_buffer.next_buffered()) is not None:
        followers.append(one.number)
    return arrival.name, followers, receive_buffer.new_gap()


def test_what_comes_before_its_turn_is_kept_and_each_gap_is_reported_once() -> None:
    receive_buffer = ReceiveBuffer(1 << 20)
    assert take(receive_buffer, 0) == ("IN_ORDER", [], 0)
    assert take(receive_buffer, 3) == ("OUT_OF_ORDER", [], 3)
    assert take(receive_buffer, 6) == ("OUT_OF_ORDER", [], 0)
    assert take(receive_buffer, 3) == ("DUPLICATE", [], 0)
    assert take(receive_buffer, 0) == ("DUPLICATE", [], 0)
    assert take(receive_buffer, 1) == ("FILLS_GAP", [], 0), "2 is missing still, and is on its way"
    assert take(receive_buffer, 2) == ("FILLS_GAP", [3], 6), "another gap"
    assert take(receive_buffer, 5) == ("OUT_OF_ORDER", [], 5), "4 was lost again"
    assert take(receive_buffer, 4) == ("FILLS_GAP", [5, 6], 0)
    assert receive_buffer.expected == 7


def test_what_is_lost_again_is_reported_alone_and_the_rest_of_its_gap_is_on_its_way() -> None:
    receive_buffer = ReceiveBuffer(1 << 20)
    assert take(receive_buffer, 9) == ("OUT_OF_ORDER", [], 9), "0 to 8 come again"
    assert [take(receive_buffer, n)[2] for n in (0, 1, 3, 4)] == [0, 0, 3, 0], "but 2 does not"
    assert take(receive_buffer, 2) == ("FILLS_GAP", [3, 4], 0)
    assert [take(receive_buffer, n)[2] for n in (5, 6, 8)] == [0, 0, 8]
    assert take(receive_buffer, 7) == ("FILLS_GAP", [8, 9], 0)


def test_a_long_gap_is_sent_again_once_and_not_once_for_each_batch_of_it() -> None:
    world = LinkWorld(delay=0.1)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(2.0)
    world.change(loss=1.0)
    for number in range(1, 101):
        a.send(b, number)
    world.change(loss=0.0)
    for number in range(101, 201):
        a.send(b, number)
    world.run(0.45)
    assert b.numbers(a) == list(range(201))
    assert len(a.frames(Batch)) <= 303, "a hundred were lost"


def test_no_more_is_kept_than_the_window_allows() -> None:
    receive_buffer = ReceiveBuffer(3 * (BATCH_OVERHEAD + 1))
    assert [take(receive_buffer, n)[0] for n in (1, 2, 3, 4)] == [
        "OUT_OF_ORDER",
        "OUT_OF_ORDER",
        "OUT_OF_ORDER",
        "DROPPED",
    ]
    assert take(receive_buffer, 0) == ("FILLS_GAP", [1, 2, 3], 0)
    assert [take(receive_buffer, n)[0] for n in (5, 6, 7, 8)] == [
        "OUT_OF_ORDER",
        "OUT_OF_ORDER",
        "OUT_OF_ORDER",
        "DROPPED",
    ]


def test_a_new_connection_brings_what_was_kept_again() -> None:
    receive_buffer = ReceiveBuffer(2 * (BATCH_OVERHEAD + 1))
    assert [take(receive_buffer, n) for n in (1, 2)] == [
        ("OUT_OF_ORDER", [], 1),
        ("OUT_OF_ORDER", [], 0),
    ]
    receive_buffer.resume()
    assert [take(receive_buffer, n) for n in (1, 2)] == [
        ("OUT_OF_ORDER", [], 1),
        ("OUT_OF_ORDER", [], 0),
    ]
    assert take(receive_buffer, 0) == ("FILLS_GAP", [1, 2], 0)


def test_a_damaged_batch_is_not_taken_and_still_expected() -> None:
    receive_buffer = ReceiveBuffer(1 << 20)
    for number in (0, 3):
        with pytest.raises(DigestMismatchError):
            receive_buffer.receive(msgspec.structs.replace(batch(number), digest=1))
    assert receive_buffer.expected == 0
    assert receive_buffer.receive(batch(0)) is Arrival.IN_ORDER


def test_a_gap_is_mended_in_a_round_trip() -> None:
    world = LinkWorld(delay=0.01)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    world.change(loss=1.0)
    a.send(b, 1)
    world.change(loss=0.0)
    a.send(b, 2)
    world.run(0.05)
    assert b.numbers(a) == [0, 1, 2]
    assert len([ack for ack in b.frames(Ack) if ack.gap]) == 1


def test_only_what_was_lost_is_sent_again() -> None:
    """Else a lossy link carries what is under way once more for each loss, until it is full."""
    world = LinkWorld(delay=0.25, seed=3)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(2.0)
    world.change(loss=0.05)
    for number in range(1, 401):
        a.send(b, number)
        world.run(0.02)
    world.change(loss=0.0)
    world.run(10.0)
    assert b.numbers(a) == list(range(401))
    assert len(a.frames(Batch)) < 401 * 1.25, "0.05 are lost, and some of those again"
