"""Keeps what a bench measured: ``bench/results/NAME.json``, from which the lab's tables are made.

    python -m bench.lab.record matching -- python -m bench.matching.compare --json
    python -m bench.lab.record health --without looks -- python -m bench.experiments health --json
    python -m bench.lab.record --again backlog guard

The command prints one JSON object, or a list of them: the rows. The file also has the command, the
commit (marked ``+`` where the tree differs from it), the date, the processor, the number of cores
and the load before and after (of the last minute), so that a reader knows what the figures are
worth. Rows of another command in the same file are kept: each command replaces its own, and rows
that are marked as transcribed. `--without` leaves keys out of the rows, at any depth: what is long
and in no table. `--again` runs all commands of the files that are named.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "bench" / "results"

ENDING: Final = 30.0
"""Seconds that a bench may take to end its nodes when it is interrupted."""


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
    """The commit that is checked out, with ``+`` behind it where the tree differs from it in more
    than rows and the pages that show them, which a run of several benches changes by itself."""
    name = _git("describe", "--always", "--abbrev=10", "--exclude=*")
    measured = ":!bench/results", ":!docs/lab"
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *measured)
    return f"{name}+" if name and changed else name or "unknown"


def _git(*words: str) -> str:
    """What git prints, without white space around it; nothing where this is no clone."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def without(found: Any, keys: Sequence[str]) -> Any:
    """What was found, without these keys of dictionaries at any depth."""
    if isinstance(found, dict):
        return {key: without(value, keys) for key, value in found.items() if key not in keys}
    return [without(one, keys) for one in found] if isinstance(found, list) else found


def measure(command: Sequence[str], left_out: Sequence[str] = ()) -> dict[str, Any]:
    """Run `command` and return its rows, without the keys `left_out`, with where and when they were
    measured. Its programs keep the bytecode that they compile, as installed ones do: else eight
    nodes would be measured with eight compilations of the overlay.

    Raises ValueError if it prints no JSON. An exit code other than 0 is kept with the rows: a bench
    that has found a loss says so with both."""
    where = place(shlex.join(command))
    known = {"python": [sys.executable], "canopy": [sys.executable, "-m", "canopy"]}
    argv = [*known.get(command[0], command[:1]), *command[1:]]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            output, _ = process.communicate()
        except BaseException:
            _end(process)
            raise
    found = without(json.loads(output), left_out)
    where["load"][1] = round(os.getloadavg()[0], 1)
    return {
        **where,
        **({"without": list(left_out)} if left_out else {}),
        **({"exit_code": process.returncode} if process.returncode else {}),
        "rows": found if isinstance(found, list) else [found],
    }


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt a bench, so that it ends what it has started; kill it if it does not."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(ENDING)
    except subprocess.TimeoutExpired:
        process.kill()


def place(command: str) -> dict[str, Any]:
    """Where and when a command runs: the head of its rows. The load is that before and after."""
    load = round(os.getloadavg()[0], 1)
    return {
        "command": command,
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": [load, load],
    }


def keep(path: Path, run: dict[str, Any]) -> None:
    """Put `run` in the place of the former one of the same command in the file at `path`, and of
    what was transcribed."""
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    runs = [
        former
        for former in runs
        if former["command"] != run["command"] and "transcribed" not in former
    ]
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
    parser.add_argument("name", nargs="+", help="the file: bench/results/NAME.json")
    parser.add_argument("--again", action="store_true", help="the commands of these files")
    parser.add_argument("--without", action="append", default=[], metavar="KEY", help="leave out")
    given = list(sys.argv[1:] if args is None else args)
    place = given.index("--") if "--" in given else len(given)
    options, command = parser.parse_args(given[:place]), given[place + 1 :]
    if options.again == bool(command) or (command and len(options.name) > 1):
        parser.error("either one file and, behind --, its command, or --again and files")
    for name in options.name:
        path = RESULTS / f"{name}.json"
        wanted = [(command, options.without)]
        if options.again:
            runs = json.loads(path.read_text(encoding="utf-8"))
            wanted = [(shlex.split(run["command"]), run.get("without", [])) for run in runs]
        for words, left_out in wanted:
            print(f"{path.name}: {shlex.join(words)}", file=sys.stderr, flush=True)
            keep(path, measure(words, left_out))
    print("now: python -m bench.lab.tables", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
