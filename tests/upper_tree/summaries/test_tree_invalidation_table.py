"""C5: no answer is trusted beyond its term; each cache holder is known or waited out."""

from __future__ import annotations

from overlay.machine import Peer
from overlay.upper_tree.summaries.cache_holders import InvalidationTable

A, B, C = (Peer(name, f"{name}:1") for name in "abc")


def holders(table: InvalidationTable, attribute: str, now: float) -> list[str]:
    return [copy.peer.id for copy in table.holders(attribute, now)]


def test_cache_holders_are_those_answered_within_the_term() -> None:
    table = InvalidationTable()
    table.grant("x", A, now=0.0, term=10.0)
    table.grant("x", B, now=6.0, term=10.0, digest=7)
    table.grant("y", C, now=6.0, term=10.0)
    assert holders(table, "x", now=7.0) == ["a", "b"]
    (copy,) = table.holders("x", now=11.0)
    assert (copy.peer, copy.until, copy.digest) == (B, 16.0, 7)


def test_a_recalled_node_trusts_no_more() -> None:
    table = InvalidationTable()
    table.grant("x", A, now=0.0, term=10.0)
    table.invalidated("x", "a", table.number)
    table.invalidated("x", "b", table.number)  # never sent
    assert holders(table, "x", now=1.0) == []


def test_an_old_recall_does_not_end_what_was_answered_since() -> None:
    table = InvalidationTable()
    table.grant("x", A, now=0.0, term=10.0)
    recall = table.number
    table.grant("x", A, now=1.0, term=10.0, digest=7)
    table.invalidated("x", "a", recall)
    assert holders(table, "x", now=2.0) == ["a"]


def test_a_full_table_makes_registrations_wait_instead_of_forgetting() -> None:
    table = InvalidationTable(capacity=2)
    table.grant("x", A, now=0.0, term=10.0)
    table.grant("y", B, now=1.0, term=10.0)
    assert table.unknown_until == 0.0
    table.grant("z", C, now=2.0, term=10.0)  # pushes (x, a) out while a still trusts it
    assert holders(table, "x", now=3.0) == []
    assert table.unknown_until == 10.0


def test_what_is_over_needs_no_room() -> None:
    table = InvalidationTable(capacity=1)
    table.grant("x", A, now=0.0, term=10.0)
    table.grant("x", B, now=10.5, term=10.0)
    assert table.unknown_until == 0.0
    assert holders(table, "x", now=11.0) == ["b"]


def test_an_answer_that_is_given_again_for_less_lasts_as_long_as_before() -> None:
    """What the new word takes the place of may still be trusted until the new one arrives."""
    table = InvalidationTable()
    table.grant("x", A, now=0.0, term=10.0)
    table.grant("x", A, now=1.0, term=3.0, digest=7)
    assert [(b.until, b.digest) for b in table.holders("x", now=2.0)] == [(10.0, 7)]
