"""Compile every kernel, or read it back from disk, by running each once on something small.

A kernel is compiled when it is first called; that takes seconds, and would be in the middle of a
match. numba keeps the result beside the source (or in its cache folder), for this kind of CPU.
"""

from __future__ import annotations

from matching.build import attr
from matching.engine.batch import Batches
from matching.engine.engine import Engine
from matching.engine.layout import BLOCK


def warm_up() -> None:
    """Build, search, overflow, split, take out."""
    conjunctions = [
        attr("x").between(number % 97, number % 97 + 5).conjunctions[0] for number in range(BLOCK)
    ]
    engine = Engine(conjunctions)
    engine.add_many(list(enumerate(conjunctions)))
    for number, conjunction in enumerate(conjunctions):
        engine.add(BLOCK + number, conjunction)
    engine.match({"x": 1})
    Batches(engine).find([{"x": 1}])
    engine.remove(0)
