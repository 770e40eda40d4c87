"""T3 beside fixed sizes: what a disconnect costs a link and a standby, in virtual time.

A row for each kind of replay buffer, length of the disconnect and way of sizing. *Links*: a flow of
1 MB a second over one link whose connection is lost for so long (the peer lives, no other way leads
there); which messages were dropped, or named as lost when the session ended, and how many bytes
waited at most. *Standbys*: a voter's process is killed and started again after so long, while
subscriptions of 2 kB are registered, ten a second; how often such a voter was given the whole state
and not only what it lacked, and how many bytes of entries its primary kept at most.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bench.experiments.frame import Experiment, Progress
from bench.lab.tables import Row
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


def link(disconnect: float, chosen: LinkSettings) -> Row:
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


def standby(disconnect: float, chosen: ClusterSettings, seed: int) -> Row:
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


class BacklogPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a peer is out of reach, in seconds, and how often a voter is."""

    out: tuple[float, ...] = (1.0, 5.0, 60.0)
    times: int = 1
    seed: int = 1


def trials(plan: BacklogPlan, progress: Progress) -> Iterator[Row]:
    """Links first, then standbys."""
    for disconnect in plan.out:
        for name, chosen in LINKS.items():
            progress(f"link, {name}, {disconnect:g} s", 0.0)
            yield {"of": "link", "size": name, "out_s": disconnect, **link(disconnect, chosen)}
    for disconnect in plan.out:
        for name, cluster in STANDBYS.items():
            progress(f"standby, {name}, {disconnect:g} s", 0.5)
            seeds = range(plan.seed, plan.seed + plan.times)
            each = [standby(disconnect, cluster, seed) for seed in seeds]
            yield {
                "of": "standby",
                "size": name,
                "out_s": disconnect,
                "times": len(each),
                "followers_copied": sum(one["followers_copied"] for one in each),
                "followers_caught_up": sum(one["followers_caught_up"] for one in each),
                "peak_bytes": max(one["peak_bytes"] for one in each),
            }


BACKLOG = Experiment(
    "backlog",
    "Lose a link and a voter for a while, with replay buffers of several sizes.",
    """Of a link, what is lost and what waits; of a voter, whether it is given all or what it lacks.
    docs/lab/recovery.md and docs/lab/papers.md have the results.""",
    BacklogPlan(),
    trials,
    "of: of | size: what may wait | out_s g: out, s | lost .0%: lost | dropped: dropped"
    " | named: lost with the session | followers_caught_up: got what it lacked"
    " | followers_copied: got the whole state | peak_bytes ,: bytes kept at most",
)
