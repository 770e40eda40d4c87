"""Health records of simulated nodes: what each measures of itself, and of a made-up machine (T6).

A process judges its health every ten seconds, and writes such a record (docs/design/health.md).
What a node knows itself is measured here as there. The simulator has no machines, so that
processor, memory and programs are what a `SimulatedMachine` says; of a disk with a bound what is
stored counts within its room.
"""

from __future__ import annotations

import msgspec

from canopy.sim.world.world import World

PERIOD = 10.0
"""Virtual seconds between two records of a node: the default of `health.period`."""


class SimulatedMachine(msgspec.Struct):
    """The machine of one node. Percent, and programs beside the simulated ones."""

    cpu: float = 20.0
    memory: float = 40.0
    disk: float = 50.0  # unless the disk has a bound
    clients: int = 1
    capacity: float = 0.0  # bytes of a disk with a bound, of which its room is what was left


class HealthRecords:
    """Writes the records of all nodes of a world, from `begin` on."""

    def __init__(self, world: World, *, judged: bool = True) -> None:
        """`judged`: each node judges its health by its records, as processes do."""
        self._judged = judged
        self.machines: dict[str, SimulatedMachine] = {}
        """By the node's name; others have the default one."""
        self._world = world

    def begin(self) -> None:
        """Let every node that runs measure itself, now and every `PERIOD` seconds."""
        world = self._world
        world.at(world.now + PERIOD, self.begin)
        for name in world.names():
            driver = world.drivers[name]
            if driver.is_paused:
                continue
            machine = self.machines.setdefault(name, SimulatedMachine())
            vitals = msgspec.structs.asdict(driver.node.vitals())
            measured = {
                "cpu": machine.cpu,
                "memory": machine.memory,
                "disk": round(self.disk_used(name), 2),
                "clients": machine.clients,
            }
            measured |= vitals
            if self._judged:
                driver.node.judge_health(measured)
            driver.trace("health", measured)

    def disk_used(self, name: str) -> float:
        """Percent of the node's disk in use."""
        machine, disk = self.machines[name], self._world.drivers[name].disk
        room = disk.conditions.room
        if room is None or not machine.capacity:
            return machine.disk
        return 100.0 * (1.0 - max(0, room - len(disk.data)) / machine.capacity)
