"""Each fault alone, and each pair of faults at once.

The soak draws faults; rare combinations of two need many seeds. Here all pairs are tried: a
catalogue of disturbances, each with its beginning and its end, on a small overlay of one cluster
that does not split. The second fault of a pair begins while the first lasts. The checks are those
of the soak (`examine`): no spurious or duplicate delivery, all commands answered, nothing missing
except where a death or a long silence excuses it; then quiet, and probes, none of which may be
missing.

    for trial in trials(seed=1): judge_scenario(trial.scenario, codec)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Literal, NamedTuple

import msgspec

from canopy.sim.scenario.scenario import Fault, Scenario
from canopy.sim.world.disk import DiskConditions
from canopy.sim.world.network import Conditions
from overlay.settings import ClusterSettings, RingSettings, Settings

NODES = 8
"""Five members of the cluster and three other nodes: two may be lost, and one recruited."""

BEGIN = 1.0
"""The beginning of the first fault, in seconds after the first event."""

RATE = 10.0
"""Events per second; they are published until some seconds after the end of the last fault."""

BACK = 3.0
"""Seconds after which a killed node is started again: after an election (1 s of suspicion), and
before silent nodes count as dead (6 s)."""

WHILE = 10.0
"""Seconds that a disturbance of the network or the disks lasts: longer than `links.dead_after`."""

ALONE = 60.0
"""Seconds after which a new node that reaches no other founds a ring, if two join: events of such a
ring that match in the other are tested by the soak (`divisions`)."""

Role = Literal["", "primary", "standby", "broker", "none"]
Disturbance = Callable[[Random], tuple[Fault, ...]]
"""Returns faults whose times count from the disturbance's beginning."""


class PairTrial(NamedTuple):
    """One or two disturbances, and their scenario."""

    names: tuple[str, ...]
    scenario: Scenario


def killed(role: Role, wiped: bool = False, damaged: bool = False) -> Disturbance:
    """Return a disturbance: a process is killed and started again."""
    return lambda rng: (
        Fault(0, "crash", role=role),
        Fault(BACK, "restart", wiped=wiped, damaged=damaged),
    )


def lost(role: Role) -> Disturbance:
    """Return a disturbance: a machine falls silent, and comes back after twelve seconds."""
    return lambda rng: (
        Fault(0, "lose", role=role),
        Fault(12, "restart"),
    )


def paused(role: Role, seconds: float) -> Disturbance:
    """Return a disturbance: one node with this role is paused for `seconds` (SIGSTOP, then
    SIGCONT)."""
    return lambda rng: (
        Fault(0, "pause", role=role),
        Fault(seconds, "resume"),
    )


def halves(seconds: float) -> Disturbance:
    """Return a disturbance: two random halves of the nodes do not reach each other for
    `seconds`."""

    def faults(rng: Random) -> tuple[Fault, ...]:
        order = rng.sample(range(NODES), NODES)
        sides = (tuple(order[: NODES // 2]), tuple(order[NODES // 2 :]))
        return Fault(0, "partition", groups=sides), Fault(seconds, "heal")

    return faults


def severed(ways: Callable[[int, int], bool]) -> Disturbance:
    """Return a disturbance: nodes reach only those to which `ways` leads (given two places in a
    random order)."""

    def faults(rng: Random) -> tuple[Fault, ...]:
        order = rng.sample(range(NODES), NODES)
        found = [
            Fault(0, "sever", nodes=(order[one], order[other]))
            for one, other in combinations(range(NODES), 2)
            if not ways(one, other)
        ]
        return (*found, Fault(WHILE, "heal"))

    return faults


def in_ring(one: int, other: int) -> bool:
    """Return whether two nodes are neighbours in a circle of all nodes."""
    return (other - one) % NODES in (1, NODES - 1)


def over_bridge(one: int, other: int) -> bool:
    """Return whether two nodes are linked, if only one in the middle reaches both of two halves."""
    middle = NODES // 2
    return middle in (one, other) or (one < middle) == (other < middle)


def one_way(rng: Random) -> tuple[Fault, ...]:
    """Return faults: nothing that the founder sends arrives, while it receives everything."""
    ways = [Fault(0, "block", nodes=(0, other)) for other in range(1, NODES)]
    return (*ways, Fault(WHILE, "heal"))


def clogged(rng: Random) -> tuple[Fault, ...]:
    """Return faults: one link after the other holds frames back, and they are released in another
    order."""
    ways = [(one, other) for one in range(NODES) for other in range(NODES) if one != other]
    ways = rng.sample(ways, NODES * 3)
    step = WHILE / 2 / len(ways)
    found = [Fault(step * number, "clog", nodes=way) for number, way in enumerate(ways)]
    rng.shuffle(ways)
    late = WHILE / 2
    found += [Fault(late + step * number, "unclog", nodes=way) for number, way in enumerate(ways)]
    return tuple(found)


def network(conditions: Conditions) -> Disturbance:
    """Return a disturbance: all links have these conditions for `WHILE` seconds."""
    return lambda rng: (
        Fault(0, "network", network=conditions),
        Fault(WHILE, "network", network=Conditions()),
    )


def disk(conditions: DiskConditions, role: Role) -> Disturbance:
    """Return a disturbance: one disk, or all of them, have these conditions. A node whose disk
    fails ends, and is started again on a good one."""
    return lambda rng: (
        Fault(0, "disk", role=role, disk=conditions),
        Fault(WHILE, "disk", disk=DiskConditions()),
        Fault(WHILE, "restart"),
    )


def all_killed(rng: Random) -> tuple[Fault, ...]:
    """Return faults: all nodes are killed at once, and come back in random order."""
    order = rng.sample(range(NODES), NODES)
    back = [Fault(BACK + 0.2 * n, "restart", nodes=(node,)) for n, node in enumerate(order)]
    return (Fault(0, "crash", nodes=tuple(range(NODES))), *back)


def members_killed(rng: Random) -> tuple[Fault, ...]:
    """Return faults: all members of the cluster are killed, and come back after another has taken
    its place."""
    return Fault(0, "crash", role="members"), Fault(25, "restart")


CATALOGUE: dict[str, Disturbance] = {
    "primary killed": killed("primary"),
    "standby killed": killed("standby"),
    "broker killed": killed("broker"),
    "broker killed, disk gone": killed("broker", wiped=True),
    "primary killed, state damaged": killed("primary", damaged=True),
    "primary silent": lost("primary"),
    "broker silent": lost("broker"),
    "primary paused 2 s": paused("primary", 2),
    "primary paused 15 s": paused("primary", 15),
    "primary paused 120 s": paused("primary", 120),
    "broker paused 15 s": paused("broker", 15),
    "outsider paused 15 s": paused("none", 15),
    "halves 4 s": halves(4),
    "halves 30 s": halves(30),
    "ring-shaped partition": severed(in_ring),
    "bridge": severed(over_bridge),
    "one-way": one_way,
    "clogged": clogged,
    "30 % loss": network(Conditions(loss=0.3)),
    "duplicates, out of order": network(Conditions(latency_high=0.3, duplicate=0.1, loss=0.01)),
    "primary's disk full": disk(DiskConditions(room=0), "primary"),
    "broker's disk fails": disk(DiskConditions(fail=1.0), "broker"),
    "slow disks": disk(DiskConditions(sync_low=0.1, sync_high=0.6), ""),
    "primary drained": lambda rng: (Fault(0, "drain", role="primary"),),
    "two join": lambda rng: (Fault(0, "join", nodes=(0, 1)),),
    "clocks turned": lambda rng: (
        Fault(0, "clock", nodes=(0, 1), seconds=3_600.0),
        Fault(WHILE, "clock", seconds=-7_200.0),
    ),
    "all killed": all_killed,
    "cluster killed": members_killed,
}
"""All disturbances that a simulation can show, by name. A jump of the wall clock is not among them,
since no machine reads one."""


def trials(seed: int, names: Sequence[str] = ()) -> Iterator[PairTrial]:
    """Yield each disturbance alone, then each pair. With one of `names`, only trials that contain
    it; with several, only these and their pairs. KeyError for an unknown name."""
    for name in names:
        CATALOGUE[name]
    for found in (*((name,) for name in CATALOGUE), *combinations(CATALOGUE, 2)):
        wanted = set(found) <= set(names) if len(names) > 1 else set(names) <= set(found)
        if wanted:
            yield PairTrial(found, scenario_of(found, seed))


def scenario_of(names: tuple[str, ...], seed: int) -> Scenario:
    """Return the scenario of one or two disturbances. The second begins after one to two thirds of
    the first."""
    rng = Random(f"{seed}/{'/'.join(names)}")
    faults: list[Fault] = []
    at = BEGIN
    for name in names:
        made = CATALOGUE[name](rng)
        faults += [_later(fault, at) for fault in made]
        length = min(WHILE, max(fault.at for fault in made))
        at += length * rng.uniform(1 / 3, 2 / 3)
    faults = _ended_last(faults)
    end = max(fault.at for fault in faults)
    settings = Settings(cluster=ClusterSettings(size=5, split_trees=100_000))
    if "two join" in names:
        settings = msgspec.structs.replace(settings, ring=RingSettings(found_after=ALONE))
    return Scenario(
        nodes=NODES,
        seed=seed,
        subscriptions=20,
        events=int(RATE * (min(end, 2 * WHILE) + 5)),
        rate=RATE,
        late_subscriptions=8,
        late_unsubscriptions=4,
        settings=settings,
        faults=tuple(faults),
        rest=WHILE,
        probes=40,
    )


def _later(fault: Fault, at: float) -> Fault:
    return msgspec.structs.replace(fault, at=fault.at + at)


def _ended_last(faults: list[Fault]) -> list[Fault]:
    """Sort the faults by time. `heal` and `resume` end all faults of their kind; of two only the
    last is kept, so that both disturbances last at least as long as they should."""
    faults = sorted(faults, key=lambda fault: fault.at)
    last = {fault.do: number for number, fault in enumerate(faults)}
    return [
        fault
        for number, fault in enumerate(faults)
        if fault.do not in ("heal", "resume") or last[fault.do] == number
    ]
