"""The telemetry of this machine as events: a source of live data that needs no download.

Sampling is plain code without trio: each call of `Sampler.sample` reads counters through psutil and
returns flat events. Names of attributes have no dots, so that a selector needs no quotes:
``type = 'cpu' AND cpu_percent > 80``.

Rates are differences between two samples, so the first sample has none. Every event has ``id``
(unique: node, incarnation of the feed, sample, number), ``type``,
``host``, ``node`` and ``sample``.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable
from typing import Any, Final

import psutil

from canopy.wire.constants import BUSIEST_PROCESSES, CORES, DISKS, INTERFACES
from overlay.client import Draft

MEBIBYTE: Final = 1 << 20

Record = dict[str, bool | int | float | str | None]


class Sampler:
    """Samples this machine. `clock` is monotonic seconds; `node` and `run` make the ids unique."""

    def __init__(self, node: str, run: str, clock: Callable[[], float], name: str = "") -> None:
        self._node = node
        self._run = run
        self._clock = clock
        self._name = name
        self._host = platform.node() or "localhost"
        self._samples = 0
        self._before: dict[str, tuple[float, ...]] = {}  # counters of the last sample, by thing
        self._when = -math.inf
        self._processes: dict[tuple[int, float], float] = {}  # (pid, start) -> processor seconds
        psutil.cpu_percent(percpu=True)  # the first call has nothing to compare with

    def sample(self) -> list[Draft]:
        """Return one event per core, memory, disk, interface and busy process, and one of the load.
        Kinds that the system does not report are left out."""
        now = self._clock()
        elapsed = now - self._when
        self._when = now
        self._samples += 1
        drafts: list[Draft] = []
        for kind, source in (
            ("cpu", self._cpu()),
            ("memory", self._memory()),
            ("load", self._load()),
            ("disk", self._disks(elapsed)),
            ("network", self._network(elapsed)),
            ("process", self._busiest(elapsed)),
        ):
            try:
                records = list(source)
            except (psutil.Error, OSError, RuntimeError, NotImplementedError):
                continue  # e.g. a container that hides its disks
            drafts += [self._draft(kind, number, record) for number, record in enumerate(records)]
        return drafts

    def _draft(self, kind: str, number: int, record: Record) -> Draft:
        attributes: Record = {
            "id": f"{self._node}.{self._run}.{self._samples}.{kind}.{number}",
            "type": kind,
            "host": self._host,
            "node": self._node,
            "sample": self._samples,
        }
        if self._name:
            attributes["node_name"] = self._name
        return Draft({**attributes, **record})

    def _cpu(self) -> Iterable[Record]:
        cores = psutil.cpu_percent(percpu=True)[:CORES]
        for core, percent in enumerate(cores):
            yield {"core": core, "cpu_percent": percent, "cores": len(cores)}

    def _memory(self) -> Iterable[Record]:
        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        yield {
            "memory_percent": memory.percent,
            "memory_total_mb": memory.total // MEBIBYTE,
            "memory_available_mb": memory.available // MEBIBYTE,
            "memory_used_mb": memory.used // MEBIBYTE,
            "swap_percent": swap.percent,
            "swap_used_mb": swap.used // MEBIBYTE,
        }

    def _load(self) -> Iterable[Record]:
        one, five, fifteen = psutil.getloadavg()
        cores = psutil.cpu_count() or 1
        yield {
            "load_1": round(one, 2),
            "load_5": round(five, 2),
            "load_15": round(fifteen, 2),
            "load_per_core": round(one / cores, 3),
            "processes": len(psutil.pids()),
        }

    def _disks(self, elapsed: float) -> Iterable[Record]:
        seen: dict[str, None] = {}
        for part in psutil.disk_partitions()[:DISKS]:
            if part.device in seen:
                continue  # the same disk, mounted twice
            seen[part.device] = None
            usage = psutil.disk_usage(part.mountpoint)
            yield {
                "disk": part.device,
                "mount": part.mountpoint,
                "filesystem": part.fstype,
                "disk_percent": usage.percent,
                "disk_free_gb": round(usage.free / (1 << 30), 2),
            }
        moved = psutil.disk_io_counters(perdisk=True) or {}
        used = [(disk, io) for disk, io in sorted(moved.items()) if io.read_bytes + io.write_bytes]
        for disk, io in used[:DISKS]:
            rates = self._rates(f"disk {disk}", elapsed, io.read_bytes, io.write_bytes)
            if rates:
                yield {"disk": disk, "read_kbps": rates[0], "written_kbps": rates[1]}

    def _network(self, elapsed: float) -> Iterable[Record]:
        states = psutil.net_if_stats()
        for name, io in sorted(psutil.net_io_counters(pernic=True).items())[:INTERFACES]:
            state = states.get(name)
            if state is None or not state.isup:
                continue
            rates = self._rates(f"net {name}", elapsed, io.bytes_sent, io.bytes_recv)
            if rates:
                yield {
                    "interface": name,
                    "sent_kbps": rates[0],
                    "received_kbps": rates[1],
                    "errors": io.errin + io.errout,
                    "drops": io.dropin + io.dropout,
                    "speed_mbps": state.speed,
                }

    def _rates(self, thing: str, elapsed: float, *totals: float) -> tuple[float, ...]:
        """Kilobits per second of byte counters since the last sample; () for the first one."""
        before = self._before.get(thing)
        self._before[thing] = totals
        if before is None or not 0 < elapsed < math.inf:
            return ()
        return tuple(
            round(max(0.0, after - b) * 8 / 1000 / elapsed, 2)
            for after, b in zip(totals, before, strict=True)
        )

    def _busiest(self, elapsed: float) -> Iterable[Record]:
        spent: dict[tuple[int, float], float] = {}
        found: list[tuple[float, dict[str, Any]]] = []
        for process in psutil.process_iter(["pid", "name", "cpu_times", "create_time"]):
            info = process.info
            times = info["cpu_times"]
            if times is None:
                continue
            key = (info["pid"], info["create_time"])
            spent[key] = times.user + times.system
            if key in self._processes and 0 < elapsed < math.inf:
                found.append((spent[key] - self._processes[key], {**info, "process": process}))
        self._processes = spent
        found.sort(key=lambda entry: (-entry[0], entry[1]["pid"]))
        busy = [entry for entry in found if entry[0] > 0]
        for rank, (seconds, info) in enumerate(busy[:BUSIEST_PROCESSES], 1):
            try:
                memory = info["process"].memory_info().rss / MEBIBYTE
                threads = info["process"].num_threads()
            except psutil.Error:
                continue  # it has just ended
            yield {
                "process": info["name"] or "?",
                "pid": info["pid"],
                "rank": rank,
                "process_cpu": round(100 * seconds / elapsed, 1),
                "process_memory_mb": round(memory, 1),
                "threads": threads,
            }
