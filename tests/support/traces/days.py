"""A made-up week of an overlay, with faults: losses, late files, subscriptions that span days."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.support.traces.runs import ABOVE_5, START, Overlay

DAY = 86_400.0
MIDNIGHT = START // DAY * DAY
"""Of the first day."""


def day(number: int) -> str:
    """The name of a day, from 1 on."""
    return f"{datetime.fromtimestamp(MIDNIGHT + (number - 1) * DAY, UTC):%Y-%m-%d}"


def end_of(number: int) -> float:
    return MIDNIGHT + number * DAY


@dataclass
class Week:
    """The overlay, and files that come later than those of their day."""

    overlay: Overlay
    late: dict[Path, int] = field(default_factory=dict)  # when: number of a day
    partial: dict[Path, int] = field(default_factory=dict)  # has only half of its lines until then

    def files(self, node: int, number: int) -> list[Path]:
        name = self.overlay.names[node]
        return sorted((self.overlay.folder / f"date={day(number)}" / f"node={name}").glob("*"))


def week(folder: Path) -> Week:
    """Five nodes; 0 and 1 publish, 2 to 4 subscribe. Every day has events at noon, some beside
    midnight, and most of them something that goes wrong."""
    o = Overlay(folder, 5)
    made = Week(o)
    o.wait(60)
    always = o.subscribe(2, ABOVE_5, "always", "a > 5")
    short = o.subscribe(3, ABOVE_5, "short", "a > 5")
    killed = o.subscribe(4, ABOVE_5, "killed", "a > 5")
    late_ack = o.subscribe(3, ["cmp", "=", ["attr", "b"], ["lit", 1]], "late", "b = 1", ack=False)

    def until(number: int, seconds: float) -> None:
        o.clock.now = max(o.clock.now, MIDNIGHT + (number - 1) * DAY + seconds)

    def send(node: int, wanted: list[str], lost: tuple[str, ...] = (), **more: object) -> str:
        event = o.publish(node, {"a": 6, **more})
        o.route(event, 1, "a", [2, 3])
        for identity in wanted:
            if identity not in lost:
                o.deliver(event, identity, 2.0)
        return event

    living = [always, short, killed]
    faults: dict[int, Callable[[], object]] = {
        1: lambda: send(0, living, (always,)),  # a loss
        2: lambda: o.deliver(send(0, living), short, 3.0),  # twice
        3: lambda: o.write(o.names[1], "drop", event=send(1, living, (always,)),
                           peer=o.names[2], reason="held too long"),
        4: lambda: o.deliver(o.publish(0, {"a": 1}), always, 2.0),  # spurious
        5: lambda: o.walk(0, "a", 3, hit=True, blocked=True),
    }  # fmt: skip
    for number in range(1, 8):
        until(number, 60_000)
        if number == 2:
            o.writers[o.names[4]].close()  # killed, which shows when it starts again
            living = [always, short]
        if number == 6:
            o.restart(4)
        for _ in range(4):
            send(0, living)
        send(1, living)
        faults.get(number, lambda: None)()
        if number == 2:
            o.suback(late_ack)
        if number == 3:
            o.unsubscribe(short)
            living = [always]
            o.wait(5)
            o.restart(1)  # was killed
        if number == 4:
            new = o.subscribe(3, ABOVE_5, "new", "a > 5")
            living = [always, new]
        until(number, DAY - 0.004)  # published before midnight, delivered after it
        event = o.publish(0, {"a": 7})
        o.wait(0.010)
        for identity in living:
            if number != 5 or identity == always:  # a loss at midnight
                o.deliver(event, identity, 10.0)
        for writer in o.writers.values():
            writer.flush()
    o.stop()
    made.late |= dict.fromkeys(made.files(2, 2), 4)  # a subscriber's, with its deliveries
    made.late |= dict.fromkeys(made.files(0, 5), 7)  # the publisher's of a day
    made.partial |= dict.fromkeys(made.files(3, 4), 6)
    return made


def as_of(made: Week, number: int, full: dict[Path, bytes]) -> None:
    """Let the folder have what had come by the end of this day; `full` are all files' bytes."""
    for path, data in full.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if made.late.get(path, 0) > number:
            path.unlink(missing_ok=True)
        elif made.partial.get(path, 0) > number:
            lines = data.split(b"\n")
            path.write_bytes(b"\n".join(lines[: len(lines) // 2]) + b"\n")
        else:
            path.write_bytes(data)
