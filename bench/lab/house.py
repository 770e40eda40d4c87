"""How the house is built, in figures: its size, and what makes it hard to read.

    python -m bench.lab.house                # print the table
    python -m bench.lab.house --names        # … with what is counted, by name
    python -m bench.lab.house --write        # keep the figures: bench/results/house.json
    python -m bench.lab.house --debts        # write again what is known to hurt (tests/debts.json)

The file has two runs, the first that was kept and the newest; docs/lab/house.md shows both, with
how each figure is found. The ways are profiled in the simulator (`bench.lab.ways`), all else is
read from the syntax trees.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from bench.command import parser
from bench.lab import record, structure, ways
from bench.lab.record import ROOT
from bench.lab.structure import Module

FILE: Final = ROOT / "bench" / "results" / "house.json"
DEBTS: Final = ROOT / "tests" / "debts.json"

PRODUCT: Final = ("overlay", "matching", "streams", "canopy", "node.py")
CONSENSUS: Final = ("overlay/consensus.py", "overlay/chord/cluster/")

Names = Sequence[str]


class House:
    """The modules, read once."""

    @cached_property
    def product(self) -> list[Module]:
        """All that a user gets."""
        return structure.read(ROOT, *PRODUCT)

    @cached_property
    def streams(self) -> list[Module]:
        """The modules of `streams/`."""
        return [module for module in self.product if module.path.startswith("streams/")]

    @cached_property
    def streams_and_consensus(self) -> list[Module]:
        """With those of the cluster's log."""
        found = [module for module in self.product if module.path.startswith(CONSENSUS)]
        return [*self.streams, *found]

    @cached_property
    def tests(self) -> list[Module]:
        """All tests, with what supports them."""
        return structure.read(ROOT, "tests", "harness")

    @cached_property
    def ways(self) -> dict[str, ways.Way]:
        """The ways, by name."""
        return {way.name: way for way in ways.walked()}


class Measure(NamedTuple):
    """A figure: what it is, what it is to become, how it is found."""

    what: str
    goal: str
    how: str
    find: Callable[[House], Names | int]


def each(found: dict[str, int]) -> Names:
    """Names with their counts."""
    return [f"{name} {count}" for name, count in found.items()]


def pacing(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Numbers of pacing in the modules among these that speak with leaders."""
    return structure.pacing(structure.speakers(modules))


def sizes(modules: Sequence[Module]) -> int:
    """Lines of all of these."""
    return sum(module.lines for module in modules)


def way(name: str, goal_files: str = "", goal_functions: str = "") -> tuple[Measure, Measure]:
    """The two figures of a way."""
    how = f"`python -m bench.lab.ways {name}`"
    return (
        Measure(f"{name}: files", goal_files, how, lambda house: house.ways[name].files),
        Measure(
            f"{name}: functions",
            goal_functions,
            how,
            lambda house: [".".join(key) for key in sorted(house.ways[name].calls)],
        ),
    )


MEASURES: Final = (
    Measure(
        "streams and consensus: lines",
        "≤ 18,000",
        "lines of the Python files in streams/ and in what holds the cluster's log",
        lambda house: sizes(house.streams_and_consensus),
    ),
    Measure(
        "product: lines",
        "≤ 125,000",
        "lines of the Python files in overlay/, matching/, streams/, canopy/, node.py",
        lambda house: sizes(house.product),
    ),
    Measure(
        "product: files",
        "≤ 650",
        "of the same",
        lambda house: len(house.product),
    ),
    Measure(
        "locator protocols",
        "1",
        "protocols in streams/ with a method `mistaken`, or named … Locator or … Leaders …",
        lambda house: structure.locators(house.streams),
    ),
    Measure(
        "pacing of conversations with leaders: numbers",
        "≤ 10",
        "numbers named at the top of modules that import the locator or streams/access, of these, "
        "and of what they import of their own folder, whose docstring begins with the seconds or "
        "times to wait, to repeat or to give up",
        lambda house: [
            f"{module}.{name}" for module, names in pacing(house.streams).items() for name in names
        ],
    ),
    Measure(
        "pacing of conversations with leaders: files",
        "1",
        "of the same",
        lambda house: list(pacing(house.streams)),
    ),
    Measure(
        "pacing in streams: numbers",
        "",
        "the same in all of streams/",
        lambda house: [
            f"{module}.{name}"
            for module, names in structure.pacing(house.streams).items()
            for name in names
        ],
    ),
    Measure(
        "classes with more than 16 fields, streams and consensus",
        "0",
        "assigned to `self` or annotated; classes with a constructor of their own",
        lambda house: each(structure.wide_classes(house.streams_and_consensus)),
    ),
    Measure(
        "classes with more than 16 fields, product",
        "",
        "the same",
        lambda house: each(structure.wide_classes(house.product)),
    ),
    Measure(
        "constructors with more than 10 parameters, product",
        "",
        "`self` not counted",
        lambda house: each(structure.wide_constructors(house.product)),
    ),
    Measure(
        "listeners of a committed chunk",
        "1",
        "methods `on_…` in streams/ that handle `ShardCommitted`",
        lambda house: structure.handlers(house.streams, "ShardCommitted"),
    ),
    Measure(
        "listeners of a lost link in streams",
        "≤ 2",
        "methods `on_…` in streams/ that handle `LinkDown`",
        lambda house: structure.handlers(house.streams, "LinkDown"),
    ),
    Measure(
        "methods for a lost link in streams",
        "",
        "methods in streams/ with `link_down` in their name",
        lambda house: [
            f"{module.name}.{node.name}"
            for module in house.streams
            for node in ast.walk(module.tree)
            if isinstance(node, ast.FunctionDef) and "link_down" in node.name
        ],
    ),
    *way("append-next", "≤ 30", "≤ 130"),
    *way("append-first"),
    *way("reading-begins", "≤ 40", "≤ 170"),
    *way("event-known", "≤ 45", "≤ 200"),
    *way("event-first"),
    *way("subscription"),
    Measure(
        "private test worlds",
        "≤ 5",
        "modules of tests/ and harness/ with a class … World that do not import the simulator's",
        lambda house: list(structure.worlds(house.tests)),
    ),
    Measure(
        "private test worlds: lines",
        "",
        "of the same modules",
        lambda house: sum(structure.worlds(house.tests).values()),
    ),
    Measure(
        "names of two public classes, streams and overlay",
        "0",
        "classes at the top of modules",
        lambda house: each(
            structure.twins(
                [m for m in house.product if m.path.startswith(("streams/", "overlay/"))]
            )
        ),
    ),
    Measure(
        "names of two public classes, product",
        "",
        "the same",
        lambda house: each(structure.twins(house.product)),
    ),
    Measure(
        "modules named by an activity",
        "",
        "names that end in -ing, in the product",
        lambda house: structure.gerunds(house.product),
    ),
    Measure(
        "files under 60 lines",
        "",
        "in the product, manuals not counted",
        lambda house: structure.small(house.product),
    ),
    Measure(
        "files of more than 700 lines",
        "",
        "in the product",
        lambda house: each(structure.long_files(house.product)),
    ),
    Measure(
        "functions of more than 70 lines",
        "",
        "in the product",
        lambda house: each(structure.long_functions(house.product)),
    ),
    Measure(
        "folders of more than 20 modules",
        "",
        "in the product",
        lambda house: each(structure.full_folders(house.product)),
    ),
    Measure(
        "argument packs",
        "0",
        "arguments `*(a, b)` of calls in the product",
        lambda house: structure.packs(house.product),
    ),
    Measure(
        "`# fmt: skip`",
        "",
        "in the product",
        lambda house: sum(module.text.count("# fmt: skip") for module in house.product),
    ),
    Measure(
        "manuals that name what is not there, or leave something out",
        "0",
        "docstrings of folders in the product, against their modules",
        lambda house: list(structure.manual_faults(house.product)),
    ),
)


def amount(found: Names | int) -> int:
    """A figure: a number, or how many names there are."""
    return found if isinstance(found, int) else len(found)


def rows(found: dict[str, Names | int], when: str) -> list[dict[str, Any]]:
    """A row for each figure."""
    return [
        {"when": when, "what": m.what, "value": amount(found[m.what]), "goal": m.goal, "how": m.how}
        for m in MEASURES
    ]


def write(found: dict[str, Names | int]) -> None:
    """Keep the figures as the newest, and as the first if there are none."""
    runs = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    where = record.place("python -m bench.lab.house --write")
    first = runs[0] if runs else {**where, "rows": rows(found, "first")}
    record.write(FILE, [first, {**where, "rows": rows(found, "newest")}])


def write_debts(modules: list[Module]) -> None:
    """Write what is known to hurt, one a line. It may only become less: a test holds it."""
    debts = structure.debts(modules)
    text = json.dumps(
        {rule: dict(sorted(known.items())) for rule, known in debts.items()}, indent=1
    )
    DEBTS.write_text(text + "\n", encoding="utf-8")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.lab.house` and return its exit code."""
    options = parser(
        __doc__,
        names=(False, "print what is counted, by name"),
        write=(False, "keep the figures in the file"),
        debts=(False, "write tests/debts.json again"),
    ).parse_args(args)
    house = House()
    if options.debts:
        write_debts(house.product)
        return 0
    # The ways first: beside all the trees each collection of garbage takes a second.
    in_order = sorted(MEASURES, key=lambda measure: "bench.lab.ways" not in measure.how)
    found = {measure.what: measure.find(house) for measure in in_order}
    for measure in MEASURES:
        value = found[measure.what]
        print(f"{amount(value):>9,}  {measure.goal:>10}  {measure.what}")
        for name in value if options.names and not isinstance(value, int) else ():
            print(f"{'':>23}{name}")
    if options.write:
        write(found)
        print("now: python -m bench.lab.tables", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
