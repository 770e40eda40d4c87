"""Simulated runs with known faults: which node had which, in which window of the analysis (T6).

Each run has some nodes with one kind of fault each, for two windows; all others are healthy, and
see what their neighbours' faults do to them. Crashes, hangs, stalls and slow links happen in the
simulator as such. It has no machines, so that what is seen of memory, processor, disk and programs
is drawn: healthy and faulty values overlap, as they do where a threshold has to be chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from bench.experiments.frame import run_until_ready
from bench.experiments.health.records import HealthRecords, SimulatedMachine
from canopy.sim.world.world import EPOCH, World
from canopy.traces.writer import OpenFile
from canopy.wire.transport.codec import WireCodec

WINDOW = 120.0
"""Seconds: the window of the analysis. Virtual time 0 is at the begin of one."""

NODES = 8
FAULTY = 4
"""Nodes of a run that have a fault."""

BEGIN, END = WINDOW, 3 * WINDOW
"""When the faults begin and end."""

LASTS = 5 * WINDOW
"""How long a run is."""

NONE = "none"
KINDS = ("crash", "log", "heartbeats", "latency", "memory", "cpu", "disk", "clients")
"""The kinds of faults, by the signal that each should give."""

HEALTHY: Mapping[str, tuple[float, float]] = {
    "memory": (25.0, 92.0),
    "cpu": (5.0, 88.0),
    "disk": (20.0, 93.0),
    "clients": (0.0, 60.0),
}
"""Values of healthy nodes, drawn evenly for each node …"""

DRAWN: Mapping[str, tuple[float, float]] = {
    "memory": (92.0, 99.5),
    "cpu": (90.0, 100.0),
    "disk": (92.0, 100.0),
    "clients": (70.0, 250.0),
}
"""… and of one with the fault, for each window."""

Labels = dict[tuple[str, int], str]
"""The fault of each (node id, number of the window); windows in which one begins or ends late, or
is being recovered from, are left out."""


class FaultyRun:
    """One run by its seed. `labels` are there when it is over."""

    def __init__(self, seed: int, traces: OpenFile) -> None:
        self.labels: Labels = {}
        self.world = World(f"faults {seed}", WireCodec(), traces=traces)
        self.records = HealthRecords(self.world, judged=False)
        self._rng = self.world.generator("faults")
        self._kinds = [KINDS[(FAULTY * seed + n) % len(KINDS)] for n in range(FAULTY)]

    def run(self) -> None:
        """Grow an overlay, let nodes become faulty and well again, and write the traces."""
        world, rng = self.world, self._rng
        for _ in range(NODES):
            world.add_node(world.names()[:1])
            world.run(0.2)
        run_until_ready(world, world.ready)
        names = world.names()
        for name in names:
            self.records.machines[name] = SimulatedMachine(
                **{what: rng.uniform(*HEALTHY[what]) for what in ("memory", "cpu", "disk")},
                clients=round(rng.uniform(*HEALTHY["clients"])),
            )
            world.subscribe(name, f"mag > {rng.random():.3f}")
        run_until_ready(world, world.acknowledged)
        self.records.begin()
        self._publish()
        faulty = rng.sample(names, FAULTY)
        begins: dict[str, Callable[[str], None]] = {
            "crash": self._crash,
            "log": self._hang,
            "heartbeats": self._stall,
            "latency": self._slow_link,
        }
        for name, kind in zip(faulty, self._kinds, strict=True):
            if kind in begins:
                world.at(BEGIN, begins[kind], name)
            else:
                world.at(BEGIN - 1.0, self._draw, name, kind, rng)
                world.at(BEGIN + WINDOW - 1.0, self._draw, name, kind, rng)
                machine = self.records.machines[name]
                world.at(END - 1.0, setattr, machine, kind, getattr(machine, kind))
        world.run_to(LASTS)
        world.recorder.close()
        self._label(names, dict(zip(faulty, self._kinds, strict=True)))

    def _label(self, names: list[str], faulty: Mapping[str, str]) -> None:
        first = int(EPOCH // WINDOW)
        for name in names:
            node = self.world.drivers[name].disk.node
            kind = faulty.get(name, NONE)
            labels = {1: kind, 2: kind, 3: NONE, 4: NONE}
            if kind != NONE:
                del labels[3]  # what is seen there may be of the fault
            if kind == "log":
                del labels[2]  # in which it wakes up
            self.labels.update({(node, first + n): label for n, label in labels.items()})

    def _publish(self) -> None:
        world = self.world
        if world.now < LASTS - 5.0:
            world.at(world.now + self._rng.expovariate(0.3), self._publish)
        running = [name for name in world.names() if not world.drivers[name].is_paused]
        world.publish(self._rng.choice(running), {"mag": self._rng.random()})

    # --- the faults ---

    def _draw(self, name: str, kind: str, rng: Random) -> None:
        value = rng.uniform(*DRAWN[kind])
        setattr(self.records.machines[name], kind, round(value) if kind == "clients" else value)

    def _crash(self, name: str) -> None:
        """Twice, once in each window; the process is started again after some seconds."""
        for window in (0.0, WINDOW):
            at = BEGIN + window + self._rng.uniform(5.0, WINDOW - 20.0)
            self.world.at(at, self._crash_once, name)

    def _crash_once(self, name: str) -> None:
        self.world.crash(name)
        self.world.at(self.world.now + self._rng.uniform(2.0, 10.0), self.world.restart, name)

    def _hang(self, name: str) -> None:
        """Stand still for the whole window."""
        self.world.drivers[name].pause()
        self.world.at(BEGIN + WINDOW + 5.0, self.world.drivers[name].resume)

    def _stall(self, name: str) -> None:
        """Stand still for a moment again and again."""
        driver, now = self.world.drivers[name], self.world.now
        if now < END:
            driver.pause()
            self.world.at(now + self._rng.uniform(0.6, 3.0), driver.resume)
            self.world.at(now + self._rng.uniform(10.0, 25.0), self._stall, name)

    def _slow_link(self, name: str) -> None:
        """All that the node sends is held back for a while, again and again."""
        world, network = self.world, self.world.network
        if world.now < END:
            held = self._rng.uniform(0.6, 2.0)
            for other in world.drivers:
                if other != name:
                    network.clog(name, other)
                    world.at(world.now + held, network.unclog, name, other)
            world.at(world.now + held + self._rng.uniform(0.05, 0.5), self._slow_link, name)
