"""What `bench.node.regions` makes of what it has measured (no nodes run)."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from types import SimpleNamespace
from typing import Any

from bench.node.regions import EACH, TwoRegions, quantile

EVENTS = range(10, 20)


def measured(**changed: int) -> tuple[TwoRegions, list[Any]]:
    """Each event takes 2 ms inside and 80 across, but for what a test changes."""
    run = TwoRegions(True, Namespace(events=len(EVENTS), rate=5.0, size=1_000))
    recorders = [
        SimpleNamespace(
            region=region,
            twice=changed.get("twice", 0) if name == "0" else 0,
            took={
                number: (
                    ("east", "west")[number % 2],
                    0.002 if ("east", "west")[number % 2] == region else 0.08,
                )
                for number in range(30)
                if not (name == "0" and number == changed.get("missing"))
            },
        )
        for name, region in run.region.items()
    ]
    return run, recorders


def test_copies_are_the_bytes_between_regions_by_those_of_the_payloads() -> None:
    run, recorders = measured()
    row = run._report(recorders, EVENTS, passed=25_000, quiet=5_000)
    assert (row["crossings"], row["ratio"]) == (2.0, 1.0)
    assert (row["delivered"], row["expected"], row["twice"]) == (100, 100, 0)
    assert (row["inside_p50"], row["across_p99"]) == (2.0, 80.0)


def test_what_is_missing_or_comes_twice_shows() -> None:
    run, recorders = measured(missing=12, twice=3)
    row = run._report(recorders, EVENTS, passed=0, quiet=0)
    assert (row["delivered"], row["expected"], row["twice"]) == (99, 100, 3)
    assert quantile([], 0.5) is None


def test_only_what_passes_between_the_regions_is_counted() -> None:
    run, _ = measured()
    run.proxy = SimpleNamespace(  # type: ignore[assignment]
        passed=Counter({("0", "1"): 7, ("0", str(EACH)): 10, (str(EACH), "0"): 100, ("", ""): 9})
    )
    assert run._between() == 110
