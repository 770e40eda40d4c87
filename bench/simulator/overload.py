"""Hosts that get several times what they can match, in virtual time: what is done more than once.

    python -m bench.simulator.overload --json

Ten programs publish as fast as their nodes admit events, at ten nodes that may not host; four hosts
have processors of a hundredth of the usual speed. So each publisher has some hundred events under
way, and they wait at the hosts for longer than `tree.retry`. Two rows for each seed: as it is, and
`unprotected`, where publishers send again what waits for `tree.retry`, take hosts for silent that
do not answer, and hosts queue events as often as they come. With
`--kill` one of the hosts, no member of the cluster if there is one, is killed in the middle of the
load.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from bench.mutations.planting import replace
from canopy.sim.world.clients import Publication
from canopy.sim.world.processor import Processor
from canopy.sim.world.world import World
from canopy.wire.transport.codec import WireCodec
from overlay.machine import NodeId
from overlay.settings import Settings
from overlay.upper_tree.host.visit_scheduler import QueuedEvents, VisitScheduler
from overlay.upper_tree.messages import Visit
from overlay.upper_tree.publisher.replicas import ReplicaSelector

SLOWER = 100
PROCESSOR = Processor(
    per_input=SLOWER * 0.000_02,
    per_match=SLOWER * 0.000_01,
    per_further=SLOWER * 0.000_002,
    per_recipient=SLOWER * 0.000_005,
)
HOSTS, PUBLISHERS = 4, 10
BATCH, AHEAD = 64, 4
"""Events of a publication, and publications without a receipt that a program has under way."""

SETTLE = 600.0
COUNTED = ("visits_queued", "visits_elsewhere", "visits_retried", "visits_repeated", "duplicates")


def unprotect() -> None:
    """Take out of this process what keeps nodes from doing twice what waits."""

    def late_after(self: ReplicaSelector, node: NodeId) -> float:
        return self.timeout_most

    def _tell_waiting(self: VisitScheduler) -> None:
        pass

    def without_repeated(self: QueuedEvents, visit: Visit) -> Visit:
        return visit

    replace(ReplicaSelector.late_after, late_after)
    replace(VisitScheduler._tell_waiting, _tell_waiting)
    replace(QueuedEvents.without_repeated, without_repeated)


class Overload:
    """Programs that publish as fast as they may, to hosts that are slower."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.world = world = World(seed, WireCodec(), Settings())
        for number in range(HOSTS + PUBLISHERS):
            if number == HOSTS:
                cluster = msgspec.structs.replace(world.settings.cluster, serve=False)
                world.settings = msgspec.structs.replace(world.settings, cluster=cluster)
            world.add_node(["n0"] if number else [])
            world.run(0.2)
        assert world.run_until(world.ready, 60.0)
        for number in range(4):
            low, high = number / 4, (number + 1) / 4
            world.subscribe(f"n{HOSTS + number}", f"x >= {low} AND x < {high}")
        assert world.run_until(world.acknowledged, 60.0)
        for number in range(HOSTS):
            world.drivers[f"n{number}"].processor = PROCESSOR
        self._rng = world.generator("overload")
        self._until = world.now + seconds
        self._under_way: dict[str, list[list[Publication]]] = {}
        for number in range(PUBLISHERS):
            world.at(world.now, self._publish, f"n{HOSTS + number}")

    def _publish(self, name: str) -> None:
        world = self.world
        if world.now >= self._until:
            return
        world.at(world.now + 0.02, self._publish, name)
        ahead = [each for each in self._under_way.get(name, []) if not each[-1].identity]
        while len(ahead) < AHEAD:
            events = [{"x": self._rng.random()} for _ in range(BATCH)]
            ahead.append(world.publish(name, *events))
        self._under_way[name] = ahead

    def kill(self) -> str:
        """Kill a host; its name."""
        hosts = [f"n{n}" for n in range(HOSTS) if self.world.node(f"n{n}").hosting.trees]
        roles = {name: self.world.node(name).clusters.role for name in hosts}
        killed = min(hosts, key=lambda name: (roles[name] in ("primary", "standby"), name))
        self.world.crash(killed)
        return killed


def row(seed: int, seconds: float, kills: bool) -> dict[str, Any]:
    """Overload a world for `seconds` of virtual time, and return the row of results."""
    overload = Overload(seed, seconds)
    world = overload.world
    began = world.now
    killed = ""
    if kills:
        world.run(seconds / 2)
        killed = overload.kill()
        world.run(seconds / 2)
    else:
        world.run(seconds)
    within = len(world.clients.deliveries)
    settled = world.settle(SETTLE)
    counts: Counter[str] = Counter()
    for name in world.names():
        counts.update(world.node(name).counters)
    shown = Counter(each.delivery.event.identity for each in world.clients.deliveries)
    published = [each.identity for each in world.clients.publications]
    return {
        "seed": seed,
        "killed": killed,
        "published": len(published),
        "delivered_in_load": within,
        "delivered": len(shown),
        "missing": len(set(published) - set(shown)) if settled else -1,
        "twice": sum(count - 1 for count in shown.values()),
        "settled_after_s": world.now - began,
        **{name: counts[name] for name in COUNTED},
    }


def both(seeds: Iterable[int], seconds: float, kills: bool) -> list[dict[str, Any]]:
    """A row with and one without the protection for each seed, each in a process of its own."""
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        for option in ([], ["--unprotected"]):
            command = [sys.executable, "-m", "bench.simulator.overload", "--seconds", str(seconds)]
            command += ["--one", str(seed), *option, *(["--kill"] if kills else [])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            rows.append({"protected": "no" if option else "yes", **found})
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=2, help="runs of each kind")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the load (virtual)")
    parser.add_argument("--kill", action="store_true", help="kill a host in the middle of it")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--one", type=int, default=0, help="one run with this seed")
    parser.add_argument("--unprotected", action="store_true", help="… without what protects")
    chosen = parser.parse_args(arguments)
    if chosen.one:
        if chosen.unprotected:
            unprotect()
        print(json.dumps(row(chosen.one, chosen.seconds, chosen.kill)))
        return 0
    rows = both(range(1, chosen.seeds + 1), chosen.seconds, chosen.kill)
    if chosen.json:
        print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
