"""`python -m tests.fuzz [TARGET…] --seconds N`: fuzz each parser in a process of its own.

With atheris (`pip install atheris`) the inputs are led by coverage; without it they are drawn by
chance. What is new is kept under build/fuzz/TARGET, an input that fails under build/fuzz/failed.
Prints a row of JSON for each target, with `--json` a list of them at the end; exit code 1 if one
failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import resource
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.fuzz.mutating import mutated

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

FOLDER = Path("build/fuzz")
MEMORY_MB = 2048
"""Of a process that fuzzes, with the interpreter and the coverage's tables."""


def main() -> int:
    by_coverage = "--in-process" in sys.argv and find_spec("atheris") is not None
    targets = instrumented() if by_coverage else plain()
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    arguments.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(targets))
    arguments.add_argument("--seconds", type=float, default=60.0, help="for each target")
    arguments.add_argument("--seed", type=int, default=0, help="of inputs drawn by chance")
    arguments.add_argument("--json", action="store_true", help="print one list, for the record")
    arguments.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    unknown = set(given.targets) - set(targets)
    if unknown:
        arguments.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(targets)}")
    if given.in_process:
        name = given.targets[0]
        return fuzz(name, targets[name], given.seconds, given.seed, by_coverage)
    failed, rows = 0, []
    for name in given.targets or targets:
        command = [sys.executable, "-m", "tests.fuzz", name, "--in-process"]
        command += ["--seconds", str(given.seconds), "--seed", str(given.seed)]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        failed += bool(done.returncode)
        rows += [json.loads(line) for line in done.stdout.splitlines()]
        print(done.stdout, end="", flush=True, file=sys.stderr if given.json else sys.stdout)
    if given.json:
        print(json.dumps(rows, indent=1))
    return int(bool(failed))


def plain() -> dict[str, Target]:
    from tests.fuzz.targets import TARGETS

    return TARGETS


def instrumented() -> dict[str, Target]:
    """The targets, whose modules of ours say which lines they reach."""
    import atheris  # type: ignore[import-not-found]

    with atheris.instrument_imports(include=["canopy", "matching", "overlay", "streams"]):
        return plain()


def fuzz(name: str, target: Target, seconds: float, seed: int, by_coverage: bool) -> int:
    """Fuzz one target in this process, and print its row."""
    run, seeds = target
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    for data in seeds():
        keep(folder, data)
    if by_coverage:
        return with_coverage(name, target, seconds, folder)
    known = [path.read_bytes() for path in folder.iterdir()]
    count, until = 0, time.monotonic() + seconds
    for data in mutated(known, Random(seed)):
        if time.monotonic() > until:
            break
        count += 1
        try:
            run(data)
        except Exception as error:
            path = keep(FOLDER / "failed", data, name)
            print(
                f"{name}: {type(error).__name__}: {error}; the input is in {path}", file=sys.stderr
            )
            return 1
    row(name, count, seconds, "chance")
    return 0


def with_coverage(name: str, target: Target, seconds: float, folder: Path) -> int:
    import atheris

    count, began = 0, math.inf
    run = target.run

    def once(data: bytes) -> None:
        nonlocal count, began
        began = min(began, time.monotonic())
        count += 1
        run(data)
        if time.monotonic() > began + seconds:  # atheris itself ends without a word of how many
            row(name, count, time.monotonic() - began, "atheris")
            os._exit(0)

    (FOLDER / "failed").mkdir(parents=True, exist_ok=True)
    options = [f"-rss_limit_mb={MEMORY_MB}", "-timeout=10", "-verbosity=0", "-max_len=65536"]
    options += [f"-artifact_prefix={FOLDER}/failed/{name}-"]
    atheris.Setup([name, *options, str(folder)], once)
    atheris.Fuzz()
    return 0


def row(name: str, count: int, seconds: float, by: str) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    found = {"target": name, "inputs": count, "seconds": round(seconds, 1), "memory_mb": memory}
    print(json.dumps(found | {"by": by}), flush=True)


def keep(folder: Path, data: bytes, name: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}{'-' if name else ''}{hashlib.sha256(data).hexdigest()[:16]}"
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    sys.exit(main())
