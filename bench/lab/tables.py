"""Makes the tables of docs/lab from the rows in ``bench/results``.

    python -m bench.lab.tables           # write them anew
    python -m bench.lab.tables --check   # exit code 1 and a diff where a page differs from its file

A table in a page stands behind a comment that says what it is made of:

    <!-- table: matching.json | size=1000000 | workload: a million | us_per_event .1f: µs -->

the file; conditions on the rows (``key=value``, all of which hold); and the columns in order, each
a row's key (a path with dots where the row is nested), a format as in Python's format language, and
the header. A value that a row has not is an empty cell. Keys that begin with ``run.`` are those of
the run that the row belongs to (``run.commit``, ``run.load``).
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.lab.record import RESULTS, ROOT

PAGES: Final = ROOT / "docs" / "lab"
MARK: Final = re.compile(r"^<!-- table: (?P<spec>.*?) -->\n(?P<table>(?:\|.*\n)*)", re.M)
COLUMN: Final = re.compile(r"(?P<key>[\w.%]+)(?: (?P<format>[^\s:]+))?: ?(?P<header>.*)")


class TableError(Exception):
    """A table's comment cannot be followed: it says where and why."""


class Column(NamedTuple):
    """One column: which value of a row, how it is written, and what stands above it."""

    key: str
    format: str
    header: str


def value(row: Any, key: str) -> Any:
    """What the row has under a path of keys with dots between them; None if it has not."""
    if isinstance(row, dict) and key in row:
        return row[key]
    for part in key.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    return row


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of all runs in a file, each with its run under ``run``."""
    for run in json.loads(path.read_text(encoding="utf-8")):
        for row in run["rows"]:
            yield {**row, "run": {key: item for key, item in run.items() if key != "rows"}}


def cell(found: Any, how: str) -> str:
    """A cell's text: `found` by the format `how`; strings as they are, None as nothing."""
    if found is None:
        return ""
    if isinstance(found, str):
        return found
    return format(found, how) if how else str(found)


def table(spec: str, results: Path) -> str:
    """The lines of the table that a comment asks for. Raises TableError."""
    name, *parts = (part.strip() for part in re.split(r"(?<!\\)\|", spec))
    path = results / name
    if not path.exists():
        raise TableError(f"there is no bench/results/{name}")
    columns: list[Column] = []
    wanted: dict[str, str] = {}
    for part in parts:
        if found := COLUMN.fullmatch(part):
            columns.append(Column(found["key"], found["format"] or "", found["header"]))
        elif "=" in part:
            key, _, is_ = part.partition("=")
            wanted[key] = is_
        else:
            raise TableError(f"neither a column (key: header) nor a condition (key=value): {part}")
    rows = [
        row
        for row in rows_of(path)
        if all(str(value(row, key)) == is_ for key, is_ in wanted.items())
    ]
    if not rows:
        raise TableError(f"bench/results/{name} has no row with {wanted}")
    lines = [[column.header for column in columns]]
    lines += [[cell(value(row, c.key), c.format) for c in columns] for row in rows]
    rule = "|" + "---|" * len(columns)
    texts = ("|" + "".join(f" {text} |" if text else " |" for text in line) for line in lines)
    return "\n".join([next(texts), rule, *texts, ""])


def page(text: str, results: Path = RESULTS) -> str:
    """The page with all of its tables made anew. Raises TableError."""
    return MARK.sub(lambda m: f"<!-- table: {m['spec']} -->\n{table(m['spec'], results)}", text)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.lab.tables` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.lab.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="write nothing, show what differs")
    options = parser.parse_args(args)
    differs = False
    for path in sorted(PAGES.glob("*.md")):
        before = path.read_text(encoding="utf-8")
        try:
            after = page(before)
        except TableError as error:
            print(f"{path.relative_to(ROOT)}: {error}", file=sys.stderr)
            return 2
        if after != before and options.check:
            names = (str(path.relative_to(ROOT)), "bench/results")
            lines = difflib.unified_diff(
                before.splitlines(), after.splitlines(), *names, lineterm=""
            )
            print("\n".join(lines))
            differs = True
        elif after != before:
            path.write_text(after, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: written", file=sys.stderr)
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
