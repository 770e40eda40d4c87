"""Makes the tables of docs/lab from the rows in ``bench/results``.

    python -m bench.lab.tables           # write them again
    python -m bench.lab.tables --check   # exit code 1 and a diff where a page differs from its file

A table in a page stands behind a comment that says what it is made of:

    <!-- table: matching.json | size=1000000 | workload: a million | us_per_event .1f: µs -->

the file; conditions on the rows, all of which hold (``key=value``, or ``key=one or another``); and
the columns in order:

    us_per_event .1f: µs                          a key, a format as in Python's format language
                                                  and the header
    ours.cpu_s/theirs.cpu_s .2f: CPU              the quotient of two values
    {delivered:,} of {expected:,}: delivered      a text with several values

A key is a path with dots where a row is nested, numbers for places in lists. A value that a row has
not makes an empty cell. Keys that begin with ``run.`` are those of the run that the row belongs to
(``run.commit``, ``run.load``). Rows are taken as the command printed them; these words change that:

    each=series.0.curves    the rows are the elements of this list, or the items of this dictionary
                            as ``name`` and ``value``, each with the keys of the row around it
    by=size,kind | across=system
                            rows with the same values of `by` become one, in which each row stands
                            under its value of `across`: ``zenoh.p50_ms``
    last=system,rate        of the rows with the same values of these keys, the last one alone;
                            those with the same value of the first key stand side by side
    sum=rows,faults         … in which these are the sums of all of them
    best                    of the runs those of the full form, else of the fast form, else all
    transposed              rows become columns: a line for each column of the comment
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.command import parser
from bench.lab.record import RESULTS, ROOT

PAGES: Final = ROOT / "docs" / "lab"
MARK: Final = re.compile(r"^<!-- table: (?P<spec>.*?) -->\n(?P<table>(?:\|.*\n)*)", re.M)
COLUMN: Final = re.compile(r"(?P<key>[\w./%-]+)(?: (?P<format>[^\s:]+))?: ?(?P<header>.*)")
TEXT: Final = re.compile(r"(?P<key>(?:[^{}:]*\{[^{}]*\})+[^{}:]*): ?(?P<header>.*)")
PLACE: Final = re.compile(r"\{(?P<key>[^{}:]+)(?::(?P<format>[^{}]*))?\}")

WORDS: Final = ("each", "last", "sum", "by", "across")
"""What may be asked for with `=`, beside conditions on rows."""

FORMS: Final = (None, "fast", "full")
"""Of a run of a paper's experiment (`bench.papers`), the one that counts most last."""

Row = dict[str, Any]


class TableError(Exception):
    """A table's comment cannot be followed: it says where and why."""


class NoRowsError(TableError):
    """There is nothing that the table could show."""


class Column(NamedTuple):
    """One column: which value of a row, how it is written, and what stands above it."""

    key: str
    format: str
    header: str

    def text(self, row: Row) -> str:
        """The cell of this column for a row."""
        if "{" not in self.key:
            return cell(value(row, self.key), self.format)
        if any(value(row, place["key"]) is None for place in PLACE.finditer(self.key)):
            return ""
        return PLACE.sub(lambda m: cell(value(row, m["key"]), m["format"] or ""), self.key)


class Spec(NamedTuple):
    """What a table's comment asks for."""

    file: str
    columns: list[Column]
    wanted: dict[str, str]
    words: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Read a comment. Raises TableError."""
        name, *parts = (part.strip() for part in text.split("|"))
        found = cls(name, [], {}, {})
        for part in parts:
            key, is_given, is_ = part.partition("=")
            if column := TEXT.fullmatch(part) or COLUMN.fullmatch(part):
                how = column.groupdict().get("format") or ""
                found.columns.append(Column(column["key"], how, column["header"]))
            elif part in ("best", "transposed") or key in WORDS:
                found.words[key] = is_
            elif is_given:
                found.wanted[key] = is_
            else:
                raise TableError(
                    f"neither a column (key: header) nor a condition (key=value): {part}"
                )
        return found

    def wants(self, row: Row) -> bool:
        """Whether a row meets all conditions."""
        return all(str(value(row, key)) in is_.split(" or ") for key, is_ in self.wanted.items())


def value(row: Any, key: str) -> Any:
    """What the row has under a path of keys with dots between them, or the quotient of two such
    values; None if it has not."""
    if isinstance(row, dict) and key in row:
        return row[key]
    if "/" in key:
        above, below = (value(row, part) for part in key.split("/"))
        return above / below if above is not None and below else None
    for part in key.split("."):
        if isinstance(row, list):
            row = row[int(part)] if part.isdigit() and int(part) < len(row) else None
        else:
            row = row.get(part) if isinstance(row, dict) else None
    return row


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of all runs in a file, each with its run under ``run``."""
    for run in json.loads(path.read_text(encoding="utf-8")):
        for row in run["rows"]:
            yield {**row, "run": {key: item for key, item in run.items() if key != "rows"}}


def elements(row: Row, path: str) -> list[Row]:
    """The rows inside a row: elements of a list, or items of a dictionary."""
    found = value(row, path)
    if isinstance(found, dict):
        return [{**row, "name": name, "value": item} for name, item in found.items()]
    return [{**row, **element} for element in found or ()]


def newest(rows: Sequence[Row], keys: Sequence[str], sums: Sequence[str]) -> list[Row]:
    """The last of all rows with the same values of `keys`, in which `sums` are of all these rows
    that have them. Those with the same value of the first key are side by side."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        same = tuple(value(row, key) for key in keys)
        former = found.get(same, {})
        both = {key: former[key] + row.get(key, 0) for key in sums if key in former}
        found[same] = {**row, **both}
    firsts = list(dict.fromkeys(same[0] for same in found))
    return [row for first in firsts for same, row in found.items() if same[0] == first]


def joined(rows: Sequence[Row], by: Sequence[str], across: str) -> list[Row]:
    """One row for all rows with the same values of `by`, with each under its value of `across`."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        same = tuple(value(row, key) for key in by)
        one = found.setdefault(same, {key: row[key] for key in ("run", *by) if key in row})
        one[str(value(row, across))] = row
    return list(found.values())


def cell(found: Any, how: str) -> str:
    """A cell's text: `found` by the format `how`; strings as they are, None as nothing."""
    if found is None:
        return ""
    if isinstance(found, str):
        return found
    return format(found, how) if how else str(found)


def table(text: str, results: Path) -> str:
    """The lines of the table that a comment asks for. Raises TableError."""
    spec = Spec.parse(text)
    path = results / spec.file
    if not path.exists():
        raise TableError(f"there is no bench/results/{spec.file}")
    return lines_of(spec, list(rows_of(path)))


def lines_of(spec: Spec, rows: list[Row]) -> str:
    """The lines of a table of these rows. Raises NoRowsError."""
    if "each" in spec.words:
        rows = [inner for row in rows for inner in elements(row, spec.words["each"])]
    rows = [row for row in rows if spec.wants(row)]
    if not rows:
        raise NoRowsError(f"{spec.file} has no row with {spec.wanted}")
    if "best" in spec.words:
        most = max(FORMS.index(row["run"].get("form")) for row in rows)
        rows = [row for row in rows if row["run"].get("form") == FORMS[most]]
    if "last" in spec.words:
        keys, sums = (spec.words.get(word, "").split(",") for word in ("last", "sum"))
        rows = newest(rows, keys, sums)
    if "across" in spec.words:
        rows = joined(rows, spec.words.get("by", "").split(","), spec.words["across"])
    lines = [[column.header for column in spec.columns]]
    lines += [[column.text(row) for column in spec.columns] for row in rows]
    if "transposed" in spec.words:
        lines = [list(line) for line in zip(*lines, strict=True)]
    rule = "|" + "---|" * len(lines[0])
    texts = ("|" + "".join(f" {text} |" if text else " |" for text in line) for line in lines)
    return "\n".join([next(texts), rule, *texts, ""])


def page(text: str, results: Path = RESULTS) -> str:
    """The page with all of its tables made again. Raises TableError."""
    return MARK.sub(lambda m: f"<!-- table: {m['spec']} -->\n{table(m['spec'], results)}", text)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.lab.tables` and return its exit code."""
    options = parser(__doc__, check=(False, "write nothing, show what differs")).parse_args(args)
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
