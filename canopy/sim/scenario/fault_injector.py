"""Starts the nodes of a run and injects its faults into them, their disks and the network."""

from __future__ import annotations

from random import Random

from canopy.sim.scenario.scenario import Fault
from canopy.sim.world.world import World

MIDWAY = 1.0
"""Virtual seconds within which a process that is to die midway dies anyway. Not
measured; would be measured by the longest time between two writes."""

ELECTORATE = 3
"""Processes started at one moment that are enough to elect a primary of a usual cluster."""


class FaultInjector:
    """The nodes in the order of their first start; a scenario counts them from 0."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self.names: list[str] = []
        self.overlays: tuple[list[str], list[str]] = ([], [])  # that are founded apart
        self._rng = rng
        self._leaving: dict[str, None] = {}
        self._paused: dict[str, float] = {}  # since when
        self._closed: dict[tuple[str, ...], float] = {}  # ways that say nothing, since when

    def join(self, overlay: int = 0) -> None:
        """One more node of this overlay. The first founds; the others know it and one other."""
        names = self.overlays[overlay]
        seeds = names[:1]
        if len(names) > 1:
            seeds = [*seeds, self._rng.choice(names[1:])]
        name = self.world.add_node(seeds=seeds)
        self.names.append(name)
        names.append(name)
        if len(names) == 2:  # a founder that starts again must not found a second ring
            self.world.introduce(names[0], names[1:])

    def meet(self) -> None:
        """One more node, which knows both overlays."""
        seeds = [names[0] for names in self.overlays if names]
        self.names.append(self.world.add_node(seeds=seeds))
        for names in self.overlays:
            names.append(self.names[-1])

    def serving(self) -> list[str]:
        """Nodes that run and are not about to leave."""
        return [name for name in self.world.names() if name not in self._leaving]

    def inflict(self, fault: Fault) -> None:
        """Let it happen now."""
        world, network = self.world, self.world.network
        nodes = self._meant(fault)
        world.happened.append((world.now, _words(fault, nodes)))
        match fault.do:
            case "crash" | "lose" | "drain" | "join" | "pause" | "resume":
                self._befall(fault, nodes)
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
                self._part(fault, nodes)
            case "throttle":
                network.throttle(nodes[0], "".join(nodes[1:]), fault.bandwidth)
                self._closed.setdefault(tuple(nodes), world.now)
            case "meet":
                self.meet()
            case "network":
                assert fault.network is not None
                world.network.conditions = fault.network

    def _meant(self, fault: Fault) -> list[str]:
        """Names of the nodes that the fault is about: those it numbers, or those with its role."""
        if not fault.role:
            return [self.names[number] for number in fault.nodes]
        if fault.role == "members":
            return [n for n in self.serving() if self.world.node(n).clusters.role != "none"]
        fit = [n for n in self.serving() if self.world.node(n).clusters.role == fault.role]
        return [self._rng.choice(fit)] if fit else []

    def _befall(self, fault: Fault, nodes: list[str]) -> None:
        """What happens to processes."""
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
                    self._was_absent(since)
                self._paused.clear()

    def _part(self, fault: Fault, nodes: list[str]) -> None:
        """What happens to the ways between processes."""
        network = self.world.network
        match fault.do:
            case "sever":
                network.sever(*nodes)
            case "partition":
                groups = [[self.names[n] for n in group] for group in fault.groups]
                network.partition(groups or [[name] for name in nodes])
            case "block":
                network.block(*nodes)
            case "clog":
                network.clog(*nodes)
            case "unclog":
                network.unclog(*nodes)
                self._reopened(tuple(nodes))
            case "heal":
                network.heal()
                for way in list(self._closed):
                    self._reopened(way)
        if fault.do not in ("unclog", "heal"):
            self._closed.setdefault(tuple(nodes), self.world.now)

    def _reopened(self, way: tuple[str, ...]) -> None:
        self._was_absent(self._closed.pop(way, self.world.now))

    def _was_absent(self, since: float) -> None:
        """Whom nobody hears for long is dead to them: what is for it is held, or given up."""
        now = self.world.now
        if now - since >= self.world.settings.links.dead_after:
            self.world.clients.absences.append((since, now))

    def _restart(self, nodes: list[str], fault: Fault) -> None:
        down = [name for name in nodes if not self.world.drivers[name].alive]
        for name in down:
            self._leaving.pop(name, None)
            self.world.restart(name, wiped=fault.wiped, damaged=fault.damaged)
        if len(down) >= ELECTORATE:
            # They may lead on where another has taken their place, until they hear of it.
            self.world.clients.crashes.append(("", self.world.now))


def _words(fault: Fault, nodes: list[str]) -> str:
    """A fault for a person."""
    more = [f"groups {fault.groups}"] if fault.groups else []
    for name in ("network", "disk"):
        if getattr(fault, name) is not None:
            more.append(str(getattr(fault, name)))
    if fault.bandwidth:
        more.append(f"{fault.bandwidth:g} bytes/s")
    if fault.wiped:
        more.append("without its disk")
    if fault.damaged:
        more.append("with a damaged disk")
    if fault.midway:
        more.append("when it next stores something")
    return " ".join([fault.do, *nodes, *more])
