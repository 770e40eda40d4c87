"""What an interested node pays for an event that a host has matched for it.

`python -m bench.node.receiving --json` gives a `Receiver` deliveries of `BATCH` events, all for one
program that gathers, and measures its processor time per event: `matched_us` where it has to match
the event against all its subscriptions, `named_us` where the host names a registration that it has
found; `ordered_us` and `ordered_named_us` are the same where the tree is cut, and other events of
the publisher visited another host shortly before. Selectors are those of
`bench.node.two_processes`. `bytes` and `named_bytes` are those of a delivery per event, as it is
encoded for a link.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from random import Random
from typing import Any, Final

from bench.node.two_processes import HOT, draft, selector
from canopy.wire.transport.codec import WireCodec
from matching import EVERYTHING, TOP, Interval, compile_selector, place
from overlay.client import Event
from overlay.machine import LocalEvent, Peer, Timer
from overlay.settings import Settings
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.messages import Deliver, SentBefore
from overlay.upper_tree.subscriber.receiver import Receiver

BATCH: Final = 16
EVENTS: Final = 2_048
HOST: Final = Peer("h" * 16, "")
OTHER: Final = Peer("o" * 16, "")


class Port:
    """What the receiver needs of its node; says nothing to anybody."""

    me = Peer("0123456789abcdef", "")
    now = 1.0

    def trace_marks(self, incarnation: int, first: int, count: int) -> Sequence[bool] | None:
        return None

    def sampled(self, events: Sequence[Event]) -> Sequence[Event]:
        return ()

    def count(self, name: str, amount: int = 1) -> None: ...
    def emit(self, event: LocalEvent) -> None: ...
    def set_timer(self, delay: float, timer: Timer) -> None: ...
    def cancel_timer(self, timer: Timer) -> None: ...


class Bench:
    """A receiver with a number of subscriptions, and events that match them."""

    def __init__(self, subscriptions: int, has_text: bool) -> None:
        rng = Random(1)
        self.receiver = Receiver(Port(), Settings(), EventHistory(4_096))  # type: ignore[arg-type]
        for number in range(subscriptions):
            id_ = f"{Port.me.id}.1.{number}"
            predicate = compile_selector(selector(rng, 0, 2, has_text))
            self.receiver.add(id_, predicate, {f"{id_}/0": 1}, (HOT,), gathered=1)
        self.wanted: list[tuple[dict[str, Any], str]] = []
        while len(self.wanted) < EVENTS:
            fields = dict(draft(rng, 1).attributes)
            if found := self.receiver.gathering.find(fields):
                self.wanted.append((fields, found[1].removeprefix(Port.me.id) + "/0"))
        self.sequence = 0

    def deliveries(self, is_named: bool, is_ordered: bool) -> list[Deliver]:
        found: list[Deliver] = []
        for start in range(0, EVENTS, BATCH):
            some = self.wanted[start : start + BATCH]
            first = self.sequence
            self.sequence += BATCH
            events = tuple(
                Event("p" * 16, 1, first + n, 1.7e9 + n, fields, b"x" * 100)
                for n, (fields, _) in enumerate(some, 1)
            )
            names = tuple([name for _, name in some]) if is_named else ()
            part: Interval = EVERYTHING
            before: tuple[SentBefore, ...] = ()
            if is_ordered:
                part = Interval(place(0.0), TOP)
                before = (SentBefore(OTHER.id, (HOT,), first, self.sequence, 0),)
            message = Deliver(
                HOT, part, 2, events, before=before, through=self.sequence, found=names
            )
            found.append(message)
        return found

    def cost(self, is_named: bool, is_ordered: bool = False) -> float:
        """Microseconds of processor time per event."""
        messages = self.deliveries(is_named, is_ordered)
        began = time.process_time()
        for message in messages:
            self.receiver.on_deliver(HOST, message)
        return round((time.process_time() - began) / EVENTS * 1e6, 1)


def measure(subscriptions: int, has_text: bool) -> dict[str, Any]:
    bench, codec = Bench(subscriptions, has_text), WireCodec()
    for is_named in (False, True):
        bench.cost(is_named)  # what is compiled at first use is
    plain, named = (bench.deliveries(is_named, False)[0] for is_named in (False, True))
    return {
        "subscriptions": subscriptions,
        "text": has_text,
        "matched_us": bench.cost(False),
        "named_us": bench.cost(True),
        "ordered_us": bench.cost(False, True),
        "ordered_named_us": bench.cost(True, True),
        "bytes": round(len(codec.encode_one(plain)) / BATCH),
        "named_bytes": round(len(codec.encode_one(named)) / BATCH),
    }


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.node.receiving` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.node.receiving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--subscriptions", type=int, nargs="*", default=[16, 64, 1_000, 4_000])
    options = parser.parse_args(args)
    rows = [measure(count, False) for count in options.subscriptions]
    rows.append(measure(options.subscriptions[-1], True))
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(", ".join(f"{key}: {value:,}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
