"""A node says which event went another way to a node before, where the way changes."""

from __future__ import annotations

from overlay.upper_tree.delivery.fan_out import LastSent

SOURCE = ("pub", 1)


def test_the_last_event_is_named_where_the_way_changes() -> None:
    last = LastSent(1.0)
    assert last.sends(SOURCE, "n", 1, 3, "", 0.0) == 0
    assert last.sends(SOURCE, "n", 4, 4, "", 0.1) == 0
    assert last.sends(SOURCE, "n", 6, 6, "d", 0.2) == 4
    assert last.sends(SOURCE, "n", 7, 7, "d", 0.3) == 0
    assert last.sends(SOURCE, "n", 8, 9, "", 0.4) == 7
    assert last.sends(SOURCE, "m", 10, 10, "d", 0.4) == 0
    assert last.sends(("pub", 2), "n", 10, 10, "d", 0.4) == 0
    assert last.sends(SOURCE, "n", 5, 5, "d", 0.4) == 0, "an event that is sent again"


def test_what_has_arrived_long_ago_is_forgotten() -> None:
    last = LastSent(1.0)
    for number in range(1, 100):
        last.sends((f"p{number}", 1), "n", 1, 1, "", float(number))
    assert len(last) == 2
    assert last.sends(("p99", 1), "n", 2, 2, "d", 100.0) == 1
    assert last.sends(("p99", 1), "m", 3, 3, "d", 150.0) == 0
    assert len(last) == 1


def test_nothing_is_remembered_if_nothing_waits() -> None:
    last = LastSent(0.0)
    assert last.sends(SOURCE, "n", 1, 1, "", 0.0) == last.sends(SOURCE, "n", 2, 2, "d", 0.0) == 0
    assert len(last) == 0
