"""How long a silence has to last (P3, P4): measured, bounded, forgotten by halves."""

from __future__ import annotations

import pytest

from overlay.chord.cluster.heartbeat import ElectionTimeout
from overlay.chord.cluster.messages import ClusterHeartbeat
from overlay.chord.constants import TIMEOUT_HALF_LIFE
from overlay.machine import ProtocolError
from tests.support.rings import grown


def test_patience_grows_with_what_was_long_and_shrinks_again() -> None:
    election_timeout = ElectionTimeout(least=1.0, most=8.0, heartbeat=0.25)
    assert election_timeout.seconds(0.0) == 1.0
    election_timeout.note(0.02, 1.0, 1.0)
    assert election_timeout.seconds(1.0) == 1.0
    election_timeout.note(1.5, 2.0, 2.0)
    assert election_timeout.seconds(2.0) == pytest.approx(3.5)
    election_timeout.note(0.02, 3.5, 2.0 + TIMEOUT_HALF_LIFE)
    assert election_timeout.seconds(2.0 + TIMEOUT_HALF_LIFE) == pytest.approx(2.0)
    assert election_timeout.seconds(2.0 + 4 * TIMEOUT_HALF_LIFE) == 1.0


def test_an_outage_is_no_measure_of_the_network() -> None:
    election_timeout = ElectionTimeout(least=1.0, most=8.0, heartbeat=0.25)
    for sent in range(240):  # answered at once when the majority is back after a minute
        election_timeout.note(60.0 - sent * 0.25, 1.0, 100.0)
    assert election_timeout.seconds(100.0) == pytest.approx(2.5)


def test_patience_follows_a_network_that_has_become_slow() -> None:
    election_timeout = ElectionTimeout(least=1.0, most=8.0, heartbeat=0.25)
    asked = []
    for at in range(4):
        asked.append(election_timeout.seconds(100.0 + at))
        election_timeout.note(20.0, asked[-1], 100.0 + at)
    assert asked == sorted(asked)
    assert election_timeout.seconds(104.0) == 8.0


def test_a_new_primary_begins_with_the_patience_of_the_one_before() -> None:
    election_timeout = ElectionTimeout(least=1.0, most=8.0, heartbeat=0.25)
    election_timeout.start_from(5.0, 3.0)
    assert election_timeout.seconds(3.0) == pytest.approx(5.0)


@pytest.mark.parametrize("term", [-1.0, 1e9, float("nan"), float("inf")])
def test_a_patience_that_makes_no_sense_is_refused(term: float) -> None:
    world = grown(1, nodes=3, clusters=1)
    (node,) = world.primaries()
    cluster = node.clusters.cluster
    assert cluster is not None
    voter = world.member(cluster.members()[1].id)
    with pytest.raises(ProtocolError):
        voter.clusters.heartbeat.on_heartbeat(node.peer, ClusterHeartbeat(cluster.key, 1, 99, term))
