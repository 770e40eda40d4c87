"""Starts the nodes of a run and injects its faults into them, their disks and the network."""

from __future__ import annotations

from random import Random

from canopy.sim.scenario.scenario import Fault
from canopy.sim.world.world import World

MIDWAY = 1.0
"""Virtual seconds after which a process that is to die at its next write is killed without one. Not
measured; would be measured by the longest time between two writes."""


class FaultInjector:
    """Starts nodes, and injects the faults of a scenario, which numbers the nodes from 0 in the
    order of their first start."""

    def __init__(
        self, world: World, rng: Random, clocks: float = 0.0, regions: int = 0, tiered: int = 0
    ) -> None:
        """`clocks`: the largest difference of the nodes' wall clocks in seconds; `regions`: the
        number of regions, to which nodes are assigned in turn; `tiered`: every `tiered`-th node has
        tier 1."""
        self._regions = regions
        self._tiered = tiered
        self.world = world
        self.names: list[str] = []
        self.overlays: tuple[list[str], list[str]] = ([], [])  # with a founder each
        self._rng = rng
        self._clocks = clocks
        self._leaving: dict[str, None] = {}
        self._paused: dict[str, float] = {}  # -> since when
        self._closed: dict[tuple[str, ...], float] = {}  # links that carry nothing -> since when

    def join(self, overlay: int = 0) -> None:
        """Start one more node of this overlay. The first has no seeds; the others have two:
        the first node and a random one."""
        names = self.overlays[overlay]
        seeds = names[:1]
        if len(names) > 1:
            seeds = [*seeds, self._rng.choice(names[1:])]
        name = self._add(seeds)
        names.append(name)
        if len(names) == 2:  # a founder that starts again must not found a second ring
            self.world.introduce(names[0], names[1:])

    def meet(self) -> None:
        """Start one more node, with a seed in each of the two overlays."""
        seeds = [names[0] for names in self.overlays if names]
        name = self._add(seeds)
        for names in self.overlays:
            names.append(name)

    def _add(self, seeds: list[str]) -> str:
        name, region = f"n{len(self.world.drivers)}", ""
        tier = int(bool(self._tiered) and len(self.names) % self._tiered == 0)
        if self._regions:
            region = f"r{len(self.names) % self._regions}"
            self.world.network.place(name, region)
        self.world.add_node(seeds, name, region, tier)
        self.names.append(name)
        if self._clocks:
            drawn = self.world.generator(f"clock of {name}")
            self.world.turn_clock(name, self._clocks * drawn.random())
        return name

    def serving(self) -> list[str]:
        """Return the nodes that run and are not about to leave."""
        return [name for name in self.world.names() if name not in self._leaving]

    def inject(self, fault: Fault) -> None:
        """Inject the fault into processes, links, disks or the network at the present time."""
        world, network = self.world, self.world.network
        nodes = self._targets(fault)
        world.happened.append((world.now, _description(fault, nodes)))
        match fault.do:
            case "crash" | "lose" | "drain" | "join" | "pause" | "resume":
                self._inject_into_processes(fault, nodes)
            case "restart":
                self._restart(nodes or list(world.drivers), fault)
            case "disk":
                assert fault.disk is not None
                if not fault.nodes and not fault.role:
                    world.disk_conditions = fault.disk
                    nodes = list(world.drivers)
                for name in nodes:
                    world.drivers[name].disk.conditions = fault.disk
            case "cut":
                network.cut(*nodes)
            case "sever" | "partition" | "block" | "clog" | "unclog" | "heal":
                self._inject_into_links(fault, nodes)
            case "throttle":
                network.throttle(nodes[0], "".join(nodes[1:]), fault.bandwidth)
                self._closed.setdefault(tuple(nodes), world.now)
            case "meet":
                self.meet()
            case "clock":
                for name in nodes or list(world.drivers):
                    world.turn_clock(name, fault.seconds)
            case "network":
                assert fault.network is not None
                world.network.conditions = fault.network

    def _targets(self, fault: Fault) -> list[str]:
        """Return the names of the nodes that the fault hits: those with its numbers, or one with
        its role."""
        if not fault.role:
            return [self.names[number] for number in fault.nodes]
        if fault.role == "members":
            return self._members()
        if fault.role == "majority":
            return self._majority()
        fit = [n for n in self.serving() if self.world.node(n).clusters.role == fault.role]
        return [self._rng.choice(fit)] if fit else []

    def _members(self) -> list[str]:
        return [n for n in self.serving() if self.world.node(n).clusters.role != "none"]

    def _majority(self) -> list[str]:
        """Return more than half of one cluster's members, in random order."""
        clusters: dict[str, list[str]] = {}
        for name in self._members():
            cluster = self.world.node(name).clusters.cluster
            clusters.setdefault(cluster.key, []).append(name)
        if not clusters:
            return []
        members = clusters[self._rng.choice(sorted(clusters))]
        return self._rng.sample(members, len(members) // 2 + 1)

    def _inject_into_processes(self, fault: Fault, nodes: list[str]) -> None:
        """Start, stop, drain, pause or resume processes."""
        world = self.world
        match fault.do:
            case "crash" | "lose":
                silent = fault.do == "lose"
                for name in nodes:
                    if not world.drivers[name].alive:
                        continue
                    if fault.midway:
                        world.drivers[name].doom(silent=silent, within=MIDWAY)
                    else:
                        world.crash(name, silent=silent)
            case "drain":
                for name in nodes:
                    if world.drivers[name].alive:
                        self._leaving[name] = None
                        world.drain(name)
            case "join":
                for _ in range(max(1, len(nodes))):
                    self.join()
            case "pause":
                for name in nodes:
                    world.drivers[name].pause()
                    self._paused.setdefault(name, world.now)
            case "resume":
                for name, since in self._paused.items():
                    world.drivers[name].resume()
                    self._note_absence(since)
                self._paused.clear()

    def _inject_into_links(self, fault: Fault, nodes: list[str]) -> None:
        """Block, slow or restore links between processes."""
        network = self.world.network
        match fault.do:
            case "partition":
                groups = [[self.names[n] for n in group] for group in fault.groups]
                network.partition(groups or [[name] for name in nodes])
            case "heal":
                network.heal()
                for way in list(self._closed):
                    self._link_restored(way)
            case _:
                getattr(network, fault.do)(*nodes)
        if fault.do == "unclog":
            self._link_restored(tuple(nodes))
        elif fault.do != "heal":
            self._closed.setdefault(tuple(nodes), self.world.now)

    def _link_restored(self, way: tuple[str, ...]) -> None:
        self._note_absence(self._closed.pop(way, self.world.now))

    def _note_absence(self, since: float) -> None:
        """Note for the oracle that nodes were unreachable, and whether links ended in that time:
        messages for these nodes are then held, or given up."""
        now = self.world.now
        self.world.clients.cuts.append((since, now))
        if now - since >= self.world.settings.links.dead_after:
            self.world.clients.absences.append((since, now))

    def _restart(self, nodes: list[str], fault: Fault) -> None:
        down = [name for name in nodes if not self.world.drivers[name].alive]
        for name in down:
            self._leaving.pop(name, None)
            self.world.restart(name, wiped=fault.wiped, damaged=fault.damaged)
        if len(down) > 1 and not fault.wiped:
            self._note_return(down)

    def _note_return(self, nodes: list[str]) -> None:
        """Note for the oracle that these nodes are back with their disks: where they are a majority
        of a cluster, whose place another has taken meanwhile, both lead until they have met."""
        clients, now = self.world.clients, self.world.now
        ended = [crash.time for crash in clients.crashes if crash.node in nodes]
        if ended and now - min(ended) >= self.world.settings.links.dead_after:
            clients.absences.append((now, now))


def _description(fault: Fault, nodes: list[str]) -> str:
    """Return the fault in words, for the report of a run."""
    more = [f"groups {fault.groups}"] if fault.groups else []
    for name in ("network", "disk"):
        if getattr(fault, name) is not None:
            more.append(str(getattr(fault, name)))
    if fault.seconds:
        more.append(f"{fault.seconds:+g} s")
    if fault.bandwidth:
        more.append(f"{fault.bandwidth:g} bytes/s")
    if fault.wiped:
        more.append("without its disk")
    if fault.damaged:
        more.append("with a damaged disk")
    if fault.midway:
        more.append("when it next stores something")
    return " ".join([fault.do, *nodes, *more])
