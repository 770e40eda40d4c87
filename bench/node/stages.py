"""What an event costs on its way through one node, stage by stage, in processor time.

`python -m bench.node.stages` builds a node in this process, with real codecs and the control
socket's
encoding but without sockets, so that a busy machine shows little in it: eight clients that gather
share `--subscriptions`, a ninth publishes batches. `--matches` is how many subscriptions an event
matches on average. With `--traced` every event is traced, by a writer whose files keep nothing. A
stage's time is its own, without the stages that it calls. `--json` prints one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

import matching
from canopy.traces.writer import TraceWriter
from canopy.wire.control.client_connection import ClientConnection
from canopy.wire.control.client_output import ClientOutput
from canopy.wire.control.credit_window import QUEUE
from canopy.wire.transport.codec import WireCodec
from canopy.wire.transport.framing import COMMAND_FRAMES, PREFIX
from canopy.wire.transport.outlet import Counters
from node import LocalNode, Node
from overlay.client import (
    CREDIT,
    Command,
    Draft,
    Event,
    Gather,
    Publish,
    Reply,
    Subscribe,
    Subscribed,
)
from overlay.hybrid_clock import HybridClock
from overlay.links.messages import Frame
from overlay.machine import Named, Peer
from overlay.settings import Settings
from streams.disk import NoLogDisk

CLIENTS: Final = 8
PUBLISHER: Final = CLIENTS + 1
NUMBERS: Final = 7  # attributes that are numbers; three are texts
WARMING: Final = 4_096  # events before it counts: what is plain moves to the fast engine


class Stages:
    """Processor seconds by stage, each without the stages inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside: list[float] = []

    def watch(self, owner: Any, name: str, stage: str) -> None:
        """Time a method of an object from now on."""
        setattr(owner, name, self.timed(getattr(owner, name), stage))

    def timed(self, call: Callable[..., Any], stage: str) -> Callable[..., Any]:
        """The same call, timed."""

        def wrapped(*arguments: Any) -> Any:
            begun = time.process_time()
            self._inside.append(0.0)
            try:
                return call(*arguments)
            finally:
                spent = time.process_time() - begun
                own = spent - self._inside.pop()
                self.seconds[stage] = self.seconds.get(stage, 0.0) + own
                if self._inside:
                    self._inside[-1] += spent

        return wrapped


class Surroundings:
    """The driver of a node that is alone: a clock by hand, no disk, no links, no traces."""

    def __init__(self) -> None:
        self.now = 100.0
        self.stored = self.answered = 0  # tickets
        self.hybrid = HybridClock(self.clock, 0.0)
        self.answers: list[Reply] = []
        self.to_clients: Callable[[int, Reply], None] = lambda _, reply: self.answers.append(reply)
        self.to_gatherers: Callable[..., None] = lambda events, places: None

    def clock(self) -> float:
        return self.now

    def wall(self) -> int:
        return int(self.now * 1e9)

    def note(self, kind: str, fields: dict[str, Any]) -> None: ...

    def reply(self, client: int, reply: Reply) -> None:
        self.to_clients(client, reply)

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        self.to_gatherers(events, places)

    processors = 1
    schemas = None
    logs = NoLogDisk()

    def trace(self, kind: str, fields: dict[str, Any]) -> None: ...

    def trace_each(
        self, kind: str, name: str, values: Sequence[str], fields: dict[str, Any]
    ) -> None: ...

    def trace_marks(self, incarnation: int, first: int, count: int) -> Sequence[bool] | None:
        return None

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        return ()

    def row_share(self, kind: str, count: int) -> float:
        return 0.0

    def trace_unmatched(self, counts: Mapping[str, int], alone: int) -> None: ...

    def store(self, *records: bytes, anew: bool = False) -> None: ...

    def store_later(self, *records: bytes, anew: bool = False) -> int:
        self.stored += 1
        return self.stored

    def answer(self, node: Node) -> None:
        """Let the node hear that all is durable, which takes no time here."""
        if self.stored > self.answered:
            self.answered = self.stored
            node.on_stored(self.stored)

    def publish_address(self, name: str, addresses: tuple[str, ...]) -> None: ...

    def dial(self, address: str) -> int:
        return 1

    def write(self, connection: int, frame: Frame) -> None: ...

    def close(self, connection: int, reason: str) -> None: ...


class NoFile:
    """A trace file that keeps nothing."""

    def write(self, data: bytes, /) -> int:
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...


class TracedSurroundings(Surroundings):
    """The driver of a node that is alone and traced: this share of events, however many."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        self.writer = TraceWriter(
            lambda path: NoFile(), "ab" * 8, time.time, share, hybrid=self.hybrid.read
        )

    def trace(self, kind: str, fields: dict[str, Any]) -> None:
        self.writer.write(kind, fields)

    def trace_each(
        self, kind: str, name: str, values: Sequence[str], fields: dict[str, Any]
    ) -> None:
        self.writer.write_each(kind, name, values, fields)

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        return self.writer.sampled(events)

    def trace_unmatched(self, counts: Mapping[str, int], alone: int) -> None:
        self.writer.count_unmatched(counts)


class Bench:
    """One node with its clients."""

    def __init__(
        self, subscriptions: int, matches: float, seed: int, world: Surroundings | None = None
    ) -> None:
        self.rng = Random(seed)
        self.world = Surroundings() if world is None else world
        me = Peer("ab" * 8, "127.0.0.1:1")
        self.node = Node(LocalNode(me, 1), Settings(), Random(seed), WireCodec(), self.world)
        self.node.start()
        self.settle()
        width = (matches / subscriptions) ** 0.5
        for number in range(subscriptions):
            client = 1 + number % CLIENTS
            if number < CLIENTS:
                self.node.commands(client, (Gather(number),))
            first, second = self.rng.sample(range(NUMBERS), 2)
            low, high = self.rng.random() * (1 - width), self.rng.random() * (1 - width)
            text = f"a{first} BETWEEN {low} AND {low + width}"
            text += f" AND a{second} BETWEEN {high} AND {high + width}"
            self.node.commands(client, (Subscribe(number, text),))
            if number % 200 == 0:
                self.settle()
        self.settle()
        ready = sum(isinstance(answer, Subscribed) for answer in self.world.answers)
        assert ready == subscriptions, f"{ready} of {subscriptions} are acknowledged"
        self.sent = 0
        clients = {n: self.client(n) for n in range(1, PUBLISHER + 1)}
        self.output = ClientOutput(clients, self.world.trace, self, time.time, lambda: None)  # type: ignore[arg-type]
        self.world.to_clients, self.world.to_gatherers = self.output.reply, self.output.share

    def client(self, number: int) -> ClientConnection:
        """One that consumes at once what it is sent."""
        client = ClientConnection(number, Counters(), QUEUE, pid=0)
        window = client.window

        def put(data: bytes) -> None:
            self.sent += len(data)
            window.grant(window.sent, CREDIT)

        client.outlet.put = put  # type: ignore[method-assign]
        return client

    def debug(self, event: str, **fields: object) -> None: ...

    info = warning = error = debug

    def settle(self) -> None:
        for _ in range(100):
            due = self.node.deadline()
            self.world.answer(self.node)
            if due is None or due > self.world.now + 10:
                break
            self.world.now = max(self.world.now, due)
            self.node.on_tick()

    def frames(self, events: int, batch: int) -> list[bytes]:
        made = []
        for start in range(0, events, batch):
            drafts = tuple(self.draft() for _ in range(batch))
            made.append(COMMAND_FRAMES.encode(Publish(start, drafts)))
        return made

    def draft(self) -> Draft:
        attributes: dict[str, Any] = {f"a{n}": self.rng.random() for n in range(NUMBERS)}
        attributes |= {f"t{n}": f"text{self.rng.randrange(100)}" for n in range(3)}
        return Draft(attributes, b"x" * 100, "", 1e9)

    def run(self, frames: list[bytes], decode: Callable[..., Command]) -> None:
        for frame in frames:
            self.node.commands(PUBLISHER, (decode(memoryview(frame)[PREFIX:]),))
            self.world.answer(self.node)
            self.output.flush()
            self.world.now += 0.001
            due = self.node.deadline()
            if due is not None and due <= self.world.now:
                self.node.on_tick()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    world = TracedSurroundings() if options.traced else Surroundings()
    bench = Bench(options.subscriptions, options.matches, options.seed, world)
    matching.warm()
    bench.run(bench.frames(WARMING, options.batch), COMMAND_FRAMES.decode)
    frames = bench.frames(options.events, options.batch)
    gc.collect()
    gc.freeze()
    began = time.process_time()
    bench.run(frames, COMMAND_FRAMES.decode)
    plain = (time.process_time() - began) / options.events * 1e6
    stages, node = Stages(), bench.node
    stages.watch(node.publisher, "publish", "identity, plan, bookkeeping (publisher)")
    stages.watch(node.receiver, "_show", "duplicates, recheck, history (receiver)")
    stages.watch(node.receiver.gathering, "share", "match (matching)")
    stages.watch(bench.output, "reply", "encode for clients (control)")
    stages.watch(bench.output, "share", "encode for clients (control)")
    stages.watch(bench.output, "flush", "frames for clients (control)")
    stages.watch(node.publications, "_admit", "admission (publications)")
    owners = node.turns._owners
    for kind, handler in list(owners.items()):
        if kind.__name__ == "Visit":
            owners[kind] = stages.timed(handler, "trees (visiting)")
        elif kind.__name__ == "Accepted":
            owners[kind] = stages.timed(handler, "accepted (publisher)")
    bench.world.to_clients, bench.world.to_gatherers = bench.output.reply, bench.output.share
    whole = stages.timed(bench.run, "turns, timers")
    bench.sent = 0
    whole(frames, stages.timed(COMMAND_FRAMES.decode, "decode the command (framing)"))
    spent = {name: s / options.events * 1e6 for name, s in stages.seconds.items()}
    return {
        "subscriptions": options.subscriptions,
        "matches": options.matches,
        "batch": options.batch,
        "us_per_event": round(plain, 2),
        "bytes_to_clients": round(bench.sent / options.events),
        "stages": {name: round(us, 2) for name, us in sorted(spent.items(), key=lambda e: -e[1])},
    }


def main(args: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.node.stages", description=__doc__)
    add = parser.add_argument
    add("--subscriptions", type=int, default=10_000)
    add("--matches", type=float, default=1.0, help="subscriptions that an event matches (1)")
    add("--events", type=int, default=8_192)
    add("--batch", type=int, default=64, help="events in a publication (64)")
    add("--seed", type=int, default=1)
    add("--traced", action="store_true", help="trace every event")
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(args)
    found = measure(options)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{found['us_per_event']:8.2f} us per event, of which, timed apart:")
        for name, us in found["stages"].items():
            print(f"{us:8.2f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
