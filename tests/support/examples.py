"""How many random inputs and seeds the tests try: a part of them in the suite, all and more with
``make examples``."""

from __future__ import annotations

import os

SHARE = float(os.environ.get("CANOPY_EXAMPLES_SHARE", "0.25"))
"""Of the examples that a test of Hypothesis asks for, those that are drawn."""

LEAST_EXAMPLES = 25
"""That are drawn of each test that asks for so many."""

LEAST_SEEDS = 2
"""That are run of each test that has so many."""


def examples(asked: int) -> int:
    """How many examples are drawn where a test asks for `asked`."""
    return max(min(asked, LEAST_EXAMPLES), round(asked * SHARE))


def seeds(count: int, first: int = 0) -> range:
    """The seeds from `first` that are run where a test has `count`: all from a share of 1 on."""
    chosen = max(min(count, LEAST_SEEDS), min(count, round(count * SHARE)))
    return range(first, first + chosen)


def overlay_seeds(count: int) -> range:
    """The seeds from 1 that are run of a whole overlay, which takes seconds: one in the suite
    (`make soak` draws others without end), all from a share of 1 on."""
    return range(1, 1 + max(1, min(count, int(count * SHARE))))
