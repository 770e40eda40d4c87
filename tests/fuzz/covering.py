"""Which lines the inputs reach: `python -m tests.fuzz.covering [TARGET…] --inputs N`.

Counted are the lines of those functions of ours that a parser enters at all; what it never reaches
in them is where the inputs say nothing. Tracing takes a hundred times as long as parsing, so a few
thousand inputs are a sample of a run of millions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

from tests.fuzz.mutating import mutated
from tests.fuzz.targets import TARGETS, Target

ROOT = str(Path(__file__).parents[2])
OURS = tuple(f"{ROOT}/{folder}/" for folder in ("canopy", "overlay", "matching", "streams"))


def reached_by(target: Target, inputs: int, seed: int) -> dict[CodeType, set[int]]:
    """By function the lines that so many inputs have reached, of those of ours."""
    found: dict[CodeType, set[int]] = {}

    def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "line":
            found[frame.f_code].add(frame.f_lineno)
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        found.setdefault(frame.f_code, set())
        return line

    seeds = target.seeds()
    sys.settrace(call)
    try:
        for data in (*seeds, *islice(mutated(seeds, Random(seed)), inputs)):
            target.run(data)
    finally:
        sys.settrace(None)
    return found


def counted(found: dict[CodeType, set[int]]) -> tuple[int, int]:
    """How many lines were reached, and how many there are in these functions."""
    there = {
        (code.co_filename, line)
        for code in found
        for _, _, line in code.co_lines()
        if line is not None and line != code.co_firstlineno
    }
    reached = {(code.co_filename, line) for code, lines in found.items() for line in lines}
    return len(reached & there), len(there)


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz.covering", description=__doc__)
    arguments.add_argument("targets", nargs="*", metavar="TARGET")
    arguments.add_argument("--inputs", type=int, default=3_000, help="for each target")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    print("| parser | lines reached | lines of the functions it enters | |\n|---|---|---|---|")
    for name in given.targets or TARGETS:
        reached, there = counted(reached_by(TARGETS[name], given.inputs, given.seed))
        print(f"| {name} | {reached} | {there} | {100 * reached // max(there, 1)} % |", flush=True)


if __name__ == "__main__":
    main()
