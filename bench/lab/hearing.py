"""Makes the tables of docs/design/who-hears-what.md from a node as it is built.

    python -m bench.lab.hearing           # write them anew
    python -m bench.lab.hearing --check   # exit code 1 where the page differs from the code

A node of the simulator is asked for its machines, in their order, for the one handler of each
message, the listeners of each event, in the order in which they are called, and the method that
carries out each command. The modules that make a message or event are found in their text.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from bench.lab.record import ROOT
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from node import Node
from overlay.machine import Message, Timer

PAGE: Final = ROOT / "docs" / "design" / "who-hears-what.md"
MARK: Final = "<!-- python -m bench.lab.hearing -->\n"
"""What stands below it on the page is made by this command."""

FOLDERS: Final = ("overlay", "streams", "canopy/wire")
LAYERS: Final = ("links", "lower_random", "chord", "upper_tree", "streams")


def built() -> Node:
    """A node with keys, which has all machines that there are."""
    world = World(1, WireCodec(), build=Node)
    world.roles = {}
    found = world.drivers[world.add_node()].node
    assert isinstance(found, Node)
    return found


def unwrapped(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The function or method that a handler stands for."""
    while isinstance(handler, partial):
        handler = handler.func
    return handler


def name_of(handler: Callable[..., Any]) -> str:
    """The class (that of the object, which may have inherited the method) and the method."""
    handler = unwrapped(handler)
    name = handler.__qualname__.partition(".<locals>")[0]
    owner = getattr(handler, "__self__", None)
    return name if owner is None else f"{type(owner).__name__}.{name.rpartition('.')[2]}"


def path_of(kind: type) -> str:
    """The file of a class, from the root of the repository."""
    return kind.__module__.replace(".", "/") + ".py"


def by_layer(kinds: Iterable[type]) -> list[type]:
    """From the links upwards, by module and name."""

    def place(kind: type) -> tuple[int, str, str]:
        parts = kind.__module__.split(".")
        layer = next((n for n, name in enumerate(LAYERS) if name in parts), -1)
        return layer, kind.__module__, kind.__name__

    return sorted(kinds, key=place)


def makers(kinds: Iterable[type]) -> dict[str, list[str]]:
    """By the name of a class, the files that make one, or take one for a template."""
    names = "|".join(sorted({kind.__name__ for kind in kinds}, key=len, reverse=True))
    made = re.compile(rf"(?<!class )(?<![\w`])(?:{names})(?=\(| if )|(?<= else )(?:{names})\b")
    found: defaultdict[str, list[str]] = defaultdict(list)
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    for file in (ROOT / "node.py", *files):
        for name in sorted(set(made.findall(file.read_text(encoding="utf-8")))):
            found[name].append(str(file.relative_to(ROOT)))
    return found


def code(names: Iterable[str]) -> str:
    """Names in one cell of a table."""
    return ", ".join(f"`{name}`" for name in names)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield "|" + "".join(f" {cell} |" if cell else " |" for cell in row)
    yield ""


def machines(node: Node) -> Iterator[str]:
    yield "## The machines, in their order\n"
    yield from table(
        ("", "machine", "file"),
        (
            (str(place), code([type(machine).__name__]), code([path_of(type(machine))]))
            for place, machine in enumerate(node.machines, 1)
        ),
    )


def events(listeners: Mapping[type, Sequence[Callable[..., Any]]]) -> Iterator[str]:
    kinds = by_layer(listeners)
    made = makers(kinds)
    yield "## Events inside of a node\n"
    yield from table(
        ("event", "emitted in", "heard by, in this order"),
        (
            (
                code([kind.__name__]),
                code(made.get(kind.__name__, ())),
                code(name_of(handler) for handler in listeners[kind]),
            )
            for kind in kinds
        ),
    )


def messages(owners: Mapping[type, Callable[..., Any]]) -> Iterator[str]:
    kinds = by_layer(kind for kind in owners if issubclass(kind, Message))
    made = makers(kinds)
    yield "## Messages between nodes\n"
    yield from table(
        ("message", "sent in", "handled by"),
        (
            (
                code([kind.__name__]),
                code(made.get(kind.__name__, ())),
                code([name_of(owners[kind])]),
            )
            for kind in kinds
        ),
    )


def commands(carriers: Mapping[type, Callable[..., Any]]) -> Iterator[str]:
    kinds = sorted(carriers, key=lambda kind: (name_of(carriers[kind]), kind.__name__))
    yield "## Commands of programs\n"
    yield from table(
        ("command", "carried out by", "file"),
        (
            (
                code([kind.__name__]),
                code([name_of(carriers[kind])]),
                code([unwrapped(carriers[kind]).__module__.replace(".", "/") + ".py"]),
            )
            for kind in kinds
        ),
    )


def made() -> str:
    """What the page has below its mark."""
    node = built()
    owners = node.turns.owners
    timers = sum(issubclass(kind, Timer) for kind in owners)
    lines = [
        *machines(node),
        *events(node.turns.listeners),
        *messages(owners),
        f"Each of the {timers} timers goes to the machine that sets it.\n",
        *commands(node.carriers()),
    ]
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its tables made anew."""
    head, mark, _ = text.partition(MARK)
    return f"{head}{mark}\n{made()}"


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.lab.hearing` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.lab.hearing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing, say whether it differs"
    )
    options = parser.parse_args(args)
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    if after == before:
        return 0
    if options.check:
        print(f"{PAGE.relative_to(ROOT)} differs: python -m bench.lab.hearing", file=sys.stderr)
        return 1
    PAGE.write_text(after, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: written", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
