"""What an event, a subscription, an appended row and an idle hour cost, as exact counts.

    python -m bench.lab.ledger                     # count, and compare with the file
    python -m bench.lab.ledger --write             # count, and write the file
    python -m bench.lab.ledger --only eight-pct1   # some workloads; with --top 30: by function

Each workload runs the product's own nodes in the simulator with the wire's codec and real trace
writers, from a fixed seed. Nothing is timed: the counts are the same on a busy machine and on an
idle one, and differ only where the code, the interpreter's version or a library does. Counted are,
per event (or subscription, row, stream, hour):

- `calls`: Python functions of the product that are entered (built-in functions are not counted);
- `frames`, `messages` and `bytes` on links, with their length prefixes; `data` messages are those
  that carry one event or attribute from a node to another, as everywhere;
- `turns`: inputs that a node handles (a frame, a command, a tick);
- `writes`: peers to which a turn has something to say, each counted once for each turn: where a
  turn's words leave together it is as many as `frames`;
- `timers` that are set, and `syncs` of the disk;
- `records` and `record_bytes` of traces;
- `blocks`: memory blocks that are in use afterwards and were not before. CPython does not count
  allocations that are freed again.

A test counts a part of the workloads, and fails where a count is more than 3 % above the file. Who
makes an event dearer writes the file again in the same commit, and says there what the event gains.
"""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from cProfile import Profile
from functools import partial
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any, Final
from unittest.mock import patch

from msgspec.structs import replace

import matching
from bench.command import parser
from bench.lab import record
from canopy.sim.world.disk import Disk
from canopy.sim.world.log_disk import SimulatedLogDisk
from canopy.sim.world.network import Network
from canopy.sim.world.world import MeteredNode, World
from canopy.wire.transport.codec import WireCodec
from overlay.client import (
    AppendEvents,
    BeginReading,
    Draft,
    EventsAppended,
    EventsTaken,
    Gather,
    Streams,
    TakeEvents,
)
from overlay.links.messages import Frame
from overlay.settings import Settings
from overlay.stream_client import AddStream
from overlay.turns import Turns

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = ROOT / "bench" / "results" / "ledger.json"

PRODUCT: Final = tuple(
    str(ROOT / part)
    for part in ("overlay", "matching", "streams", "node.py", "canopy/traces", "canopy/wire")
)
"""Where a function has to be defined to count: the simulator and the bench cost users nothing."""

TOLERANCE: Final = 0.03
"""A count may rise by this share before the file has to be written again."""

COUNTS: Final = (
    *("calls", "frames", "messages", "data", "bytes", "turns", "writes", "timers", "syncs"),
    *("records", "record_bytes", "blocks"),
)
NOISY: Final = frozenset({"blocks"})
"""Counts that are kept for the reader only: what the interpreter keeps in its own free lists
depends on what ran before."""

SYNCS: Final = (Disk._write, SimulatedLogDisk._synced)
"""The simulator's own functions that stand for a sync of a node's disk."""

Counts = dict[str, float]

NUMBERS: Final = 7
SUBSCRIPTIONS: Final = 1_000
CLIENTS: Final = 8
BATCH: Final = 64
SEED: Final = 1

ROUND: Final = 30.0
"""Seconds in which a node does all that it does about its streams from time to time: each of the
pauses in between (0.5, 2, 6 and 30 seconds) goes into it, so that every round costs the same."""


class Meter:
    """Counts what the nodes of a world do within `running`."""

    def __init__(self, world: World, files: TraceFiles) -> None:
        self._world = world
        self._files = files
        self.by_function: Counter[tuple[str, str]] = Counter()
        self.counts: dict[str, float] = {}

    def _state(self) -> Counts:
        traffic = self._world.traffic.report(1.0)
        data, rest = traffic.data_total, traffic.maintenance_total
        return {
            "frames": self._world.network.frames,
            "messages": data.messages + rest.messages,
            "data": sum(d.node.counters.get("data_messages", 0) for d in self._drivers()),
            "bytes": data.bytes + rest.bytes,
            "records": sum(self._world.recorder.counted.values()),
            "record_bytes": self._files.written(self._world),
        }

    def _drivers(self) -> list[Any]:
        return list(self._world.drivers.values())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what happens within the context."""
        begin, write = Turns.begin, Network.write
        turns = 0
        written: dict[tuple[int, int], None] = {}  # by turn and connection

        def begun(self: Turns) -> float:
            nonlocal turns
            turns += 1
            return begin(self)

        def wrote(self: Network, connection: int, frame: Frame) -> None:
            written[turns, connection] = None
            write(self, connection, frame)

        before, blocks = self._state(), self._blocks()
        profile = Profile(builtins=False)
        with patch.object(Turns, "begin", begun), patch.object(Network, "write", wrote):
            profile.enable()
            try:
                yield
            finally:
                profile.disable()
        seen = Counter[CodeType]()
        for entry in profile.getstats():
            if isinstance(entry.code, CodeType):
                seen[entry.code] += entry.callcount
        assert seen[begin.__code__] == turns, "all turns are seen"
        for code, times in seen.items():
            if code.co_filename.startswith(PRODUCT):
                place = code.co_filename.removeprefix(f"{ROOT}/")
                self.by_function[place, code.co_qualname] += times
        found = self.by_function
        after = self._state()
        self.counts = {name: after[name] - before[name] for name in before}
        self.counts["calls"] = sum(found.values())
        self.counts["turns"] = found["overlay/turns.py", "Turns.begin"]
        self.counts["writes"] = len(written)
        self.counts["timers"] = found["overlay/turns.py", "Turns.set_timer"]
        self.counts["syncs"] = sum(seen[function.__code__] for function in SYNCS)
        self.counts["blocks"] = max(0, self._blocks() - blocks)

    @staticmethod
    def _blocks() -> int:
        gc.collect()
        return sys.getallocatedblocks()


class TraceFiles:
    """Trace files that are counted and thrown away."""

    def __init__(self) -> None:
        self.size = 0

    def open(self, path: str) -> TraceFiles:
        """A file for appending."""
        return self

    def write(self, data: bytes, /) -> int:
        """Count the bytes of `data`, which are not kept; their number, as a file returns it."""
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered here: what the writer holds back is asked of the recorder."""

    close = flush

    def written(self, world: World) -> int:
        """Bytes of all records so far, with those that writers buffer."""
        world.recorder.flush()
        return self.size


def untraced(*arguments: Any, **named: Any) -> MeteredNode:
    """A node that writes no record of any event, as with `--trace-sample 0`."""
    driver = arguments[4]
    driver.sampled = lambda events: ()
    return MeteredNode(*arguments, **named)


def sampled(*arguments: Any, **named: Any) -> MeteredNode:
    """A node that writes records of one event in a hundred: what is left of them by default
    (`trace.rate`) at 10,000 events per second."""
    driver = arguments[4]

    def trace_marks(incarnation: int, first: int, count: int) -> Sequence[bool]:
        return [number % 100 == 0 for number in range(first, first + count)]

    driver.trace_marks = trace_marks
    driver.sampled = lambda events: [event for event in events if event.traced]
    return MeteredNode(*arguments, **named)


class Overlay:
    """Nodes with clients that gather, as in the data plane's bench: `SUBSCRIPTIONS` of two ranges
    over eight clients, and a publisher at the first node."""

    def __init__(
        self,
        nodes: int,
        matches: float,
        build: Callable[..., MeteredNode] | None = None,
        room: int = 20_000,
        subscriptions: int = SUBSCRIPTIONS,
    ) -> None:
        self.rng = Random(SEED)
        self.files = TraceFiles()
        tree = replace(Settings().tree, host_entries=room, split_at=room)
        settings = replace(Settings(), tree=tree)
        self.world = World(
            SEED,
            WireCodec(),
            settings,
            build=build,
            traces=self.files.open,
        )
        first = self.world.add_node()
        self.nodes = [first, *(self.world.add_node(seeds=[first]) for _ in range(nodes - 1))]
        self._await(self.world.ready)
        self.world.run(30.0)
        for number in range(CLIENTS):
            node = self.nodes[number % nodes]
            self.world.drivers[node].command(number + 2, Gather(self.world.clients.request()))
        width = (matches / max(subscriptions, 1)) ** 0.5
        for start in range(0, subscriptions, 8 * CLIENTS):
            for number in range(CLIENTS):
                texts = [self.selector(width) for _ in range(min(8, subscriptions - start))]
                node = self.nodes[number % nodes]
                self.world.subscribe_together(node, texts, number + 2)
            self.world.run(0.5)
        self._await(self.world.acknowledged)
        self.world.run(30.0)

    def selector(self, width: float) -> str:
        """Two ranges of this width over two of the numbers."""
        first, second = self.rng.sample(range(NUMBERS), 2)
        low, high = self.rng.random() * (1 - width), self.rng.random() * (1 - width)
        text = f"a{first} BETWEEN {low} AND {low + width}"
        return f"{text} AND a{second} BETWEEN {high} AND {high + width}"

    def _await(self, ready: Callable[[], bool]) -> None:
        assert self.world.run_until(ready, 300.0), "the simulated overlay is not ready"

    def event(self) -> dict[str, Any]:
        """Seven numbers and three texts."""
        attributes: dict[str, Any] = {f"a{n}": self.rng.random() for n in range(NUMBERS)}
        return attributes | {f"t{n}": f"text{self.rng.randrange(100)}" for n in range(3)}

    def publish(self, batches: int, batch: int, pause: float) -> None:
        """Publish batches at the first node, `pause` seconds apart."""
        for _ in range(batches):
            self.world.publish(self.nodes[0], *[self.event() for _ in range(batch)])
            self.world.run(pause)
        self.world.run(1.0)


def events(
    nodes: int, matches: float, batch: int = BATCH, pause: float = 0.05, **options: Any
) -> tuple[Meter, int]:
    """Events through an overlay; what the same time costs without them is taken off."""
    batches = 16 if batch > 1 else 128
    overlay = Overlay(nodes, matches, **options)
    overlay.publish(batches * 2, batch, pause)  # the fast engine is there, trees are known
    idle, meter = (Meter(overlay.world, overlay.files) for _ in range(2))
    with idle.running():
        overlay.world.run(batches * pause + 1.0)
    with meter.running():
        overlay.publish(batches, batch, pause)
    for name, amount in idle.counts.items():
        meter.counts[name] -= amount
    meter.by_function.subtract(idle.by_function)
    return meter, batches * batch


def subscriptions(nodes: int) -> tuple[Meter, int]:
    """Subscriptions of one program, sixteen together."""
    overlay = Overlay(nodes, 1.0, subscriptions=256)
    meter, count = Meter(overlay.world, overlay.files), 256
    with meter.running():
        for _ in range(count // 16):
            texts = [overlay.selector(0.1) for _ in range(16)]
            overlay.world.subscribe_together(overlay.nodes[0], texts, 2)
            overlay.world.run(0.1)
        assert overlay.world.run_until(overlay.world.acknowledged, 60.0)
    return meter, count


def appends(rows: int, batch: int, *, read: bool = False) -> tuple[Meter, int]:
    """Rows that a program appends to a stream of three replicas on three nodes; with `read`, rows
    that another program reads from the beginning."""
    overlay = Overlay(3, 1.0, subscriptions=0)
    world, node = overlay.world, overlay.nodes[1]
    founded = world.ask(node, AddStream(world.clients.request(), "rows"))
    assert isinstance(founded, Streams), founded
    world.run(5.0)

    def append(many: int) -> None:
        for _ in range(many // batch):
            drafts = tuple(Draft(overlay.event()) for _ in range(batch))
            answer = world.ask(node, AppendEvents(world.clients.request(), "rows", drafts))
            assert isinstance(answer, EventsAppended), answer

    append(4 * batch)
    meter = Meter(world, overlay.files)
    if not read:
        with meter.running():
            append(rows)
        return meter, rows
    append(rows)
    with meter.running():
        reading = world.clients.request()
        world.ask(overlay.nodes[2], BeginReading(reading, "rows", start="first"))
        got = 0
        while got < rows:
            answer = world.ask(overlay.nodes[2], TakeEvents(world.clients.request(), reading))
            assert isinstance(answer, EventsTaken), answer
            got += len(answer.events)
    return meter, rows


class Founded:
    """Streams of three replicas on three nodes, which a program founds by turns and appends to."""

    def __init__(self, streams: int) -> None:
        self.overlay = Overlay(3, 1.0, subscriptions=0)
        self.world, self.node = self.overlay.world, self.overlay.nodes[1]
        for number in range(streams):
            self.found(number)
        self.world.run(ROUND)

    def found(self, number: int) -> None:
        """Found one stream more."""
        command = AddStream(self.world.clients.request(), f"rows{number}")
        assert isinstance(self.world.ask(self.node, command), Streams)

    def metered(self, work: Callable[[], None], units: int) -> tuple[Meter, int]:
        """Count what `work` costs in a round. What one costs without it is taken off: that of the
        round before, and that of the one after, by how long the streams were there."""
        before, meter, after = (Meter(self.world, self.overlay.files) for _ in range(3))
        with before.running():
            self.world.run(ROUND)
        begin, end = self.world.now, self.world.now + ROUND
        with meter.running():
            work()
            former = (self.world.now - begin) / 2 / ROUND  # they come one after the other
            assert former < 0.5, "the work takes longer than a round"
            self.world.run(end - self.world.now)
        with after.running():
            self.world.run(ROUND)
        for name in meter.counts:
            idle = former * before.counts[name] + (1 - former) * after.counts[name]
            meter.counts[name] -= idle
        meter.by_function.subtract(after.by_function)
        return meter, units


def founding(before: int, count: int) -> tuple[Meter, int]:
    """Streams that are founded one after the other, where there are `before` already."""
    streams = Founded(before)

    def work() -> None:
        for number in range(before, before + count):
            streams.found(number)

    return streams.metered(work, count)


def round_robin(streams: int, rounds: int) -> tuple[Meter, int]:
    """Rows that a program appends to many streams by turns, one to each, without waiting."""
    founded = Founded(streams)
    world = founded.world

    def append() -> None:
        drafts = [(Draft(founded.overlay.event()),) for _ in range(streams)]
        commands = [
            AppendEvents(world.clients.request(), f"rows{number}", rows)
            for number, rows in enumerate(drafts)
        ]
        world.drivers[founded.node].command(1, *commands)
        world.run(0.5)

    def work() -> None:
        for _ in range(rounds):
            append()

    append()  # the sessions are open
    world.run(ROUND)
    return founded.metered(work, streams * rounds)


def idle(nodes: int) -> tuple[Meter, int]:
    """An hour of an overlay in which nothing happens (a tenth of it is counted)."""
    overlay = Overlay(nodes, 1.0, subscriptions=256)
    meter = Meter(overlay.world, overlay.files)
    with meter.running():
        overlay.world.run(360.0)
    for name in meter.counts:
        meter.counts[name] *= 10
    return meter, 1


def idle_streams(streams: int) -> tuple[Meter, int]:
    """A minute of streams to which nobody appends, with three replicas each on three nodes. What a
    minute costs without them is taken off."""
    meters = []
    for founded in (Founded(0), Founded(streams)):
        founded.world.run(10.0)
        meters.append(Meter(founded.world, founded.overlay.files))
        with meters[-1].running():
            founded.world.run(60.0)
    without, meter = meters
    for name, amount in without.counts.items():
        meter.counts[name] -= amount
    meter.by_function.subtract(without.by_function)
    return meter, streams


PCT1: Final = SUBSCRIPTIONS / 100
WORKLOADS: Final[dict[str, Callable[[], tuple[Meter, int]]]] = {
    "one-node": partial(events, 1, 1.0),
    "one-node-untraced": partial(events, 1, 1.0, build=untraced),
    "one-node-pct1-untraced": partial(events, 1, PCT1, build=untraced),
    "eight-one": partial(events, 8, 1.0),
    "eight-one-untraced": partial(events, 8, 1.0, build=untraced),
    "eight-pct1": partial(events, 8, PCT1),
    "eight-pct1-sampled": partial(events, 8, PCT1, build=sampled),
    "eight-pct1-untraced": partial(events, 8, PCT1, build=untraced),
    "eight-pct1-spread-untraced": partial(events, 8, PCT1, build=untraced, room=400),
    "eight-rush-untraced": partial(events, 8, 1.0, build=untraced, pause=0.003),
    "eight-alone-untraced": partial(events, 8, 1.0, batch=1, build=untraced),
    "subscription": partial(subscriptions, 8),
    "append": partial(appends, 256, 1),
    "append-batch": partial(appends, 2_048, 64),
    "append-round-robin": partial(round_robin, 60, 8),
    "founding": partial(founding, 100, 40),
    "reading": partial(appends, 2_048, 64, read=True),
    "idle-streams": partial(idle_streams, 40),
    "idle-hour": partial(idle, 8),
}


def count(name: str) -> tuple[Counts, Meter]:
    """The counts of a workload, per event (or what else is counted), with all that was counted."""
    matching.warm()
    meter, units = WORKLOADS[name]()
    return {one: round(meter.counts[one] / units, 3) for one in COUNTS}, meter


def risen(found: Counts, kept: Counts) -> dict[str, tuple[float, float]]:
    """The counts that are more than `TOLERANCE` above what the file has, with both."""
    return {
        one: (kept.get(one, 0.0), found[one])
        for one in COUNTS
        if one not in NOISY and found[one] > kept.get(one, 0.0) * (1 + TOLERANCE) + 0.01
    }


def interpreter() -> str:
    """The interpreter whose calls are counted: comprehensions are calls before 3.12."""
    return f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"


def show(name: str, found: Counts, kept: Counts) -> None:
    print(name)
    for one in COUNTS:
        before = kept.get(one)
        beside = f"{before:>14,.2f}{found[one] / before - 1:+8.1%}" if before else ""
        print(f"  {one:<14}{found[one]:>14,.2f}  {beside}")


def main(args: Sequence[str] | None = None) -> int:
    """Count, and compare with the file or write it. Returns 1 if a count has risen."""
    made = parser(
        __doc__,
        write=(False, "keep the counts in the file"),
        top=(0, "show so many functions of each, by calls"),
    )
    made.add_argument("--only", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    options = made.parse_args(args)
    kept = read()
    counted: dict[str, Counts] = {}
    for name in options.only:
        found, meter = count(name)
        counted[name] = found
        if not options.json:
            show(name, found, kept.get(name, {}))
        units = max(1.0, meter.counts["calls"] / found["calls"]) if found["calls"] else 1.0
        for (place, function), times in meter.by_function.most_common(options.top):
            print(f"  {times / units:>10.2f}  {function}  {place}", file=sys.stderr)
    if options.json:
        print(json.dumps(counted, indent=2))
    if options.write:
        write({**kept, **counted})
        return 0
    up = {name: risen(found, kept.get(name, {})) for name, found in counted.items()}
    return 1 if any(up.values()) else 0


def read() -> dict[str, Counts]:
    """The counts that the file has, by workload."""
    if not FILE.exists():
        return {}
    rows = json.loads(FILE.read_text(encoding="utf-8"))[0]["rows"]
    return {row["workload"]: {k: v for k, v in row.items() if k != "workload"} for row in rows}


def write(counted: dict[str, Counts]) -> None:
    """Write the file, a workload a line."""
    rows = [{"workload": name, **counted[name]} for name in WORKLOADS if name in counted]
    record.write(FILE, [{**record.place("python -m bench.lab.ledger --write"), "rows": rows}])


if __name__ == "__main__":
    sys.exit(main())
