"""A made-up run of an overlay whose right answers are known: it writes traces as nodes would.

Also an evaluator of selector trees that shares nothing with Spark or `matching`: Python's own exact
comparisons, straight from the language's definition (docs/reference/selectors.md).
"""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from canopy.traces.analysis import AnalysisSummary, analyze
from canopy.traces.writer import TraceOptions, TraceWriter
from overlay.links.hybrid_clock import HybridClock

START = 1_790_000_000.0
ABOVE_5 = ["cmp", ">", ["attr", "a"], ["lit", 5]]
EVIL = "<script>alert('x')</script> & \"quotes\""
"""Text that a page must not show unescaped."""
Tree = list[Any]


def value(node: Any, attributes: dict[str, Any]) -> Any:
    match node:
        case ["attr", name]:
            seen = attributes.get(name)
            return seen if isinstance(seen, bool | int | float | str) else None
        case ["lit", literal]:
            return literal
        case ["neg", inner]:
            seen = value(inner, attributes)
            return -seen if is_number(seen) else None
        case ["arith", op, left, right]:
            return arithmetic(op, value(left, attributes), value(right, attributes))
    return verdict(node, attributes)


def is_number(seen: Any) -> bool:
    return isinstance(seen, int | float) and not isinstance(seen, bool)


def arithmetic(op: str, a: Any, b: Any) -> Any:
    if not is_number(a) or not is_number(b) or (op == "/" and b == 0):
        return None
    if op == "/":
        if isinstance(a, int) and isinstance(b, int):
            return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        result = a / b
    else:
        result = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}[op]()
    return result if isinstance(result, int) or math.isfinite(result) else None


def compare(op: str, a: Any, b: Any) -> bool | None:
    for kind in (bool, (int, float), str):
        if isinstance(a, kind) and isinstance(b, kind):
            if isinstance(a, bool) != isinstance(b, bool):
                return None
            return {
                "=": a == b,
                "<>": a != b,
                "<": a < b,
                "<=": a <= b,
                ">": a > b,
                ">=": a >= b,
            }[op]
    return None


def verdict(node: Any, attributes: dict[str, Any]) -> bool | None:
    match node:
        case ["attr", _] | ["lit", _]:
            seen = value(node, attributes)
            return seen if isinstance(seen, bool) else None
        case ["cmp", op, left, right]:
            return compare(op, value(left, attributes), value(right, attributes))
        case ["not", inner]:
            seen = verdict(inner, attributes)
            return None if seen is None else not seen
        case ["and", *parts]:
            seen = [verdict(part, attributes) for part in parts]
            return False if False in seen else None if None in seen else True
        case ["or", *parts]:
            seen = [verdict(part, attributes) for part in parts]
            return True if True in seen else None if None in seen else False
        case ["between", x, low, high]:
            return verdict(["and", ["cmp", ">=", x, low], ["cmp", "<=", x, high]], attributes)
        case ["in", x, choices]:
            return verdict(["or", *(["cmp", "=", x, ["lit", c]] for c in choices)], attributes)
        case ["isnull", x]:
            return value(x, attributes) is None
        case ["like", x, pattern, escape]:
            seen = value(x, attributes)
            return like(seen, pattern, escape) if isinstance(seen, str) else None
    raise AssertionError(node)


def like(text: str, pattern: str, escape: str | None) -> bool:
    out, position = "", 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            position += 1
            if position == len(pattern):
                return False
            out += re.escape(pattern[position])
        else:
            out += {"%": ".*", "_": "."}.get(character, re.escape(character))
        position += 1
    return re.fullmatch(out, text, re.DOTALL) is not None


def digest(attributes: dict[str, Any]) -> int:
    """The digest of an event without a payload, by the definition in docs/design/traces.md."""
    ordered = json.dumps(attributes, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return crc32(ordered.encode()) << 31


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@dataclass
class Subscription:
    identity: str
    node: str
    tree: Tree
    acked: float = 0.0


@dataclass
class Overlay:
    """Nodes that write the traces of a made-up run into `folder`."""

    folder: Path
    nodes: int = 4
    seed: int = 1
    clock: Clock = field(default_factory=Clock)
    subscriptions: list[Subscription] = field(default_factory=list)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    sample: float = 1.0
    first: int = 0xA0  # the identity of node 0; the others follow
    overlay: str = "canopy"

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.numbers: dict[tuple[str, str], int] = {}  # given by (node.run, what)
        self.ids: dict[str, str] = {}  # of users, by event
        self.hybrid = HybridClock(self.clock, START)
        self.names = [f"{self.first + number:016x}" for number in range(self.nodes)]
        self.runs = dict.fromkeys(self.names, 1)
        self.writers = {name: self._writer(name, 1) for name in self.names}
        for number, name in enumerate(self.names):
            self.write(name, "start", address=f"127.0.0.1:{7000 + number}", name=f"node-{number}")
            for peer in self.names[:number]:
                self.write(name, "link", peer=peer, reason="up")

    def _writer(self, name: str, run: int) -> TraceWriter:
        return TraceWriter(
            self._open,
            name,
            self.clock,
            TraceOptions(self.sample, check=True),
            hybrid=self.hybrid.read,
            run=run,
            overlay=self.overlay,
        )

    def _open(self, path: str) -> Any:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("ab")

    def write(self, node: str, kind: str, **fields: Any) -> None:
        self.writers[node].write(kind, fields)

    def restart(self, node: int) -> None:
        """The node's process was killed, and another one starts."""
        name = self.names[node]
        self.writers[name].close()
        self.runs[name] += 1
        self.writers[name] = self._writer(name, self.runs[name])
        self.write(name, "start", address="again", name=f"node-{node}")

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    def subscribe(
        self,
        node: int,
        tree: Tree,
        name: str | None = None,
        selector: str | None = None,
        ack: bool = True,
    ) -> str:
        home = self.names[node]
        identity = self._identity(home, "subscribed")
        subscription = Subscription(identity, home, tree)
        self.write(
            home,
            "subscribe",
            subscription=identity,
            name=name or f"sub-{len(self.subscriptions)}",
            selector=selector,
            tree=json.dumps(tree),
        )
        self.subscriptions.append(subscription)
        if ack:
            self.suback(identity)
        return identity

    def suback(self, identity: str) -> None:
        self.wait(0.01)
        self.write(self._home(identity), "suback", subscription=identity)
        self.wait(0.01)

    def unsubscribe(self, identity: str) -> None:
        self.write(self._home(identity), "unsubscribe", subscription=identity)

    def _identity(self, home: str, what: str) -> str:
        """The next number of this process, as nodes give them."""
        key = (f"{home}.{self.runs[home]}", what)
        self.numbers[key] = self.numbers.get(key, 0) + 1
        return f"{key[0]}.{self.numbers[key]}"

    def _home(self, identity: str) -> str:
        return identity.split(".")[0]

    def publish(self, node: int, attributes: dict[str, Any]) -> str:
        home = self.names[node]
        event = self._identity(home, "published")
        self.events[event] = attributes
        self.ids[event] = str(len(self.events))
        self.wait(0.002)
        self.write(
            home,
            "publish",
            event=event,
            id=self.ids[event],
            attributes=attributes,
            size=len(json.dumps(attributes)),
            digest=digest(attributes),
        )
        return event

    def walk(self, node: int, attribute: str, hops: int, hit: bool, blocked: bool = False) -> None:
        """A walk of `hops` hops that hits at the last, or misses and asks the ring."""
        home = self.names[node]
        walk = f"{home}.{self.rng.random()}"
        self.write(home, "walk_start", walk=walk, attribute=attribute, hops=10)
        here = home
        for hop in range(1, hops + 1):
            there = self.names[(self.names.index(here) + 1) % self.nodes]
            self.wait(0.0004)
            self.write(here, "walk_hop", walk=walk, attribute=attribute, hop=hop, peer=there)
            here = there
        if blocked:
            self.write(here, "walk_blocked", walk=walk, attribute=attribute, hop=hops)
            self.write(here, "walk_recovered", walk=walk, attribute=attribute, hop=hops, peer=home)
        end = "walk_hit" if hit else "walk_miss"
        fields = {"peer": here} if hit else {}
        self.write(here, end, walk=walk, attribute=attribute, hop=hops, **fields)
        self.wait(0.0005)
        self.write(home, "located", attribute=attribute, by="walk" if hit else "ring", hops=hops)

    def route(self, event: str, host: int, attribute: str, targets: list[int]) -> None:
        """Visit, match and forward."""
        home, place = event.split(".")[0], self.names[host]
        self.wait(self.rng.uniform(0.0003, 0.0015))
        self.write(home, "visit", event=event, attribute=attribute, hop=1, peer=place)
        self.wait(self.rng.uniform(0.0002, 0.0008))
        self.write(
            place,
            "match",
            event=event,
            attribute=attribute,
            lo="0.0",
            hi="5.5",
            version=3,
            recipients=len(targets),
        )
        for target in targets:
            to = self.names[target]
            self.write(place, "forward", event=event, attribute=attribute, peer=to, hop=2)
        self.wait(self.rng.uniform(0.0003, 0.002))
        for target in targets:
            to = self.names[target]
            self.write(to, "arrive", event=event, attribute=attribute, peer=place, hop=2)

    def deliver(self, event: str, identity: str, latency_ms: float, attribute: str = "a") -> None:
        self.write(
            self._home(identity),
            "deliver",
            event=event,
            id=self.ids.get(event, event),
            digest=digest(self.events.get(event, {})),
            subscription=identity,
            latency_ms=latency_ms,
            attribute=attribute,
            hops=2,
            lo="0.0",
            hi="5.5",
        )

    def stop(self, data: int = 100, other: int = 50, kill: int | None = None) -> None:
        """All nodes stop; node number `kill` without a stop record."""
        self.wait(2.0)
        for number, name in enumerate(self.names):
            if number != kill:
                self.write(
                    name,
                    "stop",
                    data_messages=data,
                    other_messages=other,
                    bytes=data * 300,
                    reason="asked to",
                    **{
                        what: self.numbers.get((f"{name}.{self.runs[name]}", what), 0)
                        for what in ("published", "subscribed")
                    },
                )
            self.writers[name].close()


BUSY_SELECTORS: list[tuple[str, str, Tree]] = [
    ("big ones", "mag >= 4.5", ["cmp", ">=", ["attr", "mag"], ["lit", 4.5]]),
    (
        "Alaska",
        "place LIKE '%Alaska' AND mag > 2",
        [
            "and",
            ["like", ["attr", "place"], "%Alaska", None],
            ["cmp", ">", ["attr", "mag"], ["lit", 2]],
        ],
    ),
    (
        "deep <or> \"felt\" & 'strong'",
        "depth > 100 OR felt IS NOT NULL",
        [
            "or",
            ["cmp", ">", ["attr", "depth"], ["lit", 100]],
            ["not", ["isnull", ["attr", "felt"]]],
        ],
    ),
    (
        "networks",
        "net IN ('us', 'nc') AND NOT (type = 'quarry blast')",
        [
            "and",
            ["in", ["attr", "net"], ["us", "nc"]],
            ["not", ["cmp", "=", ["attr", "type"], ["lit", "quarry blast"]]],
        ],
    ),
    ("tsunami", "tsunami = 1", ["cmp", "=", ["attr", "tsunami"], ["lit", 1]]),
]


def busy_run(folder: Path, nodes: int = 12, events: int = 400, seed: int = 7) -> Overlay:
    """A run in which everything goes right, with earthquake-like events."""
    overlay = Overlay(folder, nodes, seed)
    rng = overlay.rng
    for number, (name, selector, tree) in enumerate(BUSY_SELECTORS * 2):
        overlay.subscribe(number % nodes, tree, f"{name} {number // 5 + 1}", selector)
    overlay.wait(1.0)
    for number in range(events):
        mag = round(rng.expovariate(0.6), 2)
        attributes = {
            "id": f"us{number}",
            "mag": mag,
            "place": rng.choice(
                ["10 km N of Nome, Alaska", "Geysers, CA", "Tonga", "Kodiak, Alaska"]
            ),
            "depth": round(rng.expovariate(0.02), 1),
            "net": rng.choice(["us", "nc", "ak", "hv"]),
            "type": rng.choice(["earthquake", "quarry blast"]),
            "felt": rng.choice([None, None, None, 12]),
            "tsunami": int(rng.random() < 0.02),
        }
        publisher = number % nodes
        event = overlay.publish(publisher, attributes)
        if number < 3 * nodes:
            overlay.walk(
                publisher,
                rng.choice(["mag", "net"]),
                rng.randint(1, 6),
                rng.random() < 0.8,
                rng.random() < 0.1,
            )
        chosen = [s for s in overlay.subscriptions if verdict(s.tree, attributes)]
        homes = {overlay.names.index(s.node): None for s in chosen}
        overlay.route(event, rng.randrange(nodes), "mag", list(homes))
        for subscription in chosen:
            latency = (overlay.clock.now - START) * 0 + rng.lognormvariate(1.2, 0.7)
            overlay.deliver(event, subscription.identity, latency, "mag")
        overlay.wait(rng.expovariate(20))
    overlay.stop(data=events // 2)
    return overlay


@dataclass
class Analysed:
    """A run, its report's folder, the summary, the stages that were announced, notes, and the ids
    of Spark's jobs for it."""

    overlay: Overlay
    out: Path
    summary: AnalysisSummary
    stages: list[tuple[str, int, int]]
    notes: dict[str, str]
    jobs: list[int]

    def table(self, spark: Any, name: str) -> list[dict[str, Any]]:
        frame = spark.read.parquet(str(self.out / "tables" / name))
        return [row.asDict() for row in frame.collect()]


def analysed(
    spark: Any, overlay: Overlay, out: Path, notes: dict[str, str] | None = None
) -> Analysed:
    """Analyse what `overlay` has written; the report goes to `out`."""
    stages: list[tuple[str, int, int]] = []
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    summary = analyze(overlay.folder, out, progress=lambda *a: stages.append(a), session=spark)
    jobs = [job for job in tracker.getJobIdsForGroup() if job not in before]
    return Analysed(overlay, out, summary, stages, notes or {}, jobs)


CORRUPT_LINES: list[tuple[bytes, str]] = [
    (b'{"v":2,"time":1790000000.5,"node":"a0","ki', "cut off"),
    (b"hello <b>", "not a JSON object"),
    (b"[1,2]", "not a JSON object"),
    (b'"text"', "not a JSON object"),
    (b'{"a":1}', "not a trace record"),
    (b'{"v":2,"kind":7,"a":{"b":2}}', "unknown kind 7"),
    (b'{"v":2,"time":"noon","node":"a0","kind":"ready"}', "not a JSON object with the fields"),
    (b'{"v":2,"time":NaN,"node":"a0","kind":"ready"}', "not a JSON object with the fields"),
    (b'{"v":7,"time":1790000000.5,"node":"a0","kind":"ready"}', "schema version 7, not 2 to 3"),
    (b'{"v":2,"time":1790000000.5,"node":"a0","kind":"dance"}', "unknown kind dance"),
    (b'{"v":2,"time":1790000000.5,"kind":"ready"}', "no node or no time"),
    (b'{"v":1,"time":1790000000.5,"node":"a0","kind":"ready"}', "schema version 1, not 2 to 3"),
    (b'{"v":2,"time":1.5,"node":"a0","run":1,"n":4,"kind":"ready"}', "no run, number or hybrid"),
    (b'{"v":2,"time":1.5,"node":"a0","run":1,"kind":"file"}', "no overlay in a record of kind"),
    (
        b'{"v":2,"time":1.5,"hlc":4,"node":"a0","run":1,"n":4,"kind":"publish"}',
        "no event in a record of kind publish",
    ),
    (b'{"v":2,"time":1.5,"node":"\xff\xfe","kind":"ready"}', "invalid UTF-8"),
    (b"\x00\x01\x02", "not a JSON object"),
]
"""Lines that are no records, and how the reason begins."""
