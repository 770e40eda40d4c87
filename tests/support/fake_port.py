"""The Port for tests of one machine: it collects what the machine says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar

from overlay.machine import Handler, LocalEvent, Machine, Message, Named, Peer, Timer

T = TypeVar("T")


class FakePort:
    """Collects what a machine sends and tells; the clock goes by hand (`advance`)."""

    def __init__(self, name: str = "me", seed: int = 1) -> None:
        self.me = Peer(name, f"{name}:1")
        self.rng = Random(f"{seed}.{name}")
        self.now = 1_000.0
        self.sent: list[tuple[Peer, Message]] = []
        self.emitted: list[LocalEvent] = []
        self.traces: list[tuple[str, dict[str, Any]]] = []
        self.counts: Counter[str] = Counter()
        self.timers: dict[Timer, float] = {}
        self._table: dict[type, list[Handler]] = {}

    # Port

    def send(self, peer: Peer, message: Message) -> None:
        self.sent.append((peer, message))

    def set_timer(self, delay: float, timer: Timer) -> None:
        self.timers[timer] = self.now + delay

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.pop(timer, None)

    def emit(self, event: LocalEvent) -> None:
        self.emitted.append(event)

    def trace(self, kind: str, **fields: Any) -> None:
        self.traces.append((kind, fields))

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        return events

    def count(self, name: str, amount: int = 1) -> None:
        self.counts[name] += amount

    # For tests

    def add(self, *machines: Machine) -> None:
        """Let `hear` and `advance` reach these machines."""
        for machine in machines:
            for kind, handler in machine.handlers().items():
                self._table.setdefault(kind, []).append(handler)

    def hear(self, what: Message | LocalEvent | Timer, sender: Peer | None = None) -> None:
        """Hand one struct to its handlers; messages need a sender."""
        for handler in self._table.get(type(what), []):
            if sender is None:
                handler(what)
            else:
                handler(sender, what)

    def advance(self, seconds: float) -> None:
        """Fire what falls due, in order."""
        end = self.now + seconds
        while self.timers:
            timer, when = min(self.timers.items(), key=lambda each: each[1])
            if when > end:
                break
            self.now = when
            del self.timers[timer]
            self.hear(timer)
        self.now = end

    def take(self, kind: type[T]) -> list[T]:
        """The messages of a type sent so far, without their receivers; forgets them."""
        found = [message for _, message in self.sent if isinstance(message, kind)]
        self.sent = [each for each in self.sent if not isinstance(each[1], kind)]
        return found

    def of(self, kind: type[T]) -> list[T]:
        """The events of a type emitted so far."""
        return [event for event in self.emitted if isinstance(event, kind)]

    def traced(self, kind: str) -> list[dict[str, Any]]:
        return [fields for what, fields in self.traces if what == kind]
