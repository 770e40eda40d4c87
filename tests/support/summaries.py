"""Summaries of selectors, made at once (a node makes them in pieces)."""

from __future__ import annotations

from collections.abc import Iterable

from matching import Conjunction
from overlay.upper_tree.summary import Summary, box_of, summarise_boxes


def summarise(conjunctions: Iterable[Conjunction], most: int) -> Summary:
    """A summary of at most `most` (at least 1) boxes."""
    pieces = summarise_boxes([box_of(one) for one in conjunctions], most)
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
