"""All experiments of the five papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.papers.cbdlo import CBDLO
from bench.papers.experiment import Experiment, Paper
from bench.papers.minos import MINOS
from bench.papers.phoenix import PHOENIX
from bench.papers.tensor import TENSOR
from bench.papers.venus import VENUS

PAPERS: Final[tuple[Paper, ...]] = (CBDLO, PHOENIX, VENUS, MINOS, TENSOR)


def experiments() -> list[Experiment]:
    """Those of all papers, in order."""
    return [each for paper in PAPERS for each in paper.experiments]


def chosen(words: Sequence[str]) -> list[Experiment]:
    """The experiments that are named, by their name or their paper's; all, if there are no words.
    Raises LookupError with the word that names none."""
    found = []
    for word in words:
        named = [e for e in experiments() if word.lower() in (e.name, e.paper.lower())]
        if not named:
            raise LookupError(word)
        found += named
    return [e for e in experiments() if not words or e in found]
