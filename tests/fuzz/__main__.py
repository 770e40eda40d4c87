"""`python -m tests.fuzz [TARGET…] --seconds N`: fuzz each parser in a process of its own.

Inputs are drawn by chance near those of a corpus. One in `TRACED` is traced, and joins the corpus
(build/fuzz/TARGET) if it reaches lines that none had reached; a later run begins with that corpus.
An input that fails is kept under build/fuzz/failed. Prints a row of JSON for each target, with
`--json` a list of them at the end: `lines` were reached of `of` in the functions that the parser
enters; exit code 1 if one failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.coverage import Coverage
from tests.fuzz.mutating import mutated
from tests.fuzz.targets import TARGETS, Target

FOLDER = Path("build/fuzz")

TRACED = 400
"""Tracing takes a hundred times as long as parsing."""


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    arguments.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    arguments.add_argument("--seconds", type=float, default=60.0, help="for each target")
    arguments.add_argument("--seed", type=int, default=0, help="of the inputs")
    arguments.add_argument("--json", action="store_true", help="print one list, for the record")
    arguments.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    unknown = set(given.targets) - set(TARGETS)
    if unknown:
        arguments.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(TARGETS)}")
    if given.in_process:
        name = given.targets[0]
        found = fuzz(name, TARGETS[name], given.seconds, given.seed)
        print(json.dumps(found), flush=True)
        return found["failed"]
    rows = []
    for name in given.targets or TARGETS:
        command = [sys.executable, "-m", "tests.fuzz", name, "--in-process"]
        command += ["--seconds", str(given.seconds), "--seed", str(given.seed)]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        rows += found or [{"target": name, "failed": 1, "exit_code": done.returncode}]
        print(json.dumps(rows[-1]), flush=True, file=sys.stderr if given.json else sys.stdout)
    if given.json:
        print(json.dumps(rows, indent=1))
    return int(any(row["failed"] for row in rows))


def fuzz(name: str, target: Target, seconds: float, seed: int, traced: int = TRACED) -> Any:
    """Fuzz one target in this process. Returns its row."""
    folder, coverage = FOLDER / name, Coverage()
    for data in target.seeds():
        keep(folder, data)
    known = [path.read_bytes() for path in sorted(folder.iterdir())]
    for data in known:
        coverage.adds(target.run, data)
    count, failed, began = 0, 0, time.monotonic()
    for data in mutated(known, Random(seed)):
        if time.monotonic() > began + seconds:
            break
        count += 1
        try:
            if count % traced:
                target.run(data)
            elif coverage.adds(target.run, data):
                known.append(data)
                keep(folder, data)
        except Exception as error:
            path, failed = keep(FOLDER / "failed", data, f"{name}-"), 1
            said = f"{name}: {type(error).__name__}: {error}; the input is in {path}"
            print(said, file=sys.stderr)
            break
    lines, of = coverage.counted()
    return {
        "target": name,
        "inputs": count,
        "failed": failed,
        "seconds": round(time.monotonic() - began, 1),
        "lines": lines,
        "of": of,
        "percent": round(100 * lines / max(of, 1)),
        "corpus": len(known),
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def keep(folder: Path, data: bytes, prefix: str = "") -> Path:
    """Write an input to a file that is named after it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{prefix}{hashlib.sha256(data).hexdigest()[:16]}"
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    sys.exit(main())
