"""The mutation check: are faults found that are planted on purpose?

    python -m bench.mutations.check                  # all faults, as a table
    python -m bench.mutations.check --only walk      # those whose name has this word
    python -m bench.mutations.check --only walk,map  # … or that
    python -m bench.mutations.check --json           # rows for docs/lab/mutations.md

A check that never fails proves nothing. Each fault of `bench.mutations.planted` is planted alone,
in a process of its own. If it names a test, that test must pass without the fault and fail with it.
Otherwise the soak runs from seed 1 until it is red: the fault counts as found if that takes at most
`MOST` seeds and the same seed is green without the fault (a seed that is red anyway is passed over
and reported; a hang finds nothing).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from bench.mutations.planted import FAULTS, PlantedFault
from bench.mutations.planting import VARIABLE

ROOT = Path(__file__).resolve().parents[2]

MOST = 500
"""Seeds within which the soak has to find a fault."""

TIMEOUT = 3_600.0
"""Seconds for one fault: 500 seeds take some 350 on a free core, and several times that on one that
is shared. More is a hang."""


class Catch(msgspec.Struct, frozen=True):
    """What came of a planted fault."""

    fault: PlantedFault
    seed: int | None  # of the soak: the first that was red; they are counted from 1
    by: str  # the checker or test that found it, and the first words of its message
    seconds: float

    @property
    def found(self) -> bool:
        """Whether the soak or the named test found it."""
        return self.seed is not None or bool(self.fault.test and self.by)

    @property
    def where(self) -> str:
        """What found it, as the table has it."""
        if not self.found:
            return "not found"
        return self.fault.test.rpartition("::")[2] or f"soak, seed {self.seed}"


def soak(fault: str, first: int, seeds: int) -> tuple[int | None, str]:
    """(first bad seed or None, what was wrong) of a soak with `fault` planted ("": none)."""
    entry = ["-m", "bench.mutations.run", fault] if fault else ["-m", "canopy"]
    command = [*entry, "sim", "soak", "--seed", str(first), "--seeds", str(seeds)]
    try:
        done = subprocess.run(
            [sys.executable, *command, "--json", "--quiet", "--shrink", "0"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return None, f"not found within {TIMEOUT:.0f} s"
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(done.stderr)
    bad = json.loads(done.stdout)["bad"]
    said = done.stderr.splitlines()
    return (bad[0], said[1] if len(said) > 1 else "") if bad else (None, "not found")


def failure(test: str, fault: str) -> str:
    """How a test, or a fixture of it, fails with `fault` planted ("": none): its error's line; ""
    if it passes.

    Raises RuntimeError if the test cannot be run."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line", test],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env={**os.environ, VARIABLE: fault},
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{test}: {done.stdout[-2_000:]}{done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition(" - ")[2] or failed[0] if failed else ""


def check(fault: PlantedFault, most: int, red: dict[int, bool]) -> Catch:
    """Plant one fault and look for it. `red`: what is known of seeds without it, learnt here."""
    began = time.monotonic()
    seed, first = None, 1
    if fault.test:
        by = "" if failure(fault.test, "") else failure(fault.test, fault.name)
        return Catch(fault, None, by, time.monotonic() - began)
    while first <= most:
        seed, by = soak(fault.name, first, most + 1 - first)
        if seed is None:
            break
        if seed not in red:
            red[seed] = soak("", seed, 1)[0] is not None
        if not red[seed]:
            return Catch(fault, seed, by, time.monotonic() - began)
        first = seed + 1
    return Catch(fault, None, "", time.monotonic() - began)


def row(catch: Catch) -> dict[str, Any]:
    """As bench/results/mutations.json has it."""
    return {
        "fault": catch.fault.name,
        "what": catch.fault.what[:1].lower() + catch.fault.what[1:],
        "breaks": catch.fault.breaks,
        "found_by": catch.where,
        "seconds": round(catch.seconds, 1),
    }


def table(catches: Iterable[Catch]) -> list[str]:
    """The result as lines of a Markdown table."""
    lines = ["| planted fault | breaks | found by | message |", "|---|---|---|---|"]
    for catch in catches:
        found = catch.where if catch.found else f"**{catch.where}**"
        message = shorten(catch.by).replace("|", "\\|")
        lines.append(f"| {catch.fault.name} | {catch.fault.breaks} | {found} | {message} |")
    return lines


def shorten(text: str) -> str:
    """The beginning of a message."""
    return text if len(text) <= 90 else text[:87] + "…"


def main() -> int:
    """The command `python -m bench.mutations.check`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", default="", help="faults whose name has one of these words")
    parser.add_argument("--seeds", type=int, default=MOST, help="seeds to try for each")
    parser.add_argument("--json", action="store_true", help="rows for bench.lab.record")
    arguments = parser.parse_args()
    catches = []
    red: dict[int, bool] = {}
    for fault in FAULTS.values():
        if any(word in fault.name for word in arguments.only.split(",")):
            catch = check(fault, arguments.seeds, red)
            catches.append(catch)
            print(f"{catch.seconds:6.1f} s  {fault.name}: {catch.where}", file=sys.stderr)
    missed = sum(not catch.found for catch in catches)
    if arguments.json:
        print(json.dumps([row(catch) for catch in catches], ensure_ascii=False))
    else:
        print("\n".join(table(catches)))
        print(f"\n{len(catches) - missed} of {len(catches)} found")
    if any(red.values()):
        seeds = ", ".join(str(seed) for seed in sorted(red) if red[seed])
        print(f"red without any fault: {seeds}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
