"""How many files and functions an event, a subscription, a row and a reading go through.

    python -m bench.lab.ways                       # all ways
    python -m bench.lab.ways append-next --list    # one, with its functions by file

Each way runs through the product's own nodes in the simulator, from a fixed seed, with the wire's
codec and trace records, and is profiled for `SPAN` seconds of virtual time on all nodes together. A
function belongs to it where it is called more often than in any of the `IDLE` spans before and
after, in which nothing happens but what nodes do by themselves. Functions inside of others count as
these. The counts are the same on every machine.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import matching
from bench.command import parser
from bench.lab.ledger import Meter, Overlay
from overlay.client import (
    AppendEvents,
    BeginReading,
    Draft,
    EventsAppended,
    EventsTaken,
    Streams,
    TakeEvents,
)
from overlay.stream_client import AddStream

SPAN: Final = 2.0
"""Seconds that a way is given; each ends within one."""

IDLE: Final = 6
"""Spans without it, half of them before and half after: nodes shuffle, check and report at pauses
of their own, up to some seconds."""

Functions = Counter[tuple[str, str]]
"""Calls by file and function."""


class Way(NamedTuple):
    """A way through the house, profiled."""

    name: str
    calls: Functions

    @property
    def files(self) -> list[str]:
        """The files that it goes through."""
        return sorted({file for file, _ in self.calls})

    def row(self) -> dict[str, Any]:
        """The numbers of files, functions and calls of this way, as a row of results."""
        return {
            "way": self.name,
            "files": len(self.files),
            "functions": len(self.calls),
            "calls": sum(self.calls.values()),
        }


class Walker:
    """Profiles what happens in the simulated overlay beyond its idle traffic."""

    def __init__(self, overlay: Overlay) -> None:
        self._overlay = overlay
        self._world = overlay.world

    def _span(self, work: Callable[[], None] = lambda: None) -> Functions:
        meter = Meter(self._world, self._overlay.files)
        end = self._world.now + SPAN
        with meter.running():
            work()
            self._world.run(end - self._world.now)
        found: Functions = Counter()
        for (file, function), calls in meter.by_function.items():
            found[file, function.partition(".<locals>")[0]] += calls
        return found

    def walk(
        self, name: str, work: Callable[[], None], before: Callable[[], None] | None = None
    ) -> Way:
        """Profile `work`, which must be done within `SPAN`. `before`: done a span before it, and
        not profiled."""
        idle = [self._span() for _ in range(IDLE // 2)]
        if before is not None:
            before()
            self._world.run(SPAN)
        found = self._span(work)
        idle += [self._span() for _ in range(IDLE // 2)]
        beyond = {
            function: calls - max(span[function] for span in idle)
            for function, calls in found.items()
        }
        return Way(name, Counter({key: calls for key, calls in beyond.items() if calls > 0}))


def events() -> list[Way]:
    """A subscription beside others; then, from a node that has published nothing so far, an event
    whose trees it has to look for, and the next one."""
    overlay = Overlay(8, 1.0, subscriptions=64)
    walker, node = Walker(overlay), overlay.nodes[1]

    def subscribe() -> None:
        overlay.world.subscribe_together(overlay.nodes[0], [overlay.selector(0.1)], 2)
        assert overlay.world.run_until(overlay.world.acknowledged, SPAN)

    def publish() -> None:
        overlay.world.publish(node, overlay.event())

    ways = [walker.walk("subscription", subscribe), walker.walk("event-first", publish)]
    # What is known of trees without subscribers ends with its term, in less than the idle spans.
    return [*ways, walker.walk("event-known", publish, before=publish)]


def rows() -> list[Way]:
    """A row that a program appends to a stream of three replicas, which it has not used so far; the
    next one; and a reading that another program begins, up to its rows."""
    overlay = Overlay(3, 1.0, subscriptions=0)
    world, walker = overlay.world, Walker(overlay)
    node, other = overlay.nodes[1:]
    founded = world.ask(node, AddStream(world.clients.request(), "rows"))
    assert isinstance(founded, Streams), founded
    world.run(10.0)

    def append() -> None:
        drafts = (Draft(overlay.event()),)
        answer = world.ask(node, AppendEvents(world.clients.request(), "rows", drafts))
        assert isinstance(answer, EventsAppended), answer

    def begin() -> None:
        reading = world.clients.request()
        world.ask(other, BeginReading(reading, "rows", start="first"))
        got = 0
        while got < 2:
            answer = world.ask(other, TakeEvents(world.clients.request(), reading))
            assert isinstance(answer, EventsTaken), answer
            got += len(answer.events)

    ways = [walker.walk("append-first", append), walker.walk("append-next", append)]
    return [*ways, walker.walk("reading-begins", begin)]


GROUPS: Final[dict[str, Callable[[], list[Way]]]] = {
    **dict.fromkeys(("subscription", "event-first", "event-known"), events),
    **dict.fromkeys(("append-first", "append-next", "reading-begins"), rows),
}
"""By way, what walks it; those with the same one share an overlay."""


def walked(names: Sequence[str] = tuple(GROUPS)) -> list[Way]:
    """The ways of these names."""
    matching.warm()
    groups = dict.fromkeys(GROUPS[name] for name in names)
    return [way for group in groups for way in group() if way.name in names]


def show(way: Way, with_functions: bool) -> None:
    row = way.row()
    print(f"{way.name:<16}{row['files']:>6} files{row['functions']:>6} functions", end="")
    print(f"{row['calls']:>8,} calls")
    for file in way.files if with_functions else ():
        found = sorted((key[1], calls) for key, calls in way.calls.items() if key[0] == file)
        print(f"  {file}")
        for function, calls in found:
            print(f"    {calls:>6}  {function}")


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.lab.ways` and return its exit code."""
    made = parser(__doc__, list=(False, "print the functions of each, by file"))
    made.add_argument("way", nargs="*", help=f"one or more of {', '.join(GROUPS)}; default: all")
    options = made.parse_args(args)
    unknown = [name for name in options.way if name not in GROUPS]
    if unknown:
        made.error(f"there is no way {unknown[0]}; there are {', '.join(GROUPS)}")
    ways = walked(options.way or tuple(GROUPS))
    if options.json:
        print(json.dumps([way.row() for way in ways], indent=2))
        return 0
    for way in ways:
        show(way, options.list)
    return 0


if __name__ == "__main__":
    sys.exit(main())
