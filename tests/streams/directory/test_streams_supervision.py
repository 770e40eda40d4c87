"""Whom a stream's owner nominates, by what the shard's replicas have reported."""

from __future__ import annotations

import pytest

from overlay.machine import Peer, by_id
from streams.directory.entry import ShardPlace, StreamEntry, StreamOptions
from streams.directory.messages import ShardReport
from streams.directory.supervision import ASKING, SILENT, Supervision

PEERS = tuple(Peer(f"{n:016x}", f"n{n}") for n in range(3))
PLACE = ShardPlace(PEERS, is_founded=True)
ENTRY = StreamEntry("orders", "id", StreamOptions(), (PLACE,))


def reports(
    *numbers: tuple[int, int], now: float = 0.0, ready: bool = True, leads: int = -1
) -> Supervision:
    """An owner that has heard these replicas: (who, number of its last chunk)."""
    supervision = Supervision(ENTRY, 0, 0.0)
    for who, number in numbers:
        leading = 2 if who == leads else 0
        report = ShardReport(ENTRY.shard(0), leading, (1, number), ready, ())
        supervision.reported(PEERS[who], report, now)
    return supervision


def test_nobody_is_nominated_who_was_not_heard() -> None:
    supervision = reports()
    for now in (0.0, ASKING, 5.0):
        assert supervision.nominee(PLACE, now) == ""


def test_the_furthest_of_all_is_nominated_at_once() -> None:
    assert reports((0, 5), (1, 7), (2, 6)).nominee(PLACE, 0.0) == PEERS[1].id


def test_the_furthest_of_a_majority_is_nominated_after_a_while() -> None:
    supervision = reports((0, 5), (2, 6))
    assert supervision.nominee(PLACE, ASKING / 2) == ""
    assert supervision.nominee(PLACE, ASKING) == PEERS[2].id


@pytest.mark.parametrize("ready", [True, False])
def test_a_minority_is_waited_for_and_who_is_not_ready_is_none(ready: bool) -> None:
    supervision = reports((1, 9)) if ready else reports((0, 5), (1, 9), (2, 6), ready=False)
    assert supervision.nominee(PLACE, 1.0) == ""


def barred(supervision: Supervision, who: int) -> Supervision:
    report = ShardReport(ENTRY.shard(0), 0, (0, 0), False, (), is_barred=True)
    supervision.reported(PEERS[who], report, 1.0)
    return supervision


def test_another_node_takes_the_place_of_one_that_has_lost_its_vote() -> None:
    other = Peer("f" * 16, "n9")
    supervision = barred(reports((0, 5), (1, 5), leads=0), 2)
    known = by_id((*PEERS, other))
    assert supervision.wanted(PLACE, "id", 3, known, 1.0) == (*PEERS, other)
    four = ShardPlace((*PEERS, other), is_founded=True)
    assert supervision.wanted(four, "id", 3, known, 1.0) == (*PEERS[:2], other)


def test_where_there_is_no_other_node_it_is_removed_and_comes_again() -> None:
    supervision = barred(reports((0, 5), (1, 5), leads=0), 2)
    assert supervision.wanted(PLACE, "id", 3, by_id(PEERS), 1.0) == PEERS[:2]
    two = ShardPlace(PEERS[:2], is_founded=True)
    assert supervision.is_barred(PEERS[2].id)
    supervision.destroyed(PEERS[2].id)
    assert not supervision.is_barred(PEERS[2].id)
    assert supervision.wanted(two, "id", 3, by_id(PEERS), 1.0) == PEERS


def test_a_leader_that_reports_is_left_alone_until_it_is_silent() -> None:
    supervision = reports((0, 5), (1, 9), (2, 6), leads=0)
    assert supervision.nominee(PLACE, 1.0) == PEERS[0].id
    for who in (1, 2):
        report = ShardReport(ENTRY.shard(0), 0, (1, 9 - who), True, ())
        supervision.reported(PEERS[who], report, 2.0 * SILENT)
    assert supervision.nominee(PLACE, 2.0 * SILENT) == PEERS[1].id, "who is lost is not waited for"


def test_a_lost_leader_is_not_replaced_while_a_majority_is_missing() -> None:
    supervision = reports((0, 5), (1, 9), (2, 6), leads=0)
    assert supervision.nominee(PLACE, 1.0) == PEERS[0].id
    report = ShardReport(ENTRY.shard(0), 0, (1, 9), True, ())
    supervision.reported(PEERS[1], report, 2.0 * SILENT)
    for later in (0.0, 2 * ASKING):
        assert supervision.nominee(PLACE, 2.0 * SILENT + later) == ""
