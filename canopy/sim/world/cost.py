"""The cost of a simulation for its machine: processor time and memory.

Steps per second show how fast the simulator is, bytes per node how large a world fits. Both differ
from one run to the next, while everything in `canopy.sim.scenario.result.Result` is the same for a
seed. So they are kept apart.

Python's cyclic garbage collector visits every object of the world repeatedly, and finds next to
nothing, since machines free objects by reference counting. It takes a third of the processor time
at 300 nodes, more at 3,000, and saves less than 0.1 % of memory (measured with it on and off). It
is off while a world runs.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

STATM = Path("/proc/self/statm")
"""On Linux, the file whose second number is resident memory in pages."""


class RunCost(msgspec.Struct, frozen=True):
    """Time and memory that a simulation took."""

    cpu_s: float  # of this process, user and system
    steps_per_second: int  # steps of the world (frames, ticks, dials …) per second of processor
    bytes_per_node: int  # resident memory that the world added, by the nodes it ever started
    peak_bytes: int  # most resident memory of this process, ever


class Meter:
    """Measures processor time and memory since its creation."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._memory = resident()

    def cpu(self) -> float:
        """Seconds of processor time since the meter was created."""
        return time.process_time() - self._cpu

    def read(self, steps: int, nodes: int) -> RunCost:
        """Return the cost of a world that made `steps` steps, has `nodes` nodes, and still
        exists."""
        cpu = self.cpu()
        return RunCost(
            cpu_s=round(cpu, 3),
            steps_per_second=round(steps / cpu) if cpu else 0,
            bytes_per_node=max(0, resident() - self._memory) // max(1, nodes),
            peak_bytes=peak(),
        )


def resident() -> int:
    """Return the resident memory of this process in bytes; the peak if the system does not report
    it."""
    try:
        pages = int(STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return peak()
    return pages * resource.getpagesize()


def peak() -> int:
    """Return the peak memory of this process in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Collect garbage, then switch Python's cyclic collector off within the context."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
