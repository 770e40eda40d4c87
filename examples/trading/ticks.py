"""A market's events for desks that differ in haste: latency levels under a burst.

    canopy node --data floor &
    canopy node --data market --listen 127.0.0.1:4471 --peer 127.0.0.1:4470 &
    python examples/trading/ticks.py floor market [EVENTS]

At the floor's node risk asks for large trades with latency level 1, the traders for quotes without
a level, and the archive for the depth of the book with level 5 (1 is most urgent). The market then
publishes all three types mixed, as fast as its node takes them. Where the host of their tree is
behind it matches first what is urgent for its `type`, so trades pass depths that came earlier, by
0.4 s at most (docs/design/timeliness.md). Printed for each desk: how many events it was owed and
got, and the median and 99th percentile of the time that they took.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from random import Random
from statistics import quantiles

import canopy
from matching import compile_selector

EVENTS, SEED = 20_000, 1
PATIENCE = 60.0
"""Seconds for an event to come."""

DESKS = {  # name: what it asks for, and its latency level
    "risk": ("type = 'trade' AND size >= 500", 1),
    "traders": ("type = 'quote' AND symbol IN ('ACME', 'BETA')", 0),
    "archive": ("type = 'depth'", 5),
}


def ticks(number: int, draw: Random) -> list[dict[str, str | int | float]]:
    """A random walk of four prices."""
    prices = {"ACME": 100.0, "BETA": 50.0, "CORP": 20.0, "DUNE": 5.0}
    made: list[dict[str, str | int | float]] = []
    for _ in range(number):
        symbol = draw.choice(list(prices))
        prices[symbol] = round(max(0.01, prices[symbol] * draw.gauss(1, 0.001)), 4)
        made.append(
            {
                "type": draw.choice(["trade", "quote", "depth"]),
                "symbol": symbol,
                "price": prices[symbol],
                "size": draw.randint(1, 1_000),
            }
        )
    return made


def take(subscription: canopy.Subscription, owed: int, taken: list[float]) -> None:
    """Take what comes, until all that is owed has come or nothing comes; keep how long it took."""
    while len(taken) < owed and (more := subscription.receive(timeout=PATIENCE)):
        taken += [each.latency_ms for each in more if isinstance(each, canopy.Delivery)]


def main(args: Sequence[str]) -> int:
    """Return 0 if every desk got what it was owed."""
    if len(args) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    burst = ticks(int(args[2]) if len(args) > 2 else EVENTS, Random(SEED))
    whole, desks = True, []
    with canopy.connect(args[0]) as floor, canopy.connect(args[1]) as market:
        for name, (selector, level) in DESKS.items():
            subscription = floor.subscribe(selector, name=name, latency_level=level)
            predicate = compile_selector(selector)
            owed = sum(predicate.matches(tick) is True for tick in burst)
            taken: list[float] = []
            thread = threading.Thread(target=take, args=(subscription, owed, taken))
            thread.start()
            desks.append((name, level, owed, taken, thread))
        market.publish_many(burst)
        print("desk     level   owed    got  median, ms  99 %, ms")
        for name, level, owed, taken, thread in desks:
            thread.join()
            cuts = quantiles(taken, n=100) if len(taken) > 1 else [0.0] * 99
            print(f"{name:8} {level:5} {owed:6} {len(taken):6}  {cuts[49]:10.1f}  {cuts[98]:8.1f}")
            whole = whole and len(taken) == owed
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
