"""Recovery: the verdict sees what it is to see; victims are those that are meant."""

from __future__ import annotations

import msgspec
import pytest

from bench.recovery.simulated import Trial
from harness.recovery.plan import TrialError, check_arc, names, plan
from harness.recovery.verdict import (
    DeliveredEvent,
    PublishedEvent,
    RecoveryVerdict,
    Row,
    ToldGap,
    is_good,
    judge,
    summary,
)
from overlay.chord.keys import attribute_key, in_arc
from overlay.info import ClusterInfo

KILL = 100.0


def judged(
    *arrivals: tuple[float, str, str],
    needing: tuple[str, ...] = ("a", "b"),
    gaps: tuple[ToldGap, ...] = (),
) -> RecoveryVerdict:
    """Events at 99, 100.5 and 101 in flow a, at 101 in flow b; `no` has no subscriber."""
    sent = {
        "1": PublishedEvent(99.0, "a", True),
        "2": PublishedEvent(100.5, "a", True),
        "3": PublishedEvent(101.0, "a", True),
        "4": PublishedEvent(101.0, "b", True),
        "no": PublishedEvent(101.0, "b", False),
    }
    return judge(sent, [DeliveredEvent(*one) for one in arrivals], KILL, needing, "b", gaps)


ALL = ((99.1, "a", "1"), (101.7, "a", "2"), (101.2, "a", "3"), (102.5, "b", "4"))


def test_times_count_from_the_kill_and_only_events_after_it() -> None:
    found = judged(*ALL)
    assert found.first_s == pytest.approx(1.2)
    assert found.all_s == found.subscribe_s == pytest.approx(2.5)
    assert found.gap_s == pytest.approx(2.1)  # of flow a, from 99.1 to 101.2
    assert found.late_until_s == pytest.approx(2.5)  # 1.5 s under way
    assert (found.lost_before, found.lost_after, found.duplicates, found.spurious) == (0, 0, 0, 0)


def test_a_flow_that_does_not_come_back_has_no_end() -> None:
    found = judged(*ALL[:3])
    assert found.first_s is not None
    assert found.all_s is None
    assert (found.lost_after, found.lost_last_s) == (1, 1.0)


def test_what_was_in_flight_is_distinguished_from_what_came_later() -> None:
    found = judged(*ALL[1:])
    assert (found.lost_before, found.lost_after) == (1, 0)
    assert found.lost_last_s == -1.0


@pytest.mark.parametrize(
    ("gap", "told"),
    [
        (ToldGap(("a",), 98.0, 100.6), 2),
        (ToldGap(("a", "b"), float("-inf"), 103.0), 3),
        (ToldGap(("b",), 98.0, 103.0), 0),
        (ToldGap(("a",), 99.1, 100.4), 0),
    ],
)
def test_what_is_missing_is_told_by_a_gap_of_its_flow_and_time(gap: ToldGap, told: int) -> None:
    found = judged(ALL[3], gaps=(gap,))
    assert (found.lost_before, found.lost_after) == (1, 2)
    assert found.told == told


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ((103.0, "a", "1"), (1, 0)),
        ((103.0, "b", "no"), (0, 1)),
        ((103.0, "b", "3"), (0, 1)),  # another flow's event
        ((103.0, "a", "5"), (0, 1)),  # it was not published
    ],
)
def test_duplicates_and_spurious_deliveries_are_seen(
    more: tuple[float, str, str], wanted: tuple[int, int]
) -> None:
    found = judged(*ALL, more)
    assert (found.duplicates, found.spurious) == wanted
    row = {"recovered": True, **found.as_row()}
    assert not is_good(summary("primary", 500.0, [row]))


def test_a_repetition_that_did_not_recover_is_no_success() -> None:
    def row(recovered: bool) -> dict[str, object]:
        return {"recovered": recovered, **judged(*ALL).as_row()}

    assert is_good(summary("primary", 500.0, [row(True), row(True)]))
    assert not is_good(summary("primary", 500.0, [row(True), row(False)]))
    assert not is_good(summary("primary", 500.0, []))


def a_cluster(standby: str = "s", brokers: tuple[str, ...] = ("x", "y", "z")) -> ClusterInfo:
    return ClusterInfo("8" * 40, "2" * 40, 1, "p", standby, brokers, (), {})


def test_victims_and_what_needs_them() -> None:
    hosts = {"a": "y", "b": "x", "c": "y", "d": "z"}
    assert plan("primary", a_cluster(), hosts) == (("p",), ())
    assert plan("standby", a_cluster(), hosts) == (("s",), ())
    assert plan("broker", a_cluster(), hosts) == (("y",), ("a", "c"))
    assert plan("link", a_cluster(), hosts) == (("y",), ("a", "c"))
    assert plan("last-link", a_cluster(), {"a": "y", "b": "y", "c": "y"}) == (("y",), ("a", "c"))
    assert plan("cluster", a_cluster(), hosts) == (("p", "s", "x", "y", "z"), ("a", "b", "c", "d"))
    with pytest.raises(TrialError):
        plan("standby", a_cluster(standby=""), hosts)
    with pytest.raises(TrialError):
        plan("broker", a_cluster(brokers=()), hosts)


def test_flows_are_the_clusters_own() -> None:
    cluster = a_cluster()
    found = names(cluster, "flow")
    for name in (next(found), next(found)):
        assert in_arc(attribute_key(name), cluster.start, cluster.key)


def simulated(kill: str, rate: float = 200.0, nodes: int = 8, seed: int = 3) -> Row:
    return summary(kill, rate, [Trial(kill, rate, nodes, str(seed)).run()])


def test_flows_through_a_broker_that_dies_in_the_simulator_come_back() -> None:
    row = simulated("broker")
    assert is_good(row)
    (trial,) = row["trials"]
    assert trial["published"] > 1_000
    assert 0.0 < trial["first_s"] <= trial["all_s"] < 1.5
    assert trial["lost_after"] == 0


def test_around_a_link_to_a_subscriber_that_is_cut_deliveries_flow_within_a_second() -> None:
    row = simulated("last-link")
    assert is_good(row)
    (trial,) = row["trials"]
    assert 0.0 < trial["all_s"] < 1.0
    assert trial["late_until_s"] < 1.5
    assert trial["lost_before"] + trial["lost_after"] == 0


def test_a_cluster_that_has_split_is_not_hit() -> None:
    """Not all flows would need it then, and what was measured would be no recovery."""
    whole = ClusterInfo("c", "a", 1, "n0", "n1", (), (), {})
    parts = [msgspec.structs.replace(whole, key="b"), msgspec.structs.replace(whole, start="b")]
    check_arc(whole, [whole])
    with pytest.raises(TrialError, match="has split"):
        check_arc(whole, parts)


def test_a_cluster_that_dies_whole_is_replaced_and_nothing_that_follows_is_lost() -> None:
    """The trial's trees make a ring of two clusters, which does not split once more."""
    row = simulated("cluster", 300.0, 12, 2)
    assert (row["failed"], row["lost_after"], row["duplicates"]) == (0, 0, 0)
    assert 2.0 < row["first_s"]["median"] < 10.0, "until another cluster is in its place"
