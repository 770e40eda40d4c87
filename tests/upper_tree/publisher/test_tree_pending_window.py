"""What may be pending at a publisher follows what hosts accept."""

from __future__ import annotations

import pytest

from overlay.upper_tree.publisher.constants import (
    RATE_HALF_LIFE,
    SHORTEST_FOR,
    WINDOW_LEAST,
    WINDOW_SEARCHING,
    WINDOW_SECONDS,
)
from overlay.upper_tree.publisher.pending_store import PendingWindow

MOST = 20_000


def accept(window: PendingWindow, rate: float, took: float, since: float, seconds: float) -> float:
    """Hosts accept so many pairs per second; when that ends."""
    for step in range(round(seconds * 100)):
        window.accepted(round(rate / 100), took, since + (step + 1) / 100)
    return since + seconds


@pytest.mark.parametrize("rate", [100.0, 10_000.0, 40_000.0, 1_000_000.0])
def test_as_much_may_be_pending_as_is_accepted_within_the_window(rate: float) -> None:
    window = PendingWindow(MOST, 0.0)
    accept(window, rate, 0.001, 0.0, 2.0)
    expected = min(max(rate * WINDOW_SECONDS, WINDOW_LEAST), MOST)
    assert window.pairs == pytest.approx(expected, rel=0.05)


def test_it_narrows_where_hosts_have_become_slow_and_no_further_than_its_least() -> None:
    window = PendingWindow(MOST, 0.0)
    now = accept(window, 40_000, 0.001, 0.0, 1.0)
    wide = window.pairs
    now = accept(window, 8_000, 0.2, now, 4 * RATE_HALF_LIFE)
    assert window.pairs == pytest.approx(wide / 5, rel=0.1)
    accept(window, 100, 2.0, now, 10 * RATE_HALF_LIFE)
    assert window.pairs == WINDOW_LEAST


def test_where_acceptances_are_long_under_way_as_much_more_may_be() -> None:
    window = PendingWindow(MOST, 0.0)
    now = accept(window, 10_000, 0.4, 0.0, 1.0)
    assert window.pairs == pytest.approx(10_000 * (WINDOW_SECONDS + 0.8), rel=0.05)
    now = accept(window, 10_000, 0.01, now, 1.0)
    near = window.pairs
    assert near == pytest.approx(10_000 * (WINDOW_SECONDS + 0.02), rel=0.05)
    accept(window, 10_000, 0.4, now, 2 * SHORTEST_FOR + 1.0)
    assert window.pairs > 2 * near, "the route has become longer"


def test_while_trees_are_looked_for_a_search_of_a_second_may_be_pending() -> None:
    window = PendingWindow(MOST, 0.0)
    assert window.most(True) == WINDOW_SEARCHING
    assert window.most(False) == WINDOW_LEAST
    accept(window, 40_000, 0.001, 0.0, 1.0)
    assert window.most(True) == window.most(False) > WINDOW_SEARCHING


def test_a_bound_below_the_least_holds() -> None:
    window = PendingWindow(10, 0.0)
    assert window.pairs == 10
    accept(window, 10_000, 0.01, 0.0, 1.0)
    assert window.pairs == 10
