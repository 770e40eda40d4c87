"""T3 beside fixed sizes: what a disconnect costs a link and a standby, in virtual time.

`python -m bench.simulator.backlog --json` prints a row for each kind of replay buffer, length of
the disconnect and way of sizing. *Links*: a flow of 1 MB a second over one link whose connection
is lost for so long (the peer lives, no other way leads there); which messages were dropped, or
named as lost when the session ended, and how many bytes waited at most. *Standbys*: a voter's
process is killed and started again after so long, while subscriptions of 2 kB are registered, ten a
second; how often such a voter was given the whole state and not only what it lacked, and how many
bytes of entries its primary kept at most.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from harness.link_world import LinkWorld
from harness.overlays import acknowledged, grown, settings, with_role
from overlay.links.events import MessageDropped
from overlay.settings import ClusterSettings, LinkSettings

MB = 1024 * 1024
MESSAGE = 50_000
EVERY = 0.05
BEFORE = 65.0
"""Seconds of the flow before the disconnect: two periods of T3."""

LINKS = {
    "fixed, 1 MB": LinkSettings(queue_floor=MB, queue=MB),
    "fixed, 4 MB": LinkSettings(queue_floor=4 * MB, queue=4 * MB),
    "fixed, 64 MB": LinkSettings(queue_floor=64 * MB, queue=64 * MB),
    "T3, 1 to 64 MB": LinkSettings(queue_floor=MB, queue=64 * MB),
}
STANDBYS = {
    "fixed, 16 kB": ClusterSettings(size=3, tail_floor=16_384, tail=16_384),
    "fixed, 1 MB": ClusterSettings(size=3, tail_floor=MB, tail=MB),
    "T3, 16 kB to 32 MB": ClusterSettings(size=3, tail_floor=16_384),
}


def link(disconnect: float, chosen: LinkSettings) -> dict[str, Any]:
    """One disconnect of one link."""
    world = LinkWorld(delay=0.02, settings=chosen)
    a, b = world.host("a"), world.host("b")
    number = peak = 0

    def flow(seconds: float) -> None:
        nonlocal number, peak
        for _ in range(round(seconds / EVERY)):
            a.send(b, number, text="x" * MESSAGE)
            number += 1
            world.run(EVERY)
            peak = max([peak, *(queued for _, queued, _ in a.links.queues())])

    flow(BEFORE)
    peak = 0
    before = number
    world.no_route.update(dict.fromkeys(("a:1", "b:1")))
    world.cut()
    flow(disconnect)
    world.no_route.clear()
    flow(10.0)
    world.run(30.0)
    dropped = len(a.of(MessageDropped))
    named = sum(len(down.lost) for down in a.downs())
    share = (number - len(set(b.numbers(a)))) / (number - before)
    return {"lost": share, "dropped": dropped, "named": named, "peak_bytes": peak}


def standby(disconnect: float, chosen: ClusterSettings, seed: int) -> dict[str, Any]:
    """One restart of one voter."""
    world = grown(
        6, seed, settings(cluster={n: getattr(chosen, n) for n in ("size", "tail_floor", "tail")})
    )
    world.run(10)
    (primary,) = with_role(world, "primary")
    (voter,) = with_role(world, "standby")
    idle = with_role(world, "none")[0]
    number, peak = 0, 0

    def churn(seconds: float) -> None:
        nonlocal number, peak
        for _ in range(round(seconds)):
            texts = [f"x = {number + n} AND note <> '{'y' * 2_000}'" for n in range(10)]
            number += 10
            world.subscribe_together(idle, texts)
            world.run(1.0)
            log = world.node(primary).clusters.log.voter_log if primary in world.names() else None
            peak = max(peak, log.tail_bytes if log is not None else 0)

    churn(10.0)
    counters = world.node(primary).counters
    before = {n: counters.get(n, 0) for n in ("followers_copied", "followers_caught_up")}
    world.crash(voter, silent=True)
    churn(disconnect)
    world.restart(voter)
    churn(10.0)
    acknowledged(world)
    counters = world.node(primary).counters
    got = {n: counters.get(n, 0) - was for n, was in before.items()}
    return {
        **got,
        "peak_bytes": peak,
        "members": len(world.node(primary).clusters.cluster.members()),
    }


def rows(seeds: Sequence[int], disconnects: Sequence[float]) -> list[dict[str, Any]]:
    """All of them, with what they are of."""
    found = []
    for disconnect in disconnects:
        for name, chosen in LINKS.items():
            found.append(
                {"of": "link", "size": name, "out_s": disconnect, **link(disconnect, chosen)}
            )
            print(found[-1], file=sys.stderr, flush=True)
    for disconnect in disconnects:
        for name, cluster in STANDBYS.items():
            each = [standby(disconnect, cluster, seed) for seed in seeds]
            row = {"of": "standby", "size": name, "out_s": disconnect, "times": len(each)}
            for key in ("followers_copied", "followers_caught_up"):
                row[key] = sum(one[key] for one in each)
            row["peak_bytes"] = max(one["peak_bytes"] for one in each)
            found.append(row)
            print(row, file=sys.stderr, flush=True)
    return found


def main(args: Sequence[str] | None = None) -> int:
    """Measure all and print the rows."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulator.backlog", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="restarts of each kind (2)")
    parser.add_argument(
        "--out", default="1,2,5,10,30,60", help="lengths of disconnects, in seconds"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    options = parser.parse_args(args)
    lengths = [float(each) for each in options.out.split(",")]
    found = rows(range(1, options.seeds + 1), lengths)
    if options.json:
        print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
