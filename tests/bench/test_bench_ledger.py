"""The ledger of exact costs: what an event costs may not rise unseen."""

from __future__ import annotations

import pytest

from bench.lab import ledger

COUNTED = (
    *("one-node", "eight-one-untraced", "eight-pct1-spread-untraced"),
    *("append", "append-batch", "idle-streams"),
)
"""Those that together take a few seconds; `python -m bench.lab.ledger` counts all."""


@pytest.mark.parametrize("name", COUNTED)
def test_nothing_is_dearer_than_the_file_says(name: str) -> None:
    """Who makes a count rise writes the file again (`python -m bench.lab.ledger --write`), in the
    same commit, and says there what the event gains. And what a turn says to a peer leaves in one
    frame: each costs both nodes a turn."""
    found, _ = ledger.count(name)
    assert ledger.risen(found, ledger.read()[name]) == {}
    if name.startswith("eight-"):
        assert found["frames"] == found["writes"]


def test_a_count_that_rises_by_more_than_its_tolerance_is_named() -> None:
    kept = dict.fromkeys(ledger.COUNTS, 100.0)
    assert ledger.risen(dict.fromkeys(ledger.COUNTS, 102.9), kept) == {}
    found = {**kept, "calls": 103.2, "blocks": 900.0}
    assert ledger.risen(found, kept) == {"calls": (100.0, 103.2)}
    assert "frames" in ledger.risen(kept, {}), "a workload that the file has not"


def test_the_file_has_every_workload_and_every_count() -> None:
    kept = ledger.read()
    assert list(kept) == list(ledger.WORKLOADS)
    assert all(list(counts) == list(ledger.COUNTS) for counts in kept.values())
