"""Tensor, reliability: an area without power, and five points whose cables are pulled.

    python -m bench.papers.outages --json

Product nodes in the simulator, over the network that `bench.papers.tiers` describes, with a message
published at the headquarters every tenth of a second. The nodes of area A are there first, so that
one of them owns the messages' tree. Virtual seconds:

* `area`: all nodes of area A lose their power at once, and have it back after 40 s. `elected_s`:
  until another node owns the tree; `normal_s`: the age at the outage of the last message that came
  late, that is, after more than a second, to a subscriber outside of A; `disturbed_s`: the same of
  those published after the power's return; `back_s`: from that return until all programs of A have
  registered again and get every message.
* `points`: five points are cut off from everybody, for 40 s. `elsewhere_s`: until a program of each
  of them is registered at another node of its area; `normal_s` and `disturbed_s` as above;
  `back_s`: until messages come to the five points in time again.

Messages that a subscriber whose node was never cut off has not got: `told`, if its node has told it
of a gap in which they may be, else `lost`.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Final

from bench.command import parser, say, show
from bench.experiments.frame import run_until_ready
from bench.papers.tiers import TOPIC, Tiers, message
from canopy.sim.world.cost import collector_at_rest

EVERY: Final = 0.1
"""Virtual seconds between two messages."""

BEFORE: Final = 5.0
DARK: Final = 40.0
AFTER: Final = 40.0

LATE: Final = 1.0
"""Virtual seconds that a message takes at most while nothing is wrong."""


class Outage:
    """One trial: messages all the time, and something that goes wrong."""

    def __init__(self, seed: int, points: int, subscribers: int) -> None:
        self.tiers = Tiers(seed, points, processor=None, founder="a")
        self.world = self.tiers.world
        self.tiers.subscribe(subscribers)
        self.tiers.distribute(10)
        self.world.clients.deliveries = []
        self.published: dict[int, float] = {}
        """When each message was published, by its number."""
        self._goes_on = True
        self._number = 0
        self._publish()

    def _publish(self) -> None:
        if self._goes_on:
            self._number += 1
            self.published[self._number] = self.world.now
            self.world.publish(self.tiers.publisher, message(self._number))
            self.world.at(self.world.now + EVERY, self._publish)

    def stop(self) -> None:
        """No more messages; those under way arrive."""
        self._goes_on = False
        self.world.settle()

    def came(self) -> dict[tuple[str, int], dict[int, float]]:
        """By node and program, the messages that came, each with when it came first."""
        found: dict[tuple[str, int], dict[int, float]] = {}
        for one in self.world.clients.deliveries:
            attributes = one.delivery.event.attributes
            number = int(str(attributes["n"]))
            if "n" in attributes and number in self.published:
                found.setdefault((one.node, one.client), {}).setdefault(number, one.time)
        return found

    def is_told(self, program: tuple[str, int], at: float) -> bool:
        """Whether a program was told of a gap in which what was published then may be."""
        wall = self.world.wall(self.tiers.publisher) - self.world.now + at
        return any(
            (one.node, one.client) == program
            and (one.since is None or one.since <= wall + 0.001)
            and (one.until is None or wall - 0.001 <= one.until)
            for one in self.world.clients.notices
        )

    def others(self, outage: float, end: float, names: set[str]) -> dict[str, Any]:
        """What programs of these nodes have got: the age, at the outage and at its end, of the last
        message that came late, and how many did not come at all."""
        late, again, lost, told = 0.0, 0.0, 0, 0
        here = [(s.node, s.client) for s in self.world.clients.subscriptions if s.node in names]
        came = self.came()
        for number, at in self.published.items():
            for program in here:
                arrived = came.get(program, {}).get(number)
                lost += arrived is None
                told += arrived is None and self.is_told(program, at)
                if at >= outage and (arrived is None or arrived - at > LATE):
                    late = max(late, at - outage + EVERY) if at < end else late
                    again = max(again, at - end + EVERY)
        times = {"normal_s": round(late, 2), "disturbed_s": round(again, 2)}
        return {**times, "lost": lost - told, "told": told}

    def primaries(self) -> list[str]:
        """The nodes that own the messages' tree."""
        return [
            name
            for name in self.world.names()
            if self.world.node(name).clusters.is_primary
            and "topic" in self.world.node(name).owner.trees
        ]


def area(seed: int, points: int, subscribers: int) -> dict[str, Any]:
    """Area A without power."""
    trial = Outage(seed, points, subscribers)
    world, dark = trial.world, trial.tiers.members["a"]
    world.run(BEFORE)
    outage = world.now
    programs = [(s.node, s.client) for s in world.clients.subscriptions if s.node in dark]
    owners = sum(name in dark for name in trial.primaries())
    for name in dark:
        world.crash(name, silent=True)
    is_owned = world.run_until(lambda: bool(trial.primaries()), DARK)
    elected = world.now - outage if is_owned else None
    world.run(max(0.0, outage + DARK - world.now))
    for name in dark:
        world.restart(name)
    back = world.now
    run_until_ready(world, world.ready)
    for node, client in programs:
        world.subscribe(node, TOPIC, client=client)
    run_until_ready(world, world.acknowledged)
    acknowledged = world.now
    world.run(AFTER)
    trial.stop()
    others = trial.others(outage, back, set(world.drivers) - set(dark))
    # What the programs of A have missed since their registrations.
    again, missed = 0.0, 0
    came = trial.came()
    for program in programs:
        for number, at in trial.published.items():
            if at > acknowledged and number not in came.get(program, {}):
                again, missed = max(again, at - back), missed + 1
    return {
        "experiment": "area",
        "seed": seed,
        "nodes": len(world.drivers),
        "dark": len(dark),
        "subscribers": subscribers,
        "owners_lost": owners,
        "elected_s": None if elected is None else round(elected, 2),
        "back_s": round(max(acknowledged - back, again), 2),
        **others,
        "lost": others["lost"] + missed,
    }


def unplugged(seed: int, points: int, subscribers: int) -> dict[str, Any]:
    """Five points without their cables."""
    trial = Outage(seed, points, subscribers)
    world, cut = trial.world, trial.tiers.points[:5]
    world.run(BEFORE)
    outage = world.now
    world.network.partition([[name] for name in cut])
    moved = []
    for name in cut:  # a program of each is connected to another node of its area
        members = next(m for m in trial.tiers.members.values() if name in m)
        near = next(m for m in members if m not in cut)
        moved.append(world.subscribe(near, TOPIC, client=99))
    world.run_until(lambda: all(s.acknowledged is not None for s in moved), DARK)
    elsewhere = max((s.acknowledged or outage + DARK) - outage for s in moved)
    for one in moved:
        world.unsubscribe(one)
    world.run(max(0.0, outage + DARK - world.now))
    world.network.heal()
    healed = world.now
    world.run(AFTER)
    trial.stop()
    moved_to = {(one.node, one.client) for one in moved}
    world.clients.subscriptions = [
        s for s in world.clients.subscriptions if (s.node, s.client) not in moved_to
    ]
    others = trial.others(outage, healed, set(world.drivers) - set(cut))
    came, back = trial.came(), 0.0
    for s in world.clients.subscriptions:
        if s.node in cut:
            got = came.get((s.node, s.client), {})
            since = {n: at for n, at in trial.published.items() if at > healed}
            late = [at for n, at in since.items() if got.get(n, math.inf) - at > LATE]
            back = max([back, *(at - healed + EVERY for at in late)])
    return {
        "experiment": "points",
        "seed": seed,
        "nodes": len(world.drivers),
        "dark": len(cut),
        "subscribers": subscribers,
        "elsewhere_s": round(elsewhere, 2),
        "back_s": round(back, 2),
        **others,
    }


def main() -> int:
    """Run the command `python -m bench.papers.outages`."""
    args = parser(
        __doc__,
        points=(24, "nodes at points"),
        subscribers=(48, "programs"),
        seeds=(1, "trials of each"),
    ).parse_args()
    rows = []
    with collector_at_rest():
        for seed in range(1, args.seeds + 1):
            for trial in (area, unplugged):
                rows.append(trial(seed, args.points, args.subscribers))
                say(str(rows[-1]))
    show(rows, args)
    return 1 if any(row["lost"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
