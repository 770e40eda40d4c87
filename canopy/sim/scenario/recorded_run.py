"""The contents of a trace folder: subscriptions, publications with their times, and the cost of the
run.

The same tally reads the records of real nodes and of simulated ones, so both are counted alike.
This module gets the lines of files that are opened elsewhere. Expected deliveries are the oracle's
(canopy/sim/checks/oracle.py) for both.

A subscription that ended after the last event counts as one that did not end: otherwise the events
of the last seconds would not be expected (the oracle's grace), and a demo ends right after them.

Traces have no payloads and no topology. Times are the nodes' own wall clocks, so with nodes on
several machines an order within their clocks' difference means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from canopy.sim.checks.oracle import expectation
from canopy.sim.world.clients import Clients, Publication, SimulatedSubscription
from canopy.traces.schema import VERSION
from matching import SelectorError, Value, compile_selector


class TracesError(ValueError):
    """The traces cannot be replayed; the message says why."""


MOST_TOLD = 5
"""The most unreadable lines that are reported individually."""

STEPS = {"walk_hop": "walk", "walk_recovered": "walk", "visit": "visit", "forward": "deliver"}
"""Records of a data-plane message that a node sends to `peer`, and its purpose
(canopy/sim/world/traffic.py)."""


USED = (
    *STEPS,
    "sampling",
    "match",
    "unmatched",
    "deliver",
    "file",
    "start",
    "stop",
    "subscribe",
    "suback",
    "unsubscribe",
    "publish",
)
"""Kinds of records that are read."""

MOST_RECORDS = 4_000_000
"""The most records in memory: some 3 GB. Larger folders are refused."""


class PerNode(msgspec.Struct, frozen=True):
    """The distribution of a number over the nodes."""

    most: int  # at one node
    mean: float  # of all nodes
    nodes: int  # that had any


class Expense(msgspec.Struct, frozen=True):
    """The cost of a run, recorded or simulated: counts of messages and hops, latencies in
    milliseconds, and a comparison of deliveries with the expected ones."""

    name: str
    nodes: int
    routing: str
    subscriptions: int
    published: int
    expected: int
    delivered: int
    missing: int
    duplicates: int
    messages: int  # data plane
    by_kind: dict[str, int]  # … by purpose
    lower_bound: int
    times_lower_bound: float
    other_messages: int | None  # None: some node did not live to say it
    hops_median: int
    hops_99: int
    latency_median_ms: float
    sent: PerNode  # data-plane messages by their sender
    matched: PerNode  # (event, attribute) pairs by the host that matched them


class RunTally:
    """Sums up trace records, of real or of simulated nodes: messages, hops, matches."""

    def __init__(self) -> None:
        self.by_kind: dict[str, int] = dict.fromkeys(STEPS.values(), 0)
        self.shown: dict[tuple[str, str], int] = {}
        """The number of deliveries of each (subscription, event)."""
        self.routing = ""
        self._sent: dict[str, int] = {}
        self._matched: dict[str, int] = {}
        self._hops: list[int] = []
        self._latencies: list[float] = []
        self._running: dict[str, None] = {}
        self._others = 0
        self._killed = False

    def add(self, node: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Count one record: its node, its kind and the fields of that kind."""
        if kind in STEPS:
            if fields.get("peer") != node:  # what stays at home is no message
                self.by_kind[STEPS[kind]] += 1
                self._sent[node] = self._sent.get(node, 0) + 1
        elif kind in ("match", "unmatched"):
            events = 1 if kind == "match" else int(fields["size"])
            self._matched[node] = self._matched.get(node, 0) + events
        elif kind == "deliver":
            pair = (fields["subscription"], fields["event"])
            self.shown[pair] = self.shown.get(pair, 0) + 1
            self._hops.append(int(fields.get("hops", 0)))
            self._latencies.append(float(fields.get("latency_ms", 0.0)))
        elif kind == "start":
            self._killed |= node in self._running
            self._running[node] = None
            self.routing = fields.get("routing", self.routing)
        elif kind == "stop":
            self._running.pop(node, None)
            self._others += int(fields.get("other_messages", 0))

    def expense(self, name: str, nodes: int, clients: Clients) -> Expense:
        """Return the cost of the run, with deliveries compared to those that the clients could
        expect."""
        expected = expectation(clients)
        messages = sum(self.by_kind.values())
        bound = expected.lower_bound
        complete = not self._killed and not self._running
        return Expense(
            name=name,
            nodes=nodes,
            routing=self.routing or "pivot",
            subscriptions=len(clients.subscriptions),
            published=sum(1 for p in clients.publications if p.identity),
            expected=len(expected.expected),
            delivered=len(self.shown),
            missing=sum(1 for pair in expected.expected if pair not in self.shown),
            duplicates=sum(self.shown.values()) - len(self.shown),
            messages=messages,
            by_kind=dict(self.by_kind),
            lower_bound=bound,
            times_lower_bound=round(messages / bound, 3) if bound else 0.0,
            other_messages=self._others if complete else None,
            hops_median=int(quantile(self._hops, 0.5)),
            hops_99=int(quantile(self._hops, 0.99)),
            latency_median_ms=round(quantile(self._latencies, 0.5), 3),
            sent=_load(self._sent, nodes),
            matched=_load(self._matched, nodes),
        )


def quantile(values: list[Any], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed; 0 if there
    are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _load(found: dict[str, int], nodes: int) -> PerNode:
    return PerNode(
        max(found.values(), default=0), round(sum(found.values()) / nodes, 2), len(found)
    )


class RecordedRun:
    """A run that is read from a trace folder."""

    def __init__(self, lines: Iterable[tuple[str, bytes]]) -> None:
        """`lines`: each with its place. TracesError if there is nothing to replay."""
        self.tally = RunTally()
        self.clients = Clients()
        self.nodes: list[str] = []
        """The nodes' ids, in order of their first record."""
        self.unreadable: list[str] = []
        """Place and reason of the first `MOST_TOLD` unreadable lines."""
        self.unread = 0
        self.sampled = 1.0
        """The smallest share of events that a node kept."""
        self._subscriptions: dict[str, SimulatedSubscription] = {}
        self._numbers: dict[str, int] = {}
        records = sorted(self._records(lines), key=lambda record: record["time"])
        for record in records:
            self._take(record)
        if not records:
            raise TracesError("no trace records" + self._why())
        if not self.clients.publications:
            raise TracesError(f"{len(records)} trace records, but no event was published in them")
        last = max(event.published for event in self.clients.publications)
        for found in self.clients.subscriptions:
            if found.ended is not None and found.ended > last:
                found.ending = found.ended = None

    def expense(self) -> Expense:
        """Messages and latencies of the recorded run, for comparison with its replays."""
        return self.tally.expense("recorded", len(self.nodes), self.clients)

    # --- reading ---

    def _records(self, lines: Iterable[tuple[str, bytes]]) -> Iterable[dict[str, Any]]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        count = 0
        for where, line in lines:
            if not line.strip():
                continue
            try:
                record = decode(line)
                record["time"] = float(record["time"])
                if not isinstance(record["node"], str) or not isinstance(record["kind"], str):
                    raise ValueError("node and kind are texts")
                if int(record.get("v", 0)) > VERSION:
                    raise TracesError(
                        f"{where} is of version {record['v']} of the trace records; "
                        f"this program reads up to {VERSION}"
                    )
            except TracesError:
                raise
            except (ValueError, KeyError, TypeError) as error:
                self._cannot(where, f"{type(error).__name__}: {error}")
                continue
            record["where"] = where
            if record["kind"] in USED:
                count += 1
                if count > MOST_RECORDS:
                    raise TracesError(f"more than {MOST_RECORDS:,} records; take fewer folders")
                yield record

    def _cannot(self, where: str, why: str) -> None:
        self.unread += 1
        if len(self.unreadable) < MOST_TOLD:
            self.unreadable.append(f"{where}: {why}")

    def _why(self) -> str:
        return (
            f"; {self.unread} lines could not be read: {self.unreadable[0]}" if self.unread else ""
        )

    def _take(self, record: dict[str, Any]) -> None:
        node, kind, time = record["node"], record["kind"], record["time"]
        if node not in self._numbers:
            self._numbers[node] = len(self.nodes)
            self.nodes.append(node)
        try:
            match kind:
                case "file":
                    self.sampled = min(self.sampled, float(record["sample"]))
                case "sampling":
                    self.sampled = min(self.sampled, float(record["share"]))
                case "start" | "stop":
                    self._all_end(node, time)
                case "subscribe":
                    self._subscribe(record)
                case "suback" | "unsubscribe":
                    self._change(kind, record["subscription"], time)
                case "publish":
                    self._publish(record)
            self.tally.add(node, kind, record)
        except TracesError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            self._cannot(record["where"], f"a {kind} record: {type(error).__name__}: {error}")

    def _subscribe(self, record: dict[str, Any]) -> None:
        selector, identity = record["selector"], record["subscription"]
        try:
            compile_selector(selector)
        except SelectorError as error:
            raise TracesError(f"{record['where']}: {selector!r}: {error}") from None
        name, level = record.get("name", ""), int(record.get("level", 0))
        found = SimulatedSubscription(
            record["node"], 0, selector, name, record["time"], level, identity=identity
        )
        self._subscriptions[identity] = found
        self.clients.subscriptions.append(found)

    def _change(self, kind: str, identity: str, time: float) -> None:
        found = self._subscriptions.get(identity)
        if found is None:
            return  # began before these traces
        if kind == "suback":
            found.acknowledged = time
        elif found.ended is None:
            found.ending = found.ended = time

    def _all_end(self, node: str, time: float) -> None:
        """End all subscriptions of a node's former process."""
        for found in self.clients.subscriptions:
            if found.node == node and found.ended is None:
                found.ending = found.ended = time

    def _publish(self, record: dict[str, Any]) -> None:
        attributes: dict[str, Value | None] = msgspec.json.decode(
            record["attributes"], type=dict[str, Value | None]
        )
        time = record["time"]
        self.clients.publications.append(
            Publication(record["node"], attributes, time, record["event"], time)
        )
