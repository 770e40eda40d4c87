"""Deaths that a cluster has to survive, for the soak (P4): primaries and other members.

Within a short time as many members die as leave a majority of the voters, two of five or one of
three, each by a crash, by silence, or by a pause that the others take for a death and that ends
later. Then there is time until the lost ones are replaced.

And blackouts (P1): more deaths than a cluster can survive, after which all come back with their
disks; and deaths that are fatal for a cluster (P5), so that another has to take its place. In a
ring of several clusters both can happen to any of them.
"""

from __future__ import annotations

from random import Random

from canopy.sim.scenario.scenario import Fault

ENOUGH = 6
"""The least number of nodes at which members die: two deaths leave a majority of five voters, and
one node to replace one of them."""

APART = 16.0
"""Seconds between two rounds of the most deaths that a cluster survives: six until a silent node
counts as dead, and some to replace it."""

TOGETHER = 3.0
"""The most seconds between two deaths of one round: in the middle of the first election, or shortly
after it."""

LONG = (6.5, 16.0)
"""Seconds of a pause that counts as a death; the oracle excuses twenty."""

FIRST = 1.0
"""The time of the first death, in seconds after the first event."""


def deaths(rng: Random, nodes: int, size: int) -> tuple[Fault, ...]:
    """Return up to six deaths of members, and some restarts, in an overlay of `nodes` nodes with
    one cluster of `size`."""
    faults: list[Fault] = []
    at, alive = FIRST, nodes
    for _ in range(rng.choice((1, 2, 3))):
        at += rng.random() * TOGETHER
        most = 2 if size >= 5 and alive >= ENOUGH else 1
        for _ in range(rng.choice((1, most))):
            kind = rng.choice(("crash", "crash", "lose", "pause"))
            role = rng.choice(("primary", "primary", "standby", "broker"))
            faults.append(Fault(at, kind, role=role))  # type: ignore[arg-type]
            if kind == "pause":
                faults.append(Fault(at + rng.uniform(*LONG), "resume"))
            else:
                alive -= 1
            at += rng.random() * TOGETHER
        if alive < ENOUGH:
            break
        if rng.random() < 0.5:
            at += rng.choice((0.5, 3.0, 10.0))
            faults.append(Fault(at, "restart"))
            alive = nodes
        at = max(fault.at for fault in faults) + APART
    return tuple(sorted(faults, key=lambda fault: fault.at))


def fatal(rng: Random, nodes: int, size: int, after: float) -> tuple[Fault, ...]:
    """Return the deaths of a majority of the one cluster's voters, or of all of it; some come back
    much later, when another cluster has replaced it. At least two nodes survive."""
    at, faults = after, []
    kind = rng.choice(("crash", "crash", "lose"))
    if nodes >= size + 2 and rng.random() < 0.5:
        faults.append(Fault(at, kind, role="members"))  # type: ignore[arg-type]
    else:
        most = min(size, nodes - 2)
        for number in range(rng.randint(min(size // 2 + 1, most), most)):
            role = "primary" if not number else rng.choice(("standby", "broker", "broker"))
            faults.append(Fault(at, kind, role=role))  # type: ignore[arg-type]
            at += rng.random() * 0.3
    if rng.random() < 0.5:
        faults.append(Fault(at + rng.uniform(10.0, 40.0), "restart"))
    return tuple(faults)


def ring_losses(rng: Random) -> tuple[Fault, ...]:
    """Return losses in a ring: clusters lose their primaries one after the other, or one loses more
    than half of its members at once; most come back. Each loss has time to be repaired."""
    faults: list[Fault] = []
    at = FIRST + rng.random() * TOGETHER
    for _ in range(rng.choice((1, 2, 3))):
        kind = rng.choice(("crash", "crash", "lose"))
        role = rng.choice(("primary", "primary", "majority"))
        faults.append(Fault(at, kind, role=role))  # type: ignore[arg-type]
        if rng.random() < 0.7:
            at += rng.choice((0.5, 3.0, 10.0))
            faults.append(Fault(at, "restart"))
        at += APART
    return tuple(faults)


def shrinking(rng: Random, nodes: int) -> tuple[Fault, ...]:
    """Return crashes and drains, some time after the first events, until clusters of three have too
    few members and no other node is left; while they merge a primary dies or is paused, or a link
    is cut."""
    faults: list[Fault] = []
    at = 20.0 + 5.0 * rng.random()
    for _ in range(max(2, nodes - 5)):
        kind = rng.choice(("crash", "drain"))
        role = rng.choice(("broker", "standby", "none"))
        faults.append(Fault(at, kind, role=role))  # type: ignore[arg-type]
        at += 2.0 + 2.0 * rng.random()
    kind = rng.choice(("none", "crash", "lose", "pause", "cut"))
    at += 2.0 * rng.random()
    if kind == "pause":
        faults.append(Fault(at, "pause", role="primary"))
        faults.append(Fault(at + 4.0 * rng.random(), "resume"))
    elif kind == "cut":
        pair = tuple(rng.sample(range(nodes), 2))
        faults.append(Fault(at, "cut", nodes=pair))
    elif kind != "none":
        faults.append(Fault(at, kind, role="primary"))  # type: ignore[arg-type]
        if rng.random() < 0.5:
            faults.append(Fault(at + rng.choice((0.5, 3.0, 10.0)), "restart"))
    return tuple(faults)


def blackout(rng: Random, nodes: int, after: float) -> tuple[Fault, ...]:
    """Return the deaths of all members of clusters, or of all nodes, at about the same time. They
    restart one by one with their disks; some die during a write."""
    at, faults = after, []
    for _ in range(rng.choice((1, 1, 2))):
        midway = rng.random() < 0.5
        if rng.random() < 0.5:
            faults.append(Fault(at, "crash", role="members", midway=midway))
        else:
            faults.append(Fault(at, "crash", nodes=tuple(range(nodes)), midway=midway))
        at += 1.0 + rng.choice((0.1, 3.0, 10.0))  # midway: within a second
        numbers = list(range(nodes))
        rng.shuffle(numbers)
        for number in numbers:
            faults.append(Fault(at, "restart", nodes=(number,)))
            at += rng.choice((0.0, 0.0, 0.2, 1.0))
        at += rng.choice((1.0, APART))
    return tuple(faults)
