"""Who hears each message, command and event of a node: a page that is made from a node as it is
built.

    python -m bench.site.pages hearing

A node of the simulator is asked for its machines, in their order, with the messages and commands
that each handles, and for the listeners of each event, in the order in which they are called. The
modules that make an event are found in their text.
"""

from __future__ import annotations

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

HEAD: Final = """# Who hears what, in which order

Who handles each message between nodes, each command of a program and each event inside of a node,
as a node is built.

A node handles one input at a time: a frame, a command or a timer. A *message* or *command* has one
handler. What a handler emits waits until it has returned; then each *event* goes to its listeners
one after the other, in the order of the machines. Events that a listener emits queue behind.
Messages that a node sends to itself come after all events. So no handler runs inside of another
one, and a listener finds each machine before it in the list already changed by the same event
(`overlay/turns.py`). When messages leave is in
[ARCHITECTURE.md](../../ARCHITECTURE.md#three-ideas).
"""

FOLDERS: Final = ("overlay", "streams", "canopy/wire")
CLASS: Final = re.compile(r"^class (\w+)", re.M)
IMPORT: Final = re.compile(r"^ *from ([\w.]+) import (?:\(([^)]*)\)|(.+))$", re.M)
COMMENT: Final = re.compile(r"#.*")
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


def owner_of(handler: Callable[..., Any], machines: Iterable[object]) -> object:
    """The object whose method handles; of a function the machine, or the class, that it is in."""
    handler = unwrapped(handler)
    owner = getattr(handler, "__self__", None)
    if owner is not None:
        return owner
    kind = getattr(sys.modules[handler.__module__], handler.__qualname__.partition(".")[0])
    return next((machine for machine in machines if type(machine) is kind), kind)


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


def names_in(text: str, module: str) -> dict[str, object]:
    """What the names mean that a module imports from others or defines as classes."""
    named = {name: (module, name) for name in CLASS.findall(text)}
    for source, several, one in IMPORT.findall(text):
        for each in COMMENT.sub("", several or one).split(","):
            name, _, alias = each.strip().partition(" as ")
            named[alias or name] = source, name
    return {
        known: getattr(sys.modules.get(source), name, None)
        for known, (source, name) in named.items()
    }


def makers(kinds: Iterable[type]) -> dict[type, list[str]]:
    """By class, the files that make one, or take one for a template."""
    wanted = {kind.__name__: kind for kind in kinds}
    names = "|".join(sorted(wanted, key=len, reverse=True))
    made = re.compile(rf"(?<!class )(?<![\w`])(?:{names})(?=\(| if )|(?<= else )(?:{names})\b")
    found: defaultdict[type, list[str]] = defaultdict(list)
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    for file in (ROOT / "node.py", *files):
        text = file.read_text(encoding="utf-8")
        if hits := set(made.findall(text)):
            path = file.relative_to(ROOT)
            meant = names_in(text, ".".join(path.with_suffix("").parts))
            for name in hits:
                if meant.get(name) is wanted[name]:
                    found[wanted[name]].append(str(path))
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
    """Each machine with its messages and commands; then the parts of machines that handle some."""
    owners: dict[int, object] = {id(machine): machine for machine in node.machines}
    handled: defaultdict[int, list[type]] = defaultdict(list)
    carried: defaultdict[int, list[type]] = defaultdict(list)
    messages = {k: each for k, each in node.turns.owners.items() if issubclass(k, Message)}
    for found, handlers in ((handled, messages), (carried, node.carriers())):
        for kind, handler in handlers.items():
            owner = owner_of(handler, node.machines)
            owners.setdefault(id(owner), owner)
            found[id(owner)].append(kind)
    classes = [(key, o if isinstance(o, type) else type(o)) for key, o in owners.items()]
    yield "## The machines, in their order\n"
    yield from table(
        ("", "machine, or part of one", "file", "messages", "commands"),
        (
            (
                str(place) if place <= len(node.machines) else "",
                code([owner.__name__]),
                code([path_of(owner)]),
                code(kind.__name__ for kind in by_layer(handled[key])),
                code(kind.__name__ for kind in by_layer(carried[key])),
            )
            for place, (key, owner) in enumerate(classes, 1)
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
                code(made.get(kind, ())),
                code(name_of(handler) for handler in listeners[kind]),
            )
            for kind in kinds
        ),
    )


def page() -> str:
    """The page, with the tables of the node that the code builds."""
    node = built()
    timers = sum(issubclass(kind, Timer) for kind in node.turns.owners)
    lines = [
        HEAD,
        *machines(node),
        f"Each of the {timers} timers goes to the machine that sets it.\n",
        *events(node.turns.listeners),
    ]
    return "\n".join(lines)
