"""Soak: random scenarios, seed after seed, until a check fails or it is stopped.

A seed decides everything: the size of the overlay, its settings (drawn from the edges of their
ranges, where code breaks: trees that are cut after two registrations, walks of one hop, tables with
room for one entry), the workload, and the faults. Faults are those that this version promises to
survive: loss, delay, duplication, broken connections, links that swallow or hold back frames for a
while in one direction, nodes that are cut off for a while, pauses, members that crash or fall
silent and come back or not (`deaths`; in a ring of several clusters `ring_losses`), clusters that
shrink until they merge, and lose nodes meanwhile (`shrinking`), nodes that join and drain,
primaries among them; overlays that are founded apart and meet, and partitions that heal, whose
sides have continued separately (`divisions`). Some overlays are in several regions, with a longer
latency between them (`_with_regions`). Every scenario ends with a quiet time and probes, when
nothing excuses a loss. A longer scenario (`with_phases`) has further phases of faults, drawn like
the first ones, each after the overlay has come to rest.

    for verdict in soak(range(1, 500), codec): ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from msgspec.structs import replace

from canopy.sim.scenario.run import Verdict, judge_scenario
from canopy.sim.scenario.scenario import Fault, FaultPhase, Scenario
from canopy.sim.scenario.workload import WorkloadShape
from canopy.sim.soak.member_failures import ENOUGH, blackout, deaths, fatal, ring_losses, shrinking
from canopy.sim.world.disk import DiskConditions
from canopy.sim.world.network import Conditions
from canopy.sim.world.processor import Processor
from overlay.links.events import Codec
from overlay.settings import (
    ClusterSettings,
    LinkSettings,
    RingSettings,
    Settings,
    TreeSettings,
    ViewSettings,
    WalkSettings,
)

FIRST = 1.0
"""The time of the first division, in seconds after the first event."""

APART = (2.0, 8.0, 20.0, 40.0)
"""Durations of a partition in seconds: shorter than the time-out for a lost cluster, about as long,
and longer. Not measured."""


def divisions(rng: Random, nodes: int) -> tuple[tuple[Fault, ...], int]:
    """Return faults that divide an overlay of `nodes`, and how many of the nodes are founded apart:
    a node that knows both joins later, or two or three groups do not reach each other for a while
    (P5)."""
    at = FIRST + 4.0 * rng.random()
    if rng.random() < 0.5:
        return (Fault(at, "meet"),), rng.randint(1, nodes - 1)
    return _partition(rng, nodes, at), 0


def _partition(rng: Random, nodes: int, at: float) -> tuple[Fault, ...]:
    """Two or three groups that do not reach each other for a while."""
    mixed = list(range(nodes))
    rng.shuffle(mixed)
    sides = rng.choice((2, 2, 3))
    groups = tuple(tuple(sorted(mixed[side::sides])) for side in range(sides))
    heal = Fault(at + rng.choice(APART), "heal")
    return Fault(at, "partition", groups=groups), heal


FAULTS_APART = 16.0
"""The least seconds between two faults that cost a process: six until a silent node counts as dead,
and some to replace it. Members that die faster than they are replaced are the death of a cluster
(P5)."""

SHORT = 3.5
"""The most seconds for which a node is not heard: well under the six after which silence counts as
the death of an ordinary member, and well over those of a primary."""

REST = 10.0
"""Seconds before the first event if members die: until they have become voters, on a slow network
one after the other."""

KINDS = (
    *("cut", "cut", "network", "join", "crash", "lose", "drain"),
    *("block", "clog", "pause"),
)
"""Kinds of faults, the more frequent ones twice."""

DIVIDED = 0.15
"""The share of scenarios in which the overlay is divided for a while: founded apart, or cut."""

ONE_WITHIN = 15.0
"""Seconds after the end of a division within which there has to be one ring: a cluster's walk of
the ring, and the steps of a merge."""

MANY_HOSTS = 0.25
"""The share of scenarios whose trees are spread over as many hosts as possible. Small overlays have
no trees of several hosts otherwise: one host has room for all, or each serves everything."""

FAST = 0.2
"""The longest latency in seconds if members die: on slower networks an election may take several
rounds and the next deaths would come before the lost ones are replaced. Not measured; would be
measured by the time to replace a member at each latency."""

SEVERAL = 8
"""The least number of nodes at which a ring of clusters of three loses members: two clusters, and
two nodes that replace lost ones."""

RING_LOSSES = 0.4
"""The share of scenarios with at least `SEVERAL` nodes in which clusters of a ring lose members."""

REGIONS = 0.25
"""The share of scenarios whose nodes are in several regions."""

MERGES = 0.25
"""The share of scenarios with at least `SEVERAL` nodes in which clusters shrink until they
merge."""

UNSPLIT = 100_000
"""Trees from which on the one cluster of a ring splits that shall not."""

AROUND = 50.0
"""Virtual seconds of a phase beside its events and faults: it comes to rest, nodes start again and
become voters."""

FIRST_FAULT = 1.0
"""The time of the first fault, in seconds after the first event."""


def soak(seeds: Iterable[int], codec: Codec) -> Iterator[Verdict]:
    """Yield the verdict on each seed in turn. An exception in a node is a violation as well."""
    for seed in seeds:
        yield judge_seed(seed, codec)


def judge_seed(seed: int, codec: Codec, keys: bool = False, length: float = 0.0) -> Verdict:
    """Run the scenario of one seed, with or without keys, and return its verdict. `length`: its
    approximate duration in virtual seconds."""
    return judge_scenario(draw_long_scenario(seed, length, keys), codec)


def draw_long_scenario(seed: int, length: float = 0.0, keys: bool = False) -> Scenario:
    """The scenario of a seed, whose nodes have keys or not, with further phases until it takes some
    `length` virtual seconds."""
    scenario = with_phases(replace(draw_scenario(seed), keys=keys), length)
    return _with_like_clocks(scenario) if keys else scenario


def with_phases(scenario: Scenario, length: float) -> Scenario:
    """The scenario with further phases, until it takes some `length` virtual seconds. (What it
    takes to come to rest is not known before; `AROUND` is what that mostly takes.)"""
    phases: list[FaultPhase] = []
    nodes = scenario.nodes + _new(scenario.faults)
    spent = _spent(scenario, scenario.faults)
    while spent < length:
        rng = Random(f"{scenario.seed}/soak/phase {len(phases) + 1}")
        phases.append(_phase(rng, scenario, nodes))
        nodes += _new(phases[-1].faults)
        spent += _spent(scenario, phases[-1].faults)
    return replace(scenario, phases=tuple(phases))


def _new(faults: tuple[Fault, ...]) -> int:
    """Nodes that these faults add."""
    return sum(fault.do in ("join", "meet") for fault in faults)


def _spent(scenario: Scenario, faults: tuple[Fault, ...]) -> float:
    """Virtual seconds that a phase with these faults takes, about."""
    last = max((fault.at for fault in faults), default=0.0)
    return AROUND + max(last, _flow(scenario))


def _flow(scenario: Scenario) -> float:
    """Seconds for which a phase has events."""
    events = scenario.events
    return (events if isinstance(events, int) else len(events)) / scenario.rate


def _phase(rng: Random, scenario: Scenario, nodes: int) -> FaultPhase:
    """Faults that an overlay of `nodes` with the scenario's settings and network is promised to
    survive, after others."""
    cluster, knows_all = scenario.settings.cluster, scenario.settings.view == ViewSettings()
    within, chance = 0.0, rng.random()
    faults = _faults(rng, nodes, _flow(scenario), alone=cluster.size == 1)
    faults = _later_faults(rng, nodes, faults)
    if scenario.rest and cluster.split_trees < UNSPLIT:
        if chance < 0.6:
            faults = ring_losses(rng) if cluster.split_trees < 10 else shrinking(rng, nodes)
    elif scenario.rest and nodes >= ENOUGH:
        if chance < DIVIDED and knows_all and _is_whole(scenario.network):
            within, faults = ONE_WITHIN, _partition(rng, nodes, FIRST + 4.0 * rng.random())
        elif chance < 0.5:
            faults = deaths(rng, nodes, cluster.size)
        elif chance < 0.65:
            after = max((fault.at for fault in faults), default=0.0)
            faults = (*faults, *blackout(rng, nodes, after + rng.choice((1.0, FAULTS_APART))))
        elif chance < 0.75 and knows_all:
            faults = fatal(rng, nodes, cluster.size, FIRST_FAULT + 5.0 * rng.random())
    if scenario.clocks and rng.random() < 0.5:
        faults = tuple(sorted((*faults, *_turns(rng, nodes)), key=lambda fault: fault.at))
    return FaultPhase(_with_backbone(faults, scenario.network.backbone), within)


def _is_whole(network: Conditions) -> bool:
    """Whether the network loses and delays nothing, but for the way between regions."""
    return network == Conditions(backbone=network.backbone)


def draw_scenario(seed: int) -> Scenario:
    """Draw the scenario of a seed. Its numbers are chosen near the edges of their ranges."""
    rng = Random(f"{seed}/soak")
    nodes = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 10, 12))
    events = rng.choice((60, 120, 200))
    rate = rng.choice((4.0, 10.0, 40.0))
    settings = _settings(rng)
    faults = _faults(rng, nodes, events / rate, alone=settings.cluster.size == 1)
    # Generators of their own for what was added later, so that old seeds stay what they are.
    later = Random(f"{seed}/soak/later")
    faults = _later_faults(later, nodes, faults)
    rest = 0.0
    if nodes >= ENOUGH and later.random() < 0.4:
        settings = _one_cluster(later, settings)
        faults, rest = deaths(later, nodes, settings.cluster.size), REST
    settings, faults, lost = _whole_losses(Random(f"{seed}/soak/latest"), nodes, settings, faults)
    rest = REST if lost else rest
    apart, rings = 0, Random(f"{seed}/soak/rings")
    divided = nodes >= ENOUGH and rings.random() < DIVIDED
    if divided:
        settings = _one_cluster(rings, replace(settings, view=ViewSettings()))
        faults, apart = divisions(rings, nodes)
        rest = REST
    network = rng.choice((Conditions(), Conditions(), _bad(rng)))
    if rest:
        latency = min(network.latency_high, FAST)
        network = replace(network, latency_high=latency)
    if divided:
        network = Conditions()
    if network != Conditions():
        # Who hears of no ring in time founds one. Rings that meet become one, but what one has
        # registered meanwhile sees nothing of the other's: the oracle knows only those of `apart`.
        settings = replace(settings, ring=RingSettings(found_after=60.0))
    scenario = Scenario(
        nodes=nodes,
        seed=seed,
        subscriptions=rng.choice((5, 20, 60)),
        events=events,
        rate=rate,
        late_subscriptions=rng.choice((0, 10, 30)),
        late_unsubscriptions=rng.choice((0, 5, 20)),
        shape=WorkloadShape(
            attributes=rng.choice((3, 8, 30)),
            per_event=rng.choice((2, 3, 5)),
            most_terms=rng.choice((2, 3)),
        ),
        settings=settings,
        network=network if divided else _narrow(later, network),
        disk=later.choice((DiskConditions(), DiskConditions(sync_low=0.001, sync_high=0.05))),
        processor=_slow(Random(f"{seed}/soak/work")),
        faults=faults,
        rest=rest,
        apart=apart,
        one_within=ONE_WITHIN if divided else 0.0,
        eager=rng.random() < 0.5,
        probes=40,
    )
    for change, name in (
        (_spread, "hosts"),
        (_with_ring_losses, "clusters"),
        (_with_merges, "merges"),
        (_with_clocks, "clocks"),
        (_with_receipts, "receipts"),
        (_with_regions, "regions"),
    ):
        scenario = change(Random(f"{seed}/soak/{name}"), scenario)
    return scenario


def _whole_losses(
    rng: Random, nodes: int, settings: Settings, faults: tuple[Fault, ...]
) -> tuple[Settings, tuple[Fault, ...], bool]:
    """Add, sometimes, a blackout after the other faults, or the end of a cluster instead of them.
    Returns also whether there is one."""
    if rng.random() < 0.25:
        settings = _one_cluster(rng, settings)
        end = max((fault.at for fault in faults), default=0.0)
        after = end + rng.choice((1.0, FAULTS_APART))
        return settings, (*faults, *blackout(rng, nodes, after)), True
    if rng.random() < 0.3 and nodes >= 4:
        # Who knows only three others, and loses them all, is alone in the world.
        settings = replace(settings, view=ViewSettings())
        settings = _one_cluster(rng, settings)
        after = FIRST_FAULT + 5.0 * rng.random()
        return settings, fatal(rng, nodes, settings.cluster.size, after), True
    return settings, faults, False


def _spread(rng: Random, scenario: Scenario) -> Scenario:
    """Draw the replicas of each virtual node, and in some scenarios as many hosts as possible: few
    attributes with many small virtual nodes each."""
    settings, shape = scenario.settings, scenario.shape
    tree = replace(settings.tree, replicas=rng.choice((1, 2, 3, 3)))
    if scenario.nodes > 3 and rng.random() < MANY_HOSTS:
        host_entries, split_at = rng.choice((1, 2, 3)), rng.choice((2, 3))
        tree = replace(tree, host_entries=host_entries, split_at=split_at, replicas=1)
        shape = replace(shape, attributes=3)
    settings = replace(settings, tree=tree)
    return replace(scenario, settings=settings, shape=shape)


def _settings(rng: Random) -> Settings:
    pick = rng.choice
    return Settings(
        links=LinkSettings(
            idle_close=pick((3.0, 60.0)),
            frame=pick((4_096, 262_144)),
            window=pick((8_192, 4_194_304)),
            compress=pick((True, False)),
        ),
        view=ViewSettings(
            size=pick((3, 8, 20)),
            shuffle=pick((2, 8)),
            access_points=pick((1, 4, 100)),
            per_attribute=pick((1, 3)),
        ),
        walk=WalkSettings(hops=pick((1, 4, 10)), trace=pick((1, 3, 10)), first=pick((True, False))),
        cluster=ClusterSettings(size=pick((1, 3, 5, 5)), split_trees=pick((1, 3, 8))),
        tree=TreeSettings(
            routing=pick(("pivot", "counting")),
            host_entries=pick((3, 20, 1_000)),
            split_at=pick((2, 4, 16, 256)),
            summary_term=pick((2.0, 10.0)),
            lease=pick((12.0, 60.0)),
            retry=pick((1.0, 3.0)),
            locations=pick((2, 16, 4_096)),
            pending=pick((20, 20_000)),
            history=20,
            fan_out=pick((1, 2, 16)),
        ),
    )


def _one_cluster(rng: Random, settings: Settings) -> Settings:
    """Return settings for one cluster that does not split. (The new primary of a split that was
    given up while it was silent may wake up and serve until it is fenced.)"""
    cluster = ClusterSettings(size=rng.choice((3, 5, 5)), split_trees=UNSPLIT)
    return replace(settings, cluster=cluster)


def _slow(rng: Random) -> Processor | None:
    """Draw, sometimes, a slow processor, up to the point where hosts of the most frequent events
    are behind (P6, P7)."""
    if rng.random() < 0.7:
        return None
    return Processor(per_input=0.000_1, per_match=rng.choice((0.001, 0.004, 0.008)))


def _with_ring_losses(rng: Random, scenario: Scenario) -> Scenario:
    """Replace, sometimes, the faults by losses in a ring of several clusters."""
    if scenario.one_within or scenario.nodes < SEVERAL or rng.random() > RING_LOSSES:
        return scenario
    cluster = ClusterSettings(size=3, split_trees=rng.choice((1, 3)))
    settings = replace(scenario.settings, cluster=cluster, view=ViewSettings())
    latency = min(scenario.network.latency_high, FAST)
    network = replace(scenario.network, latency_high=latency)
    return replace(scenario, settings=settings, network=network, faults=ring_losses(rng), rest=REST)


def _with_merges(rng: Random, scenario: Scenario) -> Scenario:
    """Replace, sometimes, the faults by a ring of several clusters that shrinks: most subscriptions
    end, nodes leave, and clusters that are too small merge."""
    if scenario.one_within or scenario.nodes < SEVERAL or rng.random() > MERGES:
        return scenario
    cluster = ClusterSettings(size=3, split_trees=rng.choice((10, 16)), merge_after=1.0)
    settings = replace(scenario.settings, cluster=cluster, view=ViewSettings())
    latency = min(scenario.network.latency_high, FAST)
    network = replace(scenario.network, latency_high=latency)
    shape = replace(scenario.shape, attributes=30)
    return replace(
        scenario,
        settings=settings,
        network=network,
        shape=shape,
        subscriptions=60,
        late_subscriptions=0,
        late_unsubscriptions=56,
        events=160,
        rate=4.0,
        faults=shrinking(rng, scenario.nodes),
        rest=REST,
    )


def _with_receipts(rng: Random, scenario: Scenario) -> Scenario:
    """Publish, sometimes, with receipts: an event with a receipt may not be lost with its
    publisher's node."""
    return replace(scenario, receipts=rng.random() < 0.3)


def _with_regions(rng: Random, scenario: Scenario) -> Scenario:
    """Put, sometimes, the nodes into two or three regions with a longer latency between them, some
    with a tier."""
    if scenario.nodes < 2 or rng.random() > REGIONS:
        return scenario
    backbone = rng.choice((0.0, 0.03, 0.08))

    return replace(
        scenario,
        regions=rng.choice((2, 3)),
        tiered=rng.choice((0, 2, 4)),
        network=replace(scenario.network, backbone=backbone),
        faults=_with_backbone(scenario.faults, backbone),
    )


def _with_backbone(faults: tuple[Fault, ...], backbone: float) -> tuple[Fault, ...]:
    """The faults, with this way between regions in every network that they set."""
    return tuple(
        replace(fault, network=replace(fault.network, backbone=backbone))
        if fault.network
        else fault
        for fault in faults
    )


def _with_clocks(rng: Random, scenario: Scenario) -> Scenario:
    """Let, sometimes, wall clocks differ by hours, and turn them."""
    if rng.random() < 0.7:
        return scenario
    turned = _turns(rng, scenario.nodes)
    faults = tuple(sorted((*scenario.faults, *turned), key=lambda fault: fault.at))
    return replace(scenario, clocks=7_200.0, faults=faults)


def _turns(rng: Random, nodes: int) -> list[Fault]:
    """Wall clocks that are turned."""
    return [
        Fault(
            FIRST_FAULT + 10 * rng.random(),
            "clock",
            nodes=(rng.randrange(nodes),),
            seconds=rng.choice((-3_600.0, -1.0, 1.0, 3_600.0)),
        )
        for _ in range(rng.choice((0, 1, 3)))
    ]


def _with_like_clocks(scenario: Scenario) -> Scenario:
    """Let wall clocks differ by less than an hour, as certificates and signed records allow (A4 in
    tests/attacks/attacks.md); some are turned three times."""

    def alike(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
        return tuple(
            replace(fault, seconds=max(-600.0, min(fault.seconds, 600.0)))
            if fault.do == "clock"
            else fault
            for fault in faults
        )

    phases = tuple(replace(phase, faults=alike(phase.faults)) for phase in scenario.phases)
    clocks = min(scenario.clocks, 1_500.0)
    return replace(scenario, clocks=clocks, faults=alike(scenario.faults), phases=phases)


def _bad(rng: Random) -> Conditions:
    """Draw a network that loses and delays frames."""
    return Conditions(
        latency_low=0.001,
        latency_high=rng.choice((0.02, 0.2, 0.6)),
        loss=rng.choice((0.0, 0.01, 0.05)),
        duplicate=rng.choice((0.0, 0.0, 0.05)),
    )


def _narrow(rng: Random, network: Conditions) -> Conditions:
    """Draw, sometimes, links or nodes with a bandwidth below their load, and bit errors. (Under
    some 30 kB/s a busy node's heartbeats wait behind its events until the node counts as dead. With
    far more than one wrong batch in a hundred a link is given up.)"""
    link, node = rng.choice(((0.0, 0.0), (0.0, 0.0), (50e3, 0.0), (0.0, 200e3), (100e3, 1e6)))
    damage = rng.choice((0.0, 0.0, 0.0, 0.002))
    return replace(network, link_bandwidth=link, node_bandwidth=node, damage=damage)


def _later_faults(rng: Random, nodes: int, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Change faults: some restarted nodes have lost their disk; a link or a node becomes slow for a
    while, or unreachable."""
    found: list[Fault] = []
    for fault in faults:
        if fault.do == "restart" and rng.random() < 0.3:
            fault = replace(fault, wiped=True)
        if fault.do in ("crash", "lose") and rng.random() < 0.3:
            fault = replace(fault, midway=True)
        found.append(fault)
    if nodes > 1 and rng.random() < 0.3:
        at = FIRST_FAULT + 10 * rng.random()
        slow = tuple(rng.sample(range(nodes), rng.choice((1, 2))))
        bandwidth = rng.choice((30e3, 100e3))
        found.append(Fault(at, "throttle", nodes=slow, bandwidth=bandwidth))
        found.append(Fault(at + SHORT + 5 * rng.random(), "throttle", nodes=slow))
    if nodes > 1 and rng.random() < 0.3:
        at = FIRST_FAULT + 10 * rng.random()
        role = rng.choice(("primary", "primary", "standby", "broker"))
        found.append(Fault(at, "partition", role=role))  # type: ignore[arg-type]
        found.append(Fault(at + SHORT * rng.random(), "heal"))
    return tuple(sorted(found, key=lambda fault: fault.at))


def _faults(rng: Random, nodes: int, length: float, alone: bool) -> tuple[Fault, ...]:
    """Draw up to five faults; those that cost a process keep a distance from each other.

    `alone`: clusters have one node. Such a primary can hand its trees to no other, so it stays.
    """
    faults: list[Fault] = []
    at, costly_at = FIRST_FAULT, 0.0
    for _ in range(rng.choice((0, 0, 1, 2, 3, 5))):
        at += rng.random() * max(2.0, length / 3)
        kind = rng.choice(KINDS)
        if kind in ("cut", "block", "clog") and nodes > 1:
            pair = tuple(rng.sample(range(nodes), 2))
            faults.append(Fault(at, kind, nodes=pair))  # type: ignore[arg-type]
            if kind != "cut":
                at += rng.random() * SHORT
                faults.append(Fault(at, "heal"))
        elif kind == "pause":
            role = rng.choice(("primary", "standby", "broker", "none"))
            faults.append(Fault(at, "pause", role=role))  # type: ignore[arg-type]
            at += rng.random() * SHORT
            faults.append(Fault(at, "resume"))
        elif kind == "network":
            faults.append(Fault(at, "network", network=_bad(rng)))
        elif kind == "join":
            faults.append(Fault(at, "join"))
        elif kind in ("crash", "lose", "drain") and nodes > 2:
            at = max(at, costly_at)
            role = rng.choice(("broker", "none"))
            if kind == "drain":
                role = rng.choice(("none",) if alone else ("broker", "none", "standby", "primary"))
            faults.append(Fault(at, kind, role=role))  # type: ignore[arg-type]
            if rng.random() < 0.6:
                at += rng.choice((0.5, 3.0, 10.0))
                faults.append(Fault(at, "restart"))
            costly_at = at + FAULTS_APART
    return tuple(faults)
