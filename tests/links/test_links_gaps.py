"""M3 and V3: what comes before its turn is kept, and only what was lost is sent again."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from overlay.links.inbox import Arrival, DigestMismatchError, Inbox
from overlay.links.messages import OVERHEAD, Ack, Batch
from tests.support.wires import World


def batch(number: int, body: bytes = b"\x90") -> Batch:
    return Batch(number, 0, 1 << 20, zlib.crc32(body), False, body)


def take(inbox: Inbox, number: int) -> tuple[str, list[int], int]:
    """What becomes of a batch, which kept ones follow it, and the gap to tell of."""
    arrival = inbox.judge(batch(number))
    followers = []
    while arrival is Arrival.TAKEN and (one := inbox.kept()) is not None:
        followers.append(one.number)
    return arrival.name, followers, inbox.gap()


def test_what_comes_before_its_turn_is_kept_and_each_gap_is_told_once() -> None:
    inbox = Inbox(1 << 20)
    assert take(inbox, 0) == ("TAKEN", [], 0)
    assert take(inbox, 3) == ("KEPT", [], 3)
    assert take(inbox, 6) == ("KEPT", [], 0)
    assert take(inbox, 3) == ("REPEATED", [], 0)
    assert take(inbox, 0) == ("REPEATED", [], 0)
    assert take(inbox, 1) == ("TAKEN", [], 0), "2 is missing still, and is on its way"
    assert take(inbox, 2) == ("TAKEN", [3], 6), "another gap"
    assert take(inbox, 5) == ("KEPT", [], 5), "4 was lost again"
    assert take(inbox, 4) == ("TAKEN", [5, 6], 0)
    assert inbox.expected == 7


def test_what_is_lost_again_is_told_alone_and_the_rest_of_its_gap_is_on_its_way() -> None:
    inbox = Inbox(1 << 20)
    assert take(inbox, 9) == ("KEPT", [], 9), "0 to 8 come again"
    assert [take(inbox, n)[2] for n in (0, 1, 3, 4)] == [0, 0, 3, 0], "but 2 does not"
    assert take(inbox, 2) == ("TAKEN", [3, 4], 0)
    assert [take(inbox, n)[2] for n in (5, 6, 8)] == [0, 0, 8]
    assert take(inbox, 7) == ("TAKEN", [8, 9], 0)


def test_a_long_gap_is_sent_again_once_and_not_once_for_each_batch_of_it() -> None:
    world = World(delay=0.1)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(2.0)
    world.loss = 1.0
    for number in range(1, 101):
        a.send(b, number)
    world.loss = 0.0
    for number in range(101, 201):
        a.send(b, number)
    world.run(0.45)
    assert b.numbers(a) == list(range(201))
    assert len(a.frames(Batch)) <= 303, "a hundred were lost"


def test_no_more_is_kept_than_the_window_allows() -> None:
    inbox = Inbox(3 * (OVERHEAD + 1))
    assert [take(inbox, n)[0] for n in (1, 2, 3, 4)] == ["KEPT", "KEPT", "KEPT", "DROPPED"]
    assert take(inbox, 0) == ("TAKEN", [1, 2, 3], 0)
    assert [take(inbox, n)[0] for n in (5, 6, 7, 8)] == ["KEPT", "KEPT", "KEPT", "DROPPED"]


def test_a_new_connection_brings_what_was_kept_again() -> None:
    inbox = Inbox(2 * (OVERHEAD + 1))
    assert [take(inbox, n) for n in (1, 2)] == [("KEPT", [], 1), ("KEPT", [], 0)]
    inbox.resume()
    assert [take(inbox, n) for n in (1, 2)] == [("KEPT", [], 1), ("KEPT", [], 0)]
    assert take(inbox, 0) == ("TAKEN", [1, 2], 0)


def test_a_damaged_batch_is_not_taken_and_still_expected() -> None:
    inbox = Inbox(1 << 20)
    for number in (0, 3):
        with pytest.raises(DigestMismatchError):
            inbox.judge(msgspec.structs.replace(batch(number), digest=1))
    assert inbox.expected == 0
    assert inbox.judge(batch(0)) is Arrival.TAKEN


def test_a_gap_is_mended_in_a_round_trip() -> None:
    world = World(delay=0.01)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    world.loss = 1.0
    a.send(b, 1)
    world.loss = 0.0
    a.send(b, 2)
    world.run(0.05)
    assert b.numbers(a) == [0, 1, 2]
    assert len([ack for ack in b.frames(Ack) if ack.gap]) == 1


def test_only_what_was_lost_is_sent_again() -> None:
    """Else a lossy link carries what is under way once more for each loss, until it is full."""
    world = World(delay=0.25, seed=3)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(2.0)
    world.loss = 0.05
    for number in range(1, 401):
        a.send(b, number)
        world.run(0.02)
    world.loss = 0.0
    world.run(10.0)
    assert b.numbers(a) == list(range(401))
    assert len(a.frames(Batch)) < 401 * 1.25, "0.05 are lost, and some of those again"
