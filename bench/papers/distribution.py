"""Tensor, figures 14 to 16 and load: messages from the headquarters to all subscribers.

    python -m bench.papers.distribution --messages 1 1000 10000 --json            # figure 14
    python -m bench.papers.distribution --subscribers 20 200 2000 --messages 1000 --json   # 15, 16
    python -m bench.papers.distribution --load --json                             # deviation

Product nodes in the simulator, over the network that `bench.papers.tiers` describes: three nodes at
the headquarters, three at each of three divisions, and `--points` at points, whose programs
subscribe. Messages of 1 kB are published as fast as the publisher's node takes them.
`distribution_s`: virtual seconds from the first one published to the last one delivered.

`--load`: after a batch of messages, over the twelve brokers of headquarters and divisions, the mean
and the standard deviation of the copies that each has passed on; and the same of the 20 s after.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.command import SEED, parser, say, show
from bench.papers.tiers import BODY, Tiers
from canopy.sim.world.cost import collector_at_rest


def distributed(
    seed: int, points: int, subscribers: int, messages: list[int]
) -> Iterator[dict[str, Any]]:
    """A row for each number of messages, in one overlay."""
    tiers = Tiers(seed, min(points, subscribers))
    tiers.subscribe(subscribers)
    tiers.distribute(10)  # the publisher finds the tree
    for count in messages:
        began = time.process_time()
        row = tiers.distribute(count)
        about = {"nodes": len(tiers.world.drivers), "subscribers": subscribers}
        say(f"{subscribers:,} subscribers, {count:,} messages: {row['distribution_s']} s")
        took = row["distribution_s"]
        yield {
            "experiment": "distribution",
            "seed": seed,
            **about,
            **row,
            "messages_per_second": round(count / took),
            "cpu_s": round(time.process_time() - began, 1),
        }


def load(seed: int, points: int, subscribers: int, messages: int) -> Iterator[dict[str, Any]]:
    """How evenly the brokers share a batch, and what they do after it."""
    tiers = Tiers(seed, points)
    tiers.subscribe(subscribers)
    tiers.distribute(10)
    for number in range(3):
        row = tiers.distribute(messages)
        mean, deviation = tiers.spread(tiers.brokers())
        tiers.passed.clear()
        tiers.world.run(20.0)
        _, rest = tiers.spread(tiers.brokers())
        yield {
            "experiment": "load",
            "seed": seed,
            "batch": number + 1,
            "brokers": len(tiers.brokers()),
            "messages": messages,
            "delivered": row["delivered"],
            "expected": row["expected"],
            "mean": round(mean, 1),
            "deviation": round(deviation, 1),
            "deviation_after_20_s": round(rest, 1),
        }


def main() -> int:
    """Run the command `python -m bench.papers.distribution`."""
    args = parser(
        __doc__,
        messages=([1_000], "of 1 kB"),
        subscribers=([24], "programs"),
        points=(24, "nodes at points"),
        load=(False, "how evenly brokers share a batch"),
        seed=SEED,
    ).parse_args()
    rows: list[dict[str, Any]] = []
    with collector_at_rest():
        for subscribers in args.subscribers:
            if args.load:
                rows += load(args.seed, args.points, subscribers, args.messages[0])
            else:
                rows += distributed(args.seed, args.points, subscribers, args.messages)
    assert len(BODY) == 1_000
    show(rows, args)
    return 0 if all(row["delivered"] == row["expected"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
