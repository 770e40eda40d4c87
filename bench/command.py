"""What the commands of benches share: options, progress, and how rows are shown.

A bench has the option `--trace` and names the share in its rows, so that the cost of traces is the
difference of two rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

SAMPLE: Final = 0.01
"""The share of events that is traced: as docs/reference/configuration.md says, it is lowered where
there are thousands of events a second."""

TRACE: Final = (SAMPLE, "share of events that the nodes trace; 0: they write no traces")
"""The option `trace` of `parser`."""

SEED: Final = (1, "of what is drawn")
"""The option `seed` of `parser`."""


def parser(about: str | None, **options: Any) -> argparse.ArgumentParser:
    """Return the parser of the command that runs, with `--json`, and an option for each of
    `options`: its default and its help.

    The default says which type the option has. One that is False makes a flag, a list takes several
    values, and a type stands for no default.
    """
    spec = sys.modules["__main__"].__spec__
    made = argparse.ArgumentParser(
        prog=f"python -m {spec.name.removesuffix('.__main__')}" if spec else None,
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name, (default, words) in options.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            made.add_argument(flag, action="store_true", help=words)
        elif isinstance(default, type):
            made.add_argument(flag, type=default, help=words)
        elif isinstance(default, list):
            shown = " ".join(map(str, default))
            kind = type(default[0])
            made.add_argument(
                flag, type=kind, nargs="*", default=default, help=f"{words} ({shown})"
            )
        else:
            made.add_argument(
                flag, type=type(default), default=default, help=f"{words} ({default})"
            )
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def show(found: Any, options: argparse.Namespace) -> None:
    """Print a row or a list of rows: as JSON, or as a line of each row."""
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for row in found if isinstance(found, list) else [found]:
        print(", ".join(f"{key}: {value}" for key, value in row.items()))


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which this share of them is."""
    found = sorted(values)
    return found[min(int(len(found) * share), len(found) - 1)]


def processor_seconds(processes: Iterable[int]) -> list[float]:
    """Return the seconds of processor time of each process so far; 0 of one that has ended."""
    found = []
    for number in processes:
        try:
            times = psutil.Process(number).cpu_times()
        except psutil.NoSuchProcess:
            found.append(0.0)
        else:
            found.append(times.user + times.system)
    return found


def run_seeds(
    options: argparse.Namespace,
    count: int,
    run: Callable[[argparse.Namespace, Path], dict[str, Any]],
    is_good: Callable[[dict[str, Any]], bool],
    at_length: Sequence[str],
) -> int:
    """Run `run` with `count` seeds from `options.seed` on, and show the reports, the keys
    `at_length` with `--json` only. Return 0 if all are good, else 1.

    Each run has a folder of its own, which is removed, or kept in `options.keep`."""
    reports = []
    for seed in range(options.seed, options.seed + count):
        options.seed = seed
        with tempfile.TemporaryDirectory(prefix="canopy-bench-") as work:
            folder = Path(work) if options.keep is None else options.keep / str(seed)
            folder.mkdir(parents=True, exist_ok=True)
            reports.append(run(options, folder))
        if not options.json:
            for name in at_length:
                reports[-1].pop(name)
    show(reports if len(reports) > 1 else reports[0], options)
    return 0 if all(map(is_good, reports)) else 1


def flags(share: float) -> list[str]:
    """Arguments of a node that traces this share of the events."""
    return ["--trace-sample", f"{share:g}"] if share else ["--no-trace"]


def group(share: float) -> dict[str, Any]:
    """The group `trace` of the configuration of a node that traces this share of the events."""
    return {"enabled": share > 0, "sample": share}


class Progress:
    """One line on standard error that says what is being done."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.width = 0

    def say(self, text: str) -> None:
        """Show what is being done, on a terminal in the place of what was said before."""
        line = f"{self.done} of {self.total}  {text}"
        if sys.stderr.isatty():
            print(f"\r{line:<{self.width}}", end="", file=sys.stderr, flush=True)
            self.width = len(line)

    def note(self, text: str) -> None:
        """Print a line that is not overwritten by the next progress."""
        end = f"\r{'':<{self.width}}\r" if self.width else ""
        print(f"{end}{text}", file=sys.stderr, flush=True)
