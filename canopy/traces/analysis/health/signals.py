"""Tensor's eight signals, and its decision tree over them (section 4 C, table III and figure 7).

The signals stand in the order of the tree, the most harmful at its root: the first that a node
shows within the half hour makes it sub-healthy, with that signal's threat level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from canopy.traces.analysis.constants import HEALTH_WINDOW
from canopy.traces.analysis.health.history import NodeHistory
from canopy.traces.analysis.health.windows import NodeWindow
from canopy.traces.health_file import NodeFinding


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Values from which a signal is present, per window of two minutes unless noted.

    Where the paper's value cannot be reached here, the default is another one; `PAPER` has the
    paper's.
    """

    crashes: float = 1  # of the process
    log_least: float = 6  # fewer records than this: half of what a healthy node writes at least
    log_most: float = 1_000_000  # or more; the paper's number is unreadable. Guess
    heartbeats: float = (
        2  # other nodes that did not hear this one: with one, a tenth of the healthy
    )
    # windows beside faulty nodes are named, with two none, and no fault is missed (bench.health)
    late_ms: float = 1_000  # its own timers were late by this: a stall (links.heartbeat)
    latency_ms: float = 1_000  # round trips; the paper has 30 s, by which a link has ended here
    memory: float = 95  # percent; the paper has 100, which the kernel does not let it reach
    cpu: float = 95  # percent of one processor, which is all that a node can use
    disk: float = 95  # percent
    clients: float = 128  # programs, half of clients.programs; the paper has 20
    window: float = 1_800  # seconds that count: half an hour


PAPER: Final = Thresholds(heartbeats=1, latency_ms=30_000, memory=100, cpu=100, clients=21)
"""As in table III: any abnormal heartbeat, more than 30 s, more than 20 clients."""


class HealthSign(NamedTuple):
    """A value that shows one of the eight signals, by the name that it has in the health file.
    `value` returns the value seen in a window, or None without the signal; `says` words it."""

    signal: str
    severity: int
    name: str
    value: Value
    says: str


Value = Callable[["NodeHistory", int, "NodeWindow", "Thresholds"], "float | None"]


def _log(node: NodeHistory, number: int, window: NodeWindow, limits: Thresholds) -> float | None:
    if window.records > limits.log_most:
        return float(window.records)
    few = window.records < limits.log_least and node.was_running(number)
    return float(window.records) if few else None


def _heartbeats(
    node: NodeHistory, number: int, window: NodeWindow, limits: Thresholds
) -> float | None:
    reporters = len(window.reporters)
    return float(reporters) if reporters >= limits.heartbeats else None


def _at_least(limit: str) -> Value:
    def value(
        node: NodeHistory, number: int, window: NodeWindow, limits: Thresholds
    ) -> float | None:
        seen = window.worst.get("round_trip_ms" if limit == "latency_ms" else limit)
        return seen if seen is not None and seen >= getattr(limits, limit) else None

    return value


def _never(node: NodeHistory, number: int, window: NodeWindow, limits: Thresholds) -> float | None:
    return None  # `find` counts crashes over all windows


_USED: Final = {
    "memory": "percent of the memory in use",
    "cpu": "percent of a processor in use",
    "disk": "percent of the disk in use",
    "clients": "programs connected",
}

SIGNS: Final = (
    HealthSign("crash", 3, "crash", _never, "its process ended without stopping"),
    HealthSign("log", 2, "log", _log, "records in two minutes"),
    HealthSign("heartbeats", 2, "heartbeats", _heartbeats, "other nodes did not hear it"),
    HealthSign("heartbeats", 2, "late", _at_least("late_ms"), "ms by which its timers were late"),
    HealthSign("latency", 2, "latency", _at_least("latency_ms"), "ms for a round trip"),
    *(HealthSign(name, 1, name, _at_least(name), says) for name, says in _USED.items()),
)
"""Of the eight signals, from the root of the tree to its leaves, with Tensor's threat levels: 3
extremely high, 2 high, 1 relatively high."""


def crashes_by_window(node: NodeHistory, until: float) -> dict[int, int]:
    """Count the crashes of the node's process by window."""
    found: dict[int, int] = {}
    for time in node.crashes(until):
        number = int(time // HEALTH_WINDOW)
        found[number] = found.get(number, 0) + 1
    return found


def signals_of(
    node: NodeHistory, number: int, crashes: int, limits: Thresholds
) -> dict[str, float]:
    """The signs of signals that the node shows in its window `number`, each with its value."""
    window = node.windows.get(number, NodeWindow())
    found = {"crash": float(crashes)} if crashes >= limits.crashes else {}
    for sign in SIGNS:
        value = sign.value(node, number, window, limits)
        if value is not None:
            found[sign.name] = value
    return found


def find(node: NodeHistory, until: float, limits: Thresholds) -> NodeFinding:
    """Judge a node at the time `until` by the paper's tree."""
    oldest = int((until - limits.window) // HEALTH_WINDOW)
    crashes = crashes_by_window(node, until)
    seen: dict[str, float] = {}
    known = {*node.windows, *crashes}
    for number in range(max(oldest + 1, min(known, default=0)), max(known, default=-1) + 1):
        for name, value in signals_of(node, number, crashes.get(number, 0), limits).items():
            worst = min if name == "log" and value < limits.log_least else max
            seen[name] = worst(value, seen.get(name, value))
    for sign in SIGNS:
        if sign.name in seen:
            reason = f"{sign.signal}: {seen[sign.name]:g} {sign.says}"
            return NodeFinding(sign.severity, reason, seen, name=node.name)
    return NodeFinding(0, "", name=node.name)
