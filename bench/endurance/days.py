"""Simulated days of slow churn: whether all is delivered or told, and whether anything grows.

    python -m bench.endurance.days --nodes 12 --hours 24 --keys --stream --json
    python -m bench.endurance.days --nodes 1000 --minutes 30 --attributes 300 --split-trees 40 \\
        --subscriptions 1000 --rate 1 --trouble 15 --json

The product's own nodes with default settings in virtual time. Caches, and what is kept of logs, are
smaller (`CACHES`, `TAIL`, `SMALLER`), so that they are full within the first half hour, and what
grows then has no bound. Each subscription lasts for `LASTS` hours, or until its node ends, and
others take their places; events are published at a steady rate, and some seconds or minutes apart,
`--trouble` on average, a node crashes, loses its machine or its disk, leaves, is replaced, stands
still, is cut off for up to two minutes, or has its clock turned; those who serve in clusters as
often as all others. Once a simulated hour of them more than half of a cluster dies at once.

`violations` has all that the simulator's checks find (docs/lab/simulator.md): deliveries against
brute force, and at the end the owners of all trees, registrations, maps, logs, bounds.

With `--keys` nodes have certificates as a process has them, renewed by its rules, but of
`--certificate` hours instead of seven days; node 0 is their issuer. With `--stream` rows are
appended to a stream that keeps them for `KEEP` hours; `rows_lost` were acknowledged, and are not
there at the end.

At `LOOKS` times at equal intervals the memory is counted that each node holds (all Python objects
that are reached from it, those of several nodes once), its state file, the files of its shards, and
what was traced. `growth`: of the last third of the looks over the third before, in percent;
`grown`: the fields of a node's objects that have grown most, each with the name of its class. What
several objects refer to counts for its own fields (`held_bytes`). Trace files are counted and
thrown away: the product keeps all that it writes.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from enum import Enum
from functools import partial
from itertools import chain
from math import inf
from random import Random
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from msgspec import Struct

from bench.command import SEED, parser, show
from canopy.sim.scenario.run import Progress, ScenarioRun, judge_run
from canopy.sim.scenario.scenario import Fault, FaultPhase, Scenario
from canopy.sim.scenario.workload import WorkloadShape
from canopy.sim.world.signer import SimulatedCertificates
from canopy.sim.world.world import CLIENT
from canopy.wire.keys.certificates import DAY, NODE_DAYS
from canopy.wire.keys.rotation import RenewalTimes
from canopy.wire.transport.codec import WireCodec
from harness.simulated_stream import SimulatedReading, SimulatedStream
from overlay.chord.cluster import journal
from overlay.chord.ring import claims
from overlay.client import AppendEvents, Draft, EventsAppended
from overlay.lower_random import peer_records
from overlay.settings import ClusterSettings, Settings, TreeSettings
from overlay.stream_client import AddStream
from overlay.upper_tree.host import assigned_trees, host, served_loads
from overlay.upper_tree.publisher import tree_finder
from streams.log import shard_log
from streams.shard import kept_chunks

HOUR: Final = 3_600.0
FIRST: Final = 5.0
"""Seconds after the first event."""
LOOKS: Final = 12
KEEP: Final = 0.5
"""Hours."""
LASTS: Final = 8.0
"""Hours of a subscription."""
APPEND_EVERY: Final = 10.0
APPENDED: Final = 5
"""Rows of a batch."""
STREAM: Final = "days"
CACHES: Final = TreeSettings(dedupe=100, history=10, locations=64)
TAIL: Final = 32 * 1024
"""Bytes of a cluster's log in memory, at least."""
SMALLER: Final = (
    (kept_chunks, "RECENT_BYTES", 32 * 1024),
    (shard_log, "LINES_MOST", 100),
    (journal, "JOURNAL_GROWTH_LEAST", 32 * 1024),
    (host, "COUNTED_MOST", 50),
    (served_loads, "PLACES_MOST", 16),
    (assigned_trees, "PLACES_MOST", 16),
    (assigned_trees, "TOGETHER_MOST", 16),
    (tree_finder, "QUESTIONS_MOST", 16),
    (peer_records, "RECORDS_KEPT", 64),
    (claims, "SEALS_KEPT", 64),
)
"""Bounds that are no settings, each with its module."""
SHOWN: Final = 16
"""Violations and parts that a row names."""

ROLES: Final = ("", "", "", "primary", "standby", "broker")
KINDS: Final = (
    *("crash", "crash", "lose", "wiped", "drain", "replace", "cut", "cut", "block", "clog"),
    *("partition", "partition", "pause", "pause", "clock"),
)
"""What happens, each as often as it stands here."""


# --- what goes wrong ---


class Troubles:
    """Draws the faults of a time. Those of the network do not overlap, since `heal` ends all."""

    def __init__(self, rng: Random, nodes: int, seconds: float, apart: float) -> None:
        """`apart`: seconds between two of them, on average."""
        self.faults: list[Fault] = []
        self.counted: Counter[str] = Counter()
        self._rng = rng
        self._nodes = nodes
        self._free_at = 0.0  # when the last fault of the network is over
        self._away: dict[int, float] = {}  # nodes that are down, until when
        self._born: dict[int, float] = {}  # those that join, when they are there …
        self._gone: dict[int, float] = {}  # … and those that leave for good
        at = FIRST + rng.expovariate(1 / apart)
        while at < seconds:
            self._draw(at)
            at += rng.expovariate(1 / apart)
        hours = int(seconds / HOUR) or 1
        for hour in range(hours) if nodes > 50 else ():
            self._majority((hour + rng.uniform(0.2, 0.8)) * seconds / hours)
        self.faults = [fault for fault in self.faults if fault.at < seconds]
        self.faults.append(Fault(seconds + 1.0, "heal"))
        self.faults.append(Fault(seconds + 1.0, "resume"))
        self._restart_all(seconds + 2.0)
        self.faults.sort(key=lambda fault: fault.at)

    def _node(self, at: float) -> int:
        """One that is up. The first is named by all and is not replaced."""
        while True:
            node = self._rng.randrange(self._nodes)
            if self._away.get(node, 0.0) < at:
                return node

    def _restart_all(self, at: float) -> None:
        """All start again that are down and are not gone for good."""
        nodes = tuple(
            node
            for node in range(self._nodes)
            if self._born.get(node, 0.0) < at < self._gone.get(node, inf)
        )
        self.faults.append(Fault(at, "restart", nodes=nodes))

    def _draw(self, at: float) -> None:
        rng, kind = self._rng, self._rng.choice(KINDS)
        role: Any = rng.choice(ROLES)
        node = self._node(at)
        if kind in ("crash", "lose", "wiped", "drain") or (kind == "replace" and not node):
            self._end(at, "drain" if kind == "replace" else kind, node, role)
        elif kind == "replace":
            self._away[node] = inf
            self._gone[node] = at
            self._away[self._nodes] = self._born[self._nodes] = at + 60.0
            self._nodes += 1
            self.faults += [Fault(at, "drain", nodes=(node,)), Fault(at + 1.0, "join")]
        elif kind == "clock":
            seconds = rng.choice((-300.0, -1.0, 1.0, 300.0))
            # Turned back later: clocks that are an hour apart are not believed.
            self.faults.append(Fault(at, "clock", nodes=(node,), seconds=seconds))
            later = at + rng.uniform(10.0, 600.0)
            self.faults.append(Fault(later, "clock", nodes=(node,), seconds=-seconds))
        elif not self._network(at, kind, node, role):
            return
        self.counted[kind] += 1

    def _end(self, at: float, kind: str, node: int, role: Any) -> None:
        """A process ends, and starts again some minutes later."""
        until = at + self._rng.uniform(30.0, 300.0)
        do: Any = "crash" if kind == "wiped" else kind
        if role and do in ("crash", "lose"):
            # Which node it hits is known only then: all who are down start again.
            self.faults.append(Fault(at, do, role=role))
            self._restart_all(until)
            return
        self._away[node] = until
        self.faults.append(Fault(at, do, nodes=(node,)))
        self.faults.append(Fault(until, "restart", nodes=(node,), wiped=kind == "wiped"))

    def _network(self, at: float, kind: str, node: int, role: Any) -> bool:
        """Links break, carry nothing for a while, or a node stands still; whether it may now."""
        rng = self._rng
        do: Any = kind
        pair = (node, *rng.sample([n for n in range(self._nodes) if n != node], 1))
        if kind == "cut":
            self.faults.append(Fault(at, "cut", nodes=pair))
            return True
        if at < self._free_at:
            return False
        self._free_at = at + rng.choice((2.0, 10.0, 30.0, 120.0)) * rng.uniform(0.5, 1.0)
        where = {"role": role} if role and kind in ("partition", "pause") else {"nodes": (node,)}
        if kind in ("block", "clog"):
            where = {"nodes": pair}
        self.faults.append(Fault(at, do, **where))
        self.faults.append(Fault(self._free_at, "resume" if kind == "pause" else "heal"))
        return True

    def _majority(self, at: float) -> None:
        """More than half of the members of a cluster die at once."""
        self.faults.append(Fault(at, "crash", role="majority"))
        self._restart_all(at + self._rng.uniform(20.0, 90.0))
        self.counted["majority"] += 1


# --- what nodes hold ---

SKIPPED: Final = (type, ModuleType, BuiltinFunctionType)
VALUES: Final = (Struct, tuple, Enum, dict, list, set, deque)
"""Values and containers, though their classes are of the product."""
PRODUCT: Final = ("node", "overlay", "streams", "matching", "canopy")


def is_object(item: object) -> bool:
    """Whether it is an object of one of the product's classes, and not a value."""
    return type(item).__module__.partition(".")[0] in PRODUCT and not isinstance(item, VALUES)


def fields_of(item: object) -> Iterator[tuple[str, object]]:
    """The fields of an object, each with the names of its class and of itself."""
    kind = type(item)
    for name, field in getattr(item, "__dict__", {}).items():
        yield f"{kind.__name__}.{name}", field
    for each in kind.__mro__:
        for name in each.__dict__.get("__slots__", ()):
            if hasattr(item, name):
                yield f"{kind.__name__}.{name}", getattr(item, name)


def referents(item: object) -> Iterable[object]:
    """What an object holds; of a function what it has closed over, and not its module."""
    if isinstance(item, FunctionType):
        return chain(item.__closure__ or (), item.__defaults__ or ())
    return gc.get_referents(item)


def held_bytes(roots: Iterable[object], others: Iterable[object]) -> Counter[str]:
    """Bytes of all that is reached from `roots`, and not by way of `others`, by the field that
    holds it: the last one on the shortest way to it. So what a field refers to counts for it only
    as far as the next object of the product, whose fields count for themselves."""
    seen, found = set(map(id, others)), Counter[str]()
    todo = deque((type(root).__name__, root) for root in roots)
    while todo:
        name, item = todo.popleft()
        if id(item) in seen or isinstance(item, SKIPPED):
            continue
        seen.add(id(item))
        if is_object(item):
            name = type(item).__name__
            seen.add(id(getattr(item, "__dict__", None)))
            todo.extend(fields_of(item))
        found[name] += sys.getsizeof(item)
        todo.extend((name, each) for each in referents(item))
    return found


class Look(NamedTuple):
    """What all nodes held at a time; bytes."""

    hour: float
    node: int
    """Of each node, on average."""
    state: int
    """Of the largest state file."""
    shards: int
    """Files of the shards of all nodes."""
    traced: int
    """Written to trace files since the look before."""
    parts: Counter[str]
    """Of each node, on average, by part."""


class TraceFile:
    """Counts what is written, and whether it was closed; keeps nothing."""

    def __init__(self, files: TraceFiles) -> None:
        self._files = files
        files.opened += 1
        files.open += 1

    def write(self, data: bytes, /) -> int:
        """Count the bytes of `data`; their number, as a file returns it."""
        self._files.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing, since no byte is buffered."""

    def close(self) -> None:
        """Count one open file less."""
        self._files.open -= 1


class TraceFiles:
    """The trace files of all nodes."""

    def __init__(self) -> None:
        self.size = self.opened = self.open = 0

    def file(self, path: str) -> TraceFile:
        """A file for appending."""
        return TraceFile(self)


# --- the run ---


class Days(ScenarioRun):
    """A scenario whose nodes are looked at now and then; with a stream, and certificates."""

    def __init__(
        self, scenario: Scenario, options: argparse.Namespace, progress: Progress, seconds: float
    ) -> None:
        self.files = TraceFiles()
        super().__init__(scenario, WireCodec(), progress, self.files.file)
        self.seconds = seconds
        self.looks: list[Look] = []
        self.appended: dict[int, float] = {}
        """Rows that were acknowledged, and when."""
        self.rows_lost = 0
        self.most_down = 0
        self._asked: dict[int, range] = {}
        self._rows = 0
        self._stream = options.stream
        self._subscriptions = options.subscriptions
        self._began = time.process_time()
        if options.keys:
            life = options.certificate * HOUR
            self.world.certificates = SimulatedCertificates(
                life,
                partial(RenewalTimes, self.world.generator("certificates").random),
                self._is_issuing,
                NODE_DAYS * DAY / life,
            )

    def _is_issuing(self, name: str) -> bool:
        issuer = self.world.drivers[self.population.names[0]]
        return issuer.alive and self.world.network.reachable(name, issuer.name)

    def publish(self, phase: FaultPhase, *, again: bool = False) -> None:
        """As of a scenario, with the looks and the rows."""
        world = self.world
        if self._stream:
            world.ask(
                world.names()[1],
                AddStream(world.clients.request(), STREAM, keep_seconds=KEEP * HOUR),
            )
            for number in range(int(self.seconds / APPEND_EVERY)):
                world.after(number * APPEND_EVERY, self._append)
        for number in range(1, LOOKS + 1):
            world.after(number * self.seconds / LOOKS, self._look)
        apart = LASTS * HOUR / max(1, self._subscriptions)
        for number in range(1, int(self.seconds / apart) + 1):
            world.after(number * apart, self._renew)
        super().publish(phase, again=again)

    def _renew(self) -> None:
        """End the oldest subscription, and subscribe until there are as many as at first."""
        lasting = [each for each in self._lasting() if each.identity]
        if lasting:
            self._end(lasting[0])
        for _ in range(self._subscriptions - len(self._lasting())):
            self._subscribe_one(len(self.world.clients.subscriptions))

    def judge(self, *, check_state: bool = True) -> Any:
        """As of a scenario, once the rows are read."""
        if self._stream:
            self._hear()
            self.rows_lost = len(self._missing())
        return super().judge(check_state=check_state)

    def _append(self) -> None:
        """Append some rows at a node that serves, and take what was answered so far."""
        self._hear()
        world, serving = self.world, self.population.serving()
        request = world.clients.request()
        rows = range(self._rows, self._rows + APPENDED)
        self._rows = rows.stop
        self._asked[request] = rows
        drafts = tuple(Draft({"row": row}, bytes(100)) for row in rows)
        node = serving[self._rng.randrange(len(serving))]
        world.drivers[node].command(CLIENT, AppendEvents(request, STREAM, drafts))

    def _hear(self) -> None:
        answers, now = self.world.clients.answers, self.world.now
        for request in [request for request in self._asked if request in answers]:
            rows = self._asked.pop(request)
            if isinstance(answers.pop(request), EventsAppended):
                self.appended |= dict.fromkeys(rows, now)

    def _missing(self) -> list[int]:
        """Rows that are not there, and were acknowledged since when they are kept."""
        stream = SimulatedStream(self.world, self.world.names()[-1], STREAM)
        reading = SimulatedReading(stream, start="first")
        found: set[int] = set()
        while reading.position < reading.end:
            found.update(int(str(event.attributes["row"])) for event in reading.take())
        reading.close()
        since = self.world.now - KEEP * HOUR + 120.0
        return [row for row, at in self.appended.items() if at > since and row not in found]

    def _look(self) -> None:
        world = self.world
        nodes = [world.node(name) for name in world.names()]
        drivers = world.drivers.values()
        others = (
            *(world, world.network, world.clients, world.recorder, world.traffic, world.settings),
            *drivers,
            *(driver.disk for driver in drivers),
            *(driver.logs for driver in drivers),
        )
        held = held_bytes(nodes, others)
        files = [
            sum(len(data) for shard in driver.logs.durable.values() for data in shard.values())
            for driver in drivers
        ]
        world.recorder.flush()
        traced = self.files.size - sum(look.traced for look in self.looks)
        hour = (world.now - self.faults_at) / HOUR
        look = Look(
            round(hour, 2),
            sum(held.values()) // max(1, len(nodes)),
            max(len(driver.disk.data) for driver in drivers),
            sum(files),
            traced,
            Counter({name: size // max(1, len(nodes)) for name, size in held.items()}),
        )
        self.looks.append(look)
        self.most_down = max(self.most_down, len(world.drivers) - len(nodes))
        print(
            f"{hour:.2f} h, {time.process_time() - self._began:.0f} CPU s: "
            f"{look.node:,} bytes a node, {len(nodes)} nodes",
            file=sys.stderr,
            flush=True,
        )


def growth(figures: Sequence[float]) -> float:
    """Of the last third over the one before, in percent."""
    third = len(figures) // 3
    before, after = sum(figures[-2 * third : -third]), sum(figures[-third:])
    return round(100 * (after / before - 1), 2) if before else 0.0


def grown(looks: Sequence[Look]) -> dict[str, int]:
    """Bytes by which the parts of a node have grown from the second third to the last."""
    third = len(looks) // 3
    found = Counter[str]()
    for look in looks[-third:]:
        found.update(look.parts)
    for look in looks[-2 * third : -third]:
        found.subtract(look.parts)
    return {name: size // third for name, size in found.most_common(SHOWN)}


def scenario_of(options: argparse.Namespace, seconds: float) -> tuple[Scenario, Counter[str]]:
    """The scenario of a seed, and how many faults of each kind."""
    drawn = Troubles(Random(f"{options.seed}/days"), options.nodes, seconds, options.trouble)
    scenario = Scenario(
        nodes=options.nodes,
        seed=options.seed,
        subscriptions=options.subscriptions,
        events=round(seconds * options.rate),
        rate=options.rate,
        shape=WorkloadShape(attributes=options.attributes),
        keys=options.keys,
        settings=Settings(
            cluster=ClusterSettings(split_trees=options.split_trees, tail_floor=TAIL),
            tree=CACHES,
        ),
        faults=tuple(drawn.faults),
        rest=10.0,
        probes=10,
    )
    return scenario, drawn.counted


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run it, and say what came of it."""
    seconds = options.minutes * 60 if options.minutes else options.hours * HOUR
    scenario, faults = scenario_of(options, seconds)
    began = time.process_time()
    run = Days(scenario, options, lambda stage, now, share: None, seconds)
    with ExitStack() as smaller:
        for module, name, bound in SMALLER:
            smaller.enter_context(patch.object(module, name, bound))
        verdict = judge_run(run)
    result, looks = verdict.result, run.looks
    certificates = run.world.certificates
    row: dict[str, Any] = {
        "nodes": options.nodes,
        "seed": options.seed,
        "minutes": round(seconds / 60),
        "faults": dict(sorted(faults.items())),
        "violations": len(verdict.violations),
        "texts": [f"{each.kind}: {each.text}" for each in verdict.violations[:SHOWN]],
    }
    if result is not None:
        counts = ("subscriptions", "published", "expected", "owed", "reported", "delivered")
        row |= {name: getattr(result, name) for name in (*counts, "clusters", "steps")}
    row |= {
        "cpu_s": round(time.process_time() - began),
        "bytes_per_node": [look.node for look in looks],
        "bytes_at_end": looks[-1].node if looks else None,
        "state_bytes": [look.state for look in looks],
        "shard_bytes": [look.shards for look in looks],
        "trace_bytes": [look.traced for look in looks],
        "trace_files": [run.files.opened, run.files.open],
        "growth": growth([look.node for look in looks]),
        "grown": grown(looks),
        "rows": len(run.appended),
        "rows_lost": run.rows_lost,
    }
    if options.keys:
        row["renewed"], row["in_vain"] = certificates.renewed, certificates.failed
        row["cut_off"] = certificates.cut_off
    if verdict.violations and options.stories:
        for story in verdict.stories[:3]:
            print(*story, sep="\n", file=sys.stderr)
    return row


def main(args: Sequence[str] | None = None) -> int:
    """Return 1 if a promise was broken or a row was lost."""
    options = parser(
        __doc__,
        nodes=(12, "nodes"),
        hours=(24.0, "simulated hours …"),
        minutes=(0.0, "… or minutes instead"),
        attributes=(30, "attributes of the load"),
        split_trees=(8, "trees from which on a cluster splits"),
        subscriptions=(60, "subscriptions at the beginning"),
        rate=(0.1, "events a second"),
        trouble=(600.0, "seconds between two faults, on average"),
        keys=(False, "nodes have keys"),
        certificate=(6.0, "hours that a certificate holds"),
        stream=(False, "append rows to a stream"),
        stories=(False, "print the records of what was violated"),
        seed=SEED,
    ).parse_args(args)
    found = measure(options)
    show(found, options)
    return int(bool(found["violations"] or found["rows_lost"]))


if __name__ == "__main__":
    sys.exit(main())
