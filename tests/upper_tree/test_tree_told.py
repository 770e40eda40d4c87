"""C5: nobody is believed beyond its term, and everybody who was told is known or waited out."""

from __future__ import annotations

from overlay.machine import Peer
from overlay.upper_tree.told import ToldTable

A, B, C = (Peer(name, f"{name}:1") for name in "abc")


def test_believers_are_those_told_within_the_term() -> None:
    told = ToldTable(term=10.0)
    told.tell("x", A, now=0.0)
    told.tell("x", B, now=6.0)
    told.tell("y", C, now=6.0)
    assert [p.id for p in told.believers("x", now=7.0)] == ["a", "b"]
    assert [p.id for p in told.believers("x", now=11.0)] == ["b"]
    assert told.safe_at("x", now=7.0) == 16.0


def test_a_recalled_node_believes_no_more() -> None:
    told = ToldTable(term=10.0)
    told.tell("x", A, now=0.0)
    told.recalled("x", "a")
    assert told.believers("x", now=1.0) == ()
    assert told.safe_at("x", now=1.0) == 1.0


def test_a_full_table_makes_planting_wait_instead_of_forgetting() -> None:
    told = ToldTable(term=10.0, capacity=2)
    told.tell("x", A, now=0.0)
    told.tell("y", B, now=1.0)
    told.tell("z", C, now=2.0)  # pushes (x, a) out while a still believes it
    assert told.believers("x", now=3.0) == ()
    assert told.safe_at("x", now=3.0) == 10.0


def test_what_remains_of_the_terms_goes_along_with_an_arc() -> None:
    told = ToldTable(term=10.0)
    told.tell("x", A, now=0.0)
    assert list(told.entries(now=4.0)) == [("x", A, 6.0)]
    heir = ToldTable(term=10.0)
    heir.tell("x", A, now=100.0, term=6.0)
    assert heir.safe_at("x", now=100.0) == 106.0
