"""P7: the predicted time, its guards, and the choice of a host by it."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay.machine import Peer
from overlay.upper_tree.host_load import HostLoad
from overlay.upper_tree.partition import ranked
from overlay.upper_tree.publisher.constants import RANKINGS_WATCHED
from overlay.upper_tree.publisher.load_prediction import (
    PREDICTED_MOST,
    REPORT_FOR,
    LoadPredictor,
    predicted_queue,
    predicted_time,
)
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from tests.support.world import peer

A, B, C = HOSTS = (peer("a"), peer("b"), peer("c"))
RATES = st.floats(0, 1e9)
PACES = st.builds(HostLoad, RATES, RATES, st.integers(0, 1_000_000))
NOW = 100.0


def choice(**words: HostLoad | None) -> LoadPredictor:
    """What hosts said, all at NOW."""
    found = LoadPredictor()
    for node, pace in words.items():
        found.reported(node, pace, NOW)
    return found


# --- the formula ---


def test_the_formula_is_the_papers() -> None:
    """q(t) = q(t') + (a - b)(t - t') and T = (q + 1) / 2b, by hand."""
    pace = HostLoad(300.0, 200.0, 50)
    assert predicted_queue(pace, 0.0) == 50
    assert predicted_queue(pace, 0.5) == 100
    assert predicted_time(100, 200.0) == pytest.approx(101 / 400)


def test_a_queue_that_shrinks_ends_at_nothing() -> None:
    assert predicted_queue(HostLoad(0.0, 100.0, 10), 1.0) == 0


def test_of_a_host_whose_rate_is_not_known_its_own_report_counts() -> None:
    assert predicted_queue(HostLoad(500.0, 0.0, 7), 3.0) == 7


@given(PACES, st.floats(0, 1e6))
def test_nothing_that_can_be_said_gives_no_number(pace: HostLoad, passed: float) -> None:
    queue = predicted_queue(pace, passed)
    assert queue >= 0
    assert math.isfinite(queue)
    if pace.service > 1e-3:
        assert 0 < predicted_time(queue, pace.service) < math.inf


# --- the choice ---


def test_where_nothing_is_known_the_first_is_taken() -> None:
    assert choice().best(HOSTS, NOW) == A
    assert choice(b=None, c=None).best(HOSTS, NOW) == A


def test_a_host_that_is_behind_is_passed_over() -> None:
    found = choice(a=HostLoad(100.0, 100.0, 20))
    assert found.best(HOSTS, NOW) == B
    assert found.best((A,), NOW) == A


def test_where_all_are_behind_the_smallest_time_wins_not_the_smallest_queue() -> None:
    found = choice(
        a=HostLoad(0.0, 10.0, 5), b=HostLoad(0.0, 1_000.0, 50), c=HostLoad(0.0, 100.0, 9)
    )
    assert found.best(HOSTS, NOW) == B  # 0.3 s, 0.026 s, 0.05 s


def test_the_first_at_which_nothing_waits_is_taken_even_if_another_is_faster() -> None:
    found = choice(a=HostLoad(0.0, 100.0, 2), b=HostLoad(0.0, 1e6, 2), c=HostLoad(0.0, 1e6, 10**6))
    assert found.best((A, B, C), NOW) == B
    assert found.best((A, B, C), NOW + 0.1) == A


def test_a_host_without_a_rate_is_taken_for_as_fast_as_the_others() -> None:
    found = choice(a=HostLoad(0.0, 0.0, 5), b=HostLoad(0.0, 100.0, 9), c=HostLoad(0.0, 100.0, 20))
    assert found.best(HOSTS, NOW) == A
    found = choice(a=HostLoad(0.0, 0.0, 5), b=HostLoad(0.0, 0.0, 4), c=HostLoad(0.0, 0.0, 6))
    assert found.best(HOSTS, NOW) == B


def test_what_was_sent_since_counts() -> None:
    """Else a burst would all go to the host that said last that it has little to do."""
    found = choice(a=HostLoad(0.0, 100.0, 5), b=HostLoad(0.0, 100.0, 8), c=HostLoad(0.0, 100.0, 11))
    taken = []
    for _ in range(6):
        host = found.best(HOSTS, NOW)
        found.sent(host.id, 3, NOW)
        taken.append(host.id)
    assert taken == ["a", "a", "b", "a", "b", "c"]


def test_what_was_sent_is_done_after_its_time() -> None:
    found = choice(a=HostLoad(0.0, 100.0, 5))
    found.reported("a", None, NOW)  # nothing waits any more, but its rate is known
    assert found.best(HOSTS, NOW) == A
    found.sent("a", 10, NOW)
    assert found.best(HOSTS, NOW) == B
    assert found.best(HOSTS, NOW + 0.11) == B, "other publishers visit it as well"
    assert found.best(HOSTS, NOW + 0.21) == A


def test_what_was_sent_after_the_accepted_events_still_waits() -> None:
    found = choice(a=HostLoad(0.0, 100.0, 5))
    found.sent("a", 4, NOW + 1.0)
    found.sent("a", 6, NOW + 1.01)
    found.reported("a", None, NOW + 1.05, NOW + 1.0)
    assert found.best(HOSTS, NOW + 1.05) == B
    assert found.best(HOSTS, NOW + 1.05 + 5 / 50 + 0.01) == A, "5 of 6 are done at half its rate"
    found.reported("a", None, NOW + 1.06, NOW + 1.01)
    assert found.best(HOSTS, NOW + 1.06) == A


def test_a_host_that_was_never_behind_is_taken_for_as_fast_as_another() -> None:
    """Else one that has not reported yet would be sent a whole burst."""
    found = choice(c=HostLoad(0.0, 100.0, 5))
    found.sent("a", 10, NOW)
    assert found.best(HOSTS, NOW) == B
    assert found.best(HOSTS, NOW + 0.21) == A


def test_one_publisher_uses_as_many_hosts_as_its_events_need() -> None:
    """Half of a host's time each: three quarters of all the time that three hosts have need two."""
    found = choice(a=HostLoad(0.0, 100.0, 0))
    found.reported("a", None, NOW)
    sent: Counter[str] = Counter()
    for step in range(1, 1_001):  # 75 events per second
        now = NOW + step / 75
        found.update(now)
        host = found.best(HOSTS, now)
        found.sent(host.id, 1, now)
        sent[host.id] += 1
    assert 600 < sent["a"] < 750
    assert 250 < sent["b"] < 400
    assert not sent["c"]


def test_a_host_that_seemed_to_fall_behind_for_ever_is_tried_again() -> None:
    found = choice(a=HostLoad(1e6, 100.0, 50))
    assert found.best(HOSTS, NOW + 0.9 * REPORT_FOR) == B
    assert found.best(HOSTS, NOW + 1.1 * REPORT_FOR) == A


def test_nothing_changes_any_more_once_nothing_waits() -> None:
    found = choice(a=HostLoad(0.0, 100.0, 5))
    assert found.update(NOW)
    assert found.update(NOW + 0.1)  # it was behind until now
    assert not found.update(NOW + 0.2)


def test_it_is_bounded() -> None:
    found = LoadPredictor()
    for number in range(PREDICTED_MOST + 10):
        found.reported(f"h{number}", HostLoad(1.0, 1.0, 3), NOW)
    assert len(found) == PREDICTED_MOST
    found.update(NOW)  # no forgotten host is looked for
    for number in range(PREDICTED_MOST):
        found.reported(f"idle{number}", None, NOW)
    assert len(found) == PREDICTED_MOST


@given(
    st.lists(
        st.tuples(st.sampled_from(["word", "idle", "sent", "time"]), st.sampled_from("abc"), PACES),
        max_size=30,
    )
)
def test_there_is_always_one_of_those_asked_for(steps: list[tuple[str, str, HostLoad]]) -> None:
    found, now = LoadPredictor(), NOW
    for what, node, pace in steps:
        if what == "word":
            found.reported(node, pace, now)
        elif what == "idle":
            found.reported(node, None, now)
        elif what == "sent":
            found.sent(node, pace.queue, now)
        else:
            now += 0.3
        found.update(now)
        assert found.best(HOSTS, now) in HOSTS


# --- among replicas ---


def replicas(by_time: bool = True) -> ReplicaSelector:
    return ReplicaSelector("me", 3.0, by_time)


def test_a_replica_that_is_behind_is_passed_over_until_it_has_caught_up() -> None:
    found = replicas()
    first, second, _ = ranked("me", HOSTS)
    assert found.choose("x", HOSTS) == first
    found.accepted(first.id, 0.1, NOW, HostLoad(0.0, 100.0, 30))
    before = found.changes
    found.expire(NOW)
    assert found.changes > before  # whoever keeps a choice asks again
    assert found.choose("x", HOSTS) == second
    found.expire(NOW + 1.0)
    assert found.choose("x", HOSTS) == first


def test_who_keeps_a_choice_asks_again_only_where_it_is_another_one() -> None:
    found = replicas()
    first, second, _ = ranked("me", HOSTS)
    found.choose("x", HOSTS)
    found.accepted(second.id, 0.1, NOW, HostLoad(0.0, 100.0, 30))
    before = found.changes
    for passed in (0.0, 0.1, 0.2):
        found.expire(NOW + passed)
    assert found.changes == before, "who is behind was not chosen"
    found.accepted(first.id, 0.1, NOW, HostLoad(0.0, 100.0, 30))
    found.expire(NOW + 0.2)
    assert found.changes == before + 1


def test_of_many_sets_of_hosts_each_is_chosen_from_again() -> None:
    found = replicas()
    others = [(*HOSTS, Peer(f"h{number}", "")) for number in range(RANKINGS_WATCHED + 1)]
    best = [ranked("me", hosts)[:2] for hosts in others]
    assert [found.choose("x", hosts) for hosts in others] == [first for first, _ in best]
    behind = best[0][0]
    found.accepted(behind.id, 0.1, NOW, HostLoad(0.0, 100.0, 30))
    found.expire(NOW)
    wanted = [second if first == behind else first for first, second in best]
    assert [found.choose("x", hosts) for hosts in others] == wanted


def test_a_silent_replica_is_not_chosen_however_little_waits_there() -> None:
    found = replicas()
    first, second, third = ranked("me", HOSTS)
    found.accepted(second.id, 0.1, NOW, HostLoad(0.0, 100.0, 30))
    found.accepted(third.id, 0.1, NOW, HostLoad(0.0, 100.0, 20))
    found.suspect_silent(first.id, NOW)
    found.expire(NOW)
    assert found.choose("x", HOSTS) == third


def test_by_hash_it_is_always_the_same() -> None:
    found = replicas(by_time=False)
    first, *_ = ranked("me", HOSTS)
    found.accepted(first.id, 0.1, NOW, HostLoad(0.0, 100.0, 30))
    found.expire(NOW)
    assert found.choose("x", HOSTS) == first


@pytest.mark.parametrize(("processors", "hosts"), [(1, 1), (2, 1), (4, 2), (8, 3)])
def test_a_host_that_is_behind_is_not_passed_over_for_its_own_processors(
    processors: int, hosts: int
) -> None:
    """Hosts of the publisher's machine count with one for every two processors."""
    here = [Peer(host.id, f"10.0.0.1:{number}") for number, host in enumerate(HOSTS)]
    found = ReplicaSelector("me", 3.0, machine="10.0.0.1", processors=processors)
    order = ranked("me", here)
    for waiting, host in zip((30, 20, 10), order, strict=True):
        found.accepted(host.id, 0.1, NOW, HostLoad(0.0, 100.0, waiting))
    found.expire(NOW)
    assert found.choose("x", here) == order[hosts - 1], "the one that is the least behind of these"
    elsewhere = Peer("e", "10.0.0.2:1")
    assert found.choose("x", [*here, elsewhere]) == elsewhere, "another machine is free"
    found.suspect_silent(order[0].id, NOW)
    assert found.choose("x", here) != order[0], "a silent host is passed over at once"
