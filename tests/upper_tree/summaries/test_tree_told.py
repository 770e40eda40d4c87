"""C5: nobody is believed beyond its term, and everybody who was told is known or waited out."""

from __future__ import annotations

from overlay.machine import Peer
from overlay.upper_tree.invalidation_table import InvalidationTable

A, B, C = (Peer(name, f"{name}:1") for name in "abc")


def believers(told: InvalidationTable, attribute: str, now: float) -> list[str]:
    return [belief.peer.id for belief in told.believers(attribute, now)]


def test_believers_are_those_told_within_the_term() -> None:
    told = InvalidationTable(term=10.0)
    told.tell("x", A, now=0.0)
    told.tell("x", B, now=6.0, digest=7)
    told.tell("y", C, now=6.0)
    assert believers(told, "x", now=7.0) == ["a", "b"]
    (belief,) = told.believers("x", now=11.0)
    assert (belief.peer, belief.until, belief.digest) == (B, 16.0, 7)


def test_a_recalled_node_believes_no_more() -> None:
    told = InvalidationTable(term=10.0)
    told.tell("x", A, now=0.0)
    told.recalled("x", "a", told.number)
    told.recalled("x", "b", told.number)  # never told
    assert believers(told, "x", now=1.0) == []


def test_an_old_recall_does_not_end_what_was_told_since() -> None:
    told = InvalidationTable(term=10.0)
    told.tell("x", A, now=0.0)
    recall = told.number
    told.tell("x", A, now=1.0, digest=7)
    told.recalled("x", "a", recall)
    assert believers(told, "x", now=2.0) == ["a"]


def test_a_full_table_makes_registrations_wait_instead_of_forgetting() -> None:
    told = InvalidationTable(term=10.0, capacity=2)
    told.tell("x", A, now=0.0)
    told.tell("y", B, now=1.0)
    assert told.blind_until == 0.0
    told.tell("z", C, now=2.0)  # pushes (x, a) out while a still believes it
    assert believers(told, "x", now=3.0) == []
    assert told.blind_until == 10.0


def test_what_is_over_needs_no_room() -> None:
    told = InvalidationTable(term=10.0, capacity=1)
    told.tell("x", A, now=0.0)
    told.tell("x", B, now=10.5)
    assert told.blind_until == 0.0
    assert believers(told, "x", now=11.0) == ["b"]


def test_a_belief_that_is_told_again_for_less_lasts_as_long_as_before() -> None:
    """What the new word takes the place of may still be believed until the new one arrives."""
    told = InvalidationTable(term=10.0)
    told.tell("x", A, now=0.0)
    told.tell("x", A, now=1.0, term=3.0, digest=7)
    assert [(b.until, b.digest) for b in told.believers("x", now=2.0)] == [(10.0, 7)]
