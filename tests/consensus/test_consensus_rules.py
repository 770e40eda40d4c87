"""Each rule of `overlay.consensus` against a model that enumerates what it says."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overlay.consensus import (
    NEVER,
    DurableQueue,
    Progress,
    ProgressState,
    Tracker,
    has_majority,
    is_fenced,
    majorities_meet,
    majority,
    majority_until,
    may_vote,
    quorum_of_storers,
    reached_by,
)
from overlay.machine import Peer
from tests.consensus.naive_logs import ALL, Voted

SETS = [each for count in range(1, 5) for each in combinations(ALL[:4], count)]
NUMBERS = st.integers(0, 6)


def halves(voters: tuple[Peer, ...]) -> list[set[str]]:
    """The smallest sets of which any two meet, found by trying."""
    ids = [peer.id for peer in voters]
    for size in range(len(ids) + 1):
        found = [set(each) for each in combinations(ids, size)]
        if all(one & other for one in found for other in found):
            return found
    raise AssertionError


def test_majorities_are_the_smallest_sets_that_meet() -> None:
    for voters in SETS:
        assert {len(each) for each in halves(voters)} == {majority(len(voters))}
        for nodes in SETS:
            ids = {peer.id for peer in nodes}
            assert has_majority(voters, ids) == any(each <= ids for each in halves(voters))
    assert not has_majority((), {"A"})


def test_majorities_before_and_after_a_change_meet() -> None:
    for before in SETS:
        for after in SETS:
            meet = all(one & other for one in halves(before) for other in halves(after))
            assert majorities_meet(before, after) == meet


@pytest.mark.parametrize("voters", range(1, 8))
def test_where_one_may_lie_every_majority_has_an_honest_holder_if_one_may_be_silent(
    voters: int,
) -> None:
    needed = quorum_of_storers(voters, one_may_lie=True)
    assert quorum_of_storers(voters, one_may_lie=False) == majority(voters) <= needed
    assert needed <= max(majority(voters), voters - 1)
    least = min(
        len(set(holders) & set(electors))
        for holders in combinations(range(voters), needed)
        for electors in combinations(range(voters), majority(voters))
    )
    assert least >= 2 or needed in (voters - 1, voters)


@given(st.lists(NUMBERS, min_size=1, max_size=7), st.data())
@settings(max_examples=50)
def test_what_so_many_have_reached(values: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(values)))
    highest = max(v for v in values if sum(each >= v for each in values) >= count)
    assert reached_by(count, values) == highest


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from("AB")), max_size=12))
@settings(max_examples=100)
def test_votes_are_given_once_in_an_epoch_and_never_taken_back(
    asked: list[tuple[int, str]],
) -> None:
    given_: list[Voted] = []
    for epoch, candidate in asked:
        last = given_[-1] if given_ else None
        earlier = [vote for vote in given_ if vote.epoch >= epoch]
        allowed = all(vote == (epoch, candidate) for vote in earlier)
        assert may_vote(last, epoch, candidate) == allowed
        assert is_fenced(last, epoch) == any(vote.epoch > epoch for vote in given_)
        if allowed:
            given_.append(Voted(epoch, candidate))


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.lists(st.integers(0, 9), min_size=5, max_size=5),
    st.integers(1, 9),
)
@settings(max_examples=100)
def test_a_leader_commits_what_a_majority_has_from_its_own_epoch_on(
    has: list[int], heard: list[int], first: int
) -> None:
    voters = ALL[: len(has)]
    tracker = Tracker[Progress](ALL[0].id, first)
    for progress in tracker.follow({p.id: p for p in ALL[1:]}, Progress):
        at = ALL.index(progress.peer)
        progress.acknowledge(has[at] if at < len(has) else 9, float(heard[at]))
    committed = [
        number for number in range(first, 10) if sum(each >= number for each in has) > len(has) / 2
    ]
    assert tracker.committable(voters, has[0]) == max(committed, default=0)
    for number in range(1, 10):
        holders = tuple(p.id for p, each in zip(voters, has, strict=True) if each >= number)
        assert tracker.holders(voters, has[0], number) == holders
    since = tracker.heard_since(voters, 10.0)
    times = [10.0, *map(float, heard[1 : len(has)])]
    assert sum(time >= since for time in times) > len(has) / 2
    assert sum(time > since for time in times) <= len(has) / 2
    assert majority_until(voters, {}, ALL[4].id, 1.0) == (1.0 if voters == ALL[4:] else NEVER)


def test_voters_are_checked_before_they_change() -> None:
    a, b, c, d, _ = ALL
    tracker = Tracker[Progress](a.id, 3)
    assert [tracker.may_change(number) for number in (0, 2, 3)] == [False, False, True]
    tracker.change(5)
    assert [tracker.may_change(number) for number in (4, 5)] == [False, True]
    for before, after in (((a,), (a, b, c)), ((a, b), (a, b, c)), ((a, b, c), (b, c))):
        tracker.check_change(before, after)
    for before, after in (((a, b, c), (a, c, d, b, _)), ((a, b), (c,)), ((b,), (a, b, c))):
        with pytest.raises(ValueError, match="more than one"):
            tracker.check_change(before, after)


def test_who_follows_is_kept_and_who_does_not_is_forgotten() -> None:
    a, b, c, d, _ = ALL
    tracker = Tracker[Progress](a.id, 1)
    first, second = tracker.follow({p.id: p for p in (b, c)}, Progress)
    second.restart(ProgressState.REPLICATE, 7)
    assert [each.peer for each in tracker.follow({p.id: p for p in (c, d)}, Progress)] == [d]
    assert (first.peer, list(tracker.followers)) == (b, [c.id, d.id])
    assert [tracker.is_caught_up(p.id, 7) for p in (b, c, d)] == [False, True, False]
    assert not tracker.is_caught_up(c.id, 8)
    assert (tracker.forget(c.id), tracker.forget(c.id)) == (True, False)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=20))
@settings(max_examples=50)
def test_what_is_in_flight_is_what_was_sent_and_is_not_acknowledged(
    steps: list[tuple[bool, int]],
) -> None:
    progress = Progress(ALL[0])
    sent, acknowledged, ends = 0, 0, list[int]()
    for sends, count in steps:
        if sends:
            sent += count
            ends.append(sent)
            progress.inflight.append(sent)
        else:
            acknowledged = min(sent, acknowledged + count)
            progress.acknowledge(acknowledged, 0.0)
        assert list(progress.inflight) == [end for end in ends if end > acknowledged]
        assert progress.match == acknowledged
        assert progress.following(acknowledged) == sent + 1
    progress.change(ProgressState.PROBE)
    assert progress.following(acknowledged) == acknowledged + 1


@given(st.lists(st.tuples(st.sampled_from("wsc"), st.integers(1, 3)), max_size=20))
@settings(max_examples=50)
def test_what_waits_for_the_disk_comes_in_order_and_once(steps: list[tuple[str, int]]) -> None:
    queue, waiting, ticket, durable = DurableQueue[int](), list[int](), 0, 0
    for what, count in steps:
        if what == "w":
            ticket += count
            queue.add(ticket, ticket)
            waiting.append(ticket)
        elif what == "s":
            durable = min(ticket, durable + count)
            assert list(queue.stored(durable)) == [each for each in waiting if each <= durable]
            waiting = [each for each in waiting if each > durable]
        else:
            queue.clear()
            waiting.clear()
