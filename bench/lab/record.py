"""Keeps what a bench measured: ``bench/results/NAME.json``, from which the lab's tables are made.

    python -m bench.lab.record matching -- python -m bench.matching.compare --json
    python -m bench.lab.record routing-full -- canopy sim run --load paper --nodes 200 --json

The command prints one JSON object, or a list of them: the rows. The file also has the command, the
commit (marked ``+`` where the tree differs from it), the date, the processor, the number of cores
and the load before and after (of the last minute), so that a reader knows what the figures are
worth. Rows of another command in the same file are kept: each command replaces its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "bench" / "results"


def processor() -> str:
    """The processor's name, as the system names it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit() -> str:
    """The commit that is checked out, with ``+`` behind it where the tree differs from it."""
    described = ["git", "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"]
    done = subprocess.run(described, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def measure(command: Sequence[str]) -> dict[str, Any]:
    """Run `command` and return its rows with where and when they were measured.

    Raises subprocess.CalledProcessError if it fails and ValueError if it prints no JSON."""
    before = os.getloadavg()[0]
    begun = datetime.now(UTC)
    argv = [sys.executable if word == "python" else word for word in command]
    printed = subprocess.run(argv, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    found = json.loads(printed)
    return {
        "command": " ".join(command),
        "commit": commit(),
        "date": begun.date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "rows": found if isinstance(found, list) else [found],
    }


def keep(path: Path, run: dict[str, Any]) -> None:
    """Put `run` in the place of the former one of the same command in the file at `path`."""
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    runs = [former for former in runs if former["command"] != run["command"]]
    write(path, [*runs, run])


def write(path: Path, runs: Sequence[dict[str, Any]]) -> None:
    """One row a line, so that a change of figures reads well in a diff."""
    blocks = []
    for run in runs:
        head = {key: value for key, value in run.items() if key != "rows"}
        lines = ",\n".join("   " + json.dumps(row, ensure_ascii=False) for row in run["rows"])
        text = json.dumps(head, ensure_ascii=False, indent=2).removesuffix("\n}")
        blocks.append(f'{text},\n  "rows": [\n{lines}\n  ]\n}}')
    path.parent.mkdir(exist_ok=True)
    path.write_text("[\n" + ",\n".join(blocks) + "\n]\n", encoding="utf-8")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.lab.record` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.lab.record",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="the file: bench/results/NAME.json")
    parser.add_argument("command", nargs="+", help="what to run, behind --")
    options = parser.parse_args(args)
    keep(RESULTS / f"{options.name}.json", measure(options.command))
    print(f"bench/results/{options.name}.json; now: python -m bench.lab.tables", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
