"""What is done to the nodes of a stream, and undone.

Each fault lasts for a while, and up to two do at a time. What alters a replica's files is
different: it waits until all replicas have everything, and nothing else is altered until the
replica is whole again. So what is acknowledged is always whole on a majority, or comes back
(SIGCONT, a restart), which is what the stream promises to survive.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from bench.processes.fault_proxy import FaultProxy, Faults
from bench.processes.nodes import ProxiedNodes
from bench.streams.hostile.disks import SmallDisk, flip_bits
from bench.streams.hostile.programs import STREAM, wait
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from overlay.client import GetStreams, Streams
from overlay.info import ReplicaInfo

AT_ONCE: Final = 2
DISK_FAILED: Final = 7  # exit code
WHOLE: Final = 60.0
"""Seconds for all replicas to have everything."""


class Lasting(NamedTuple):
    """A fault that ends at `until`."""

    until: float
    kind: str
    node: str
    undo: Callable[[], None]


class Injector:
    """Draws faults by seed."""

    def __init__(
        self, nodes: ProxiedNodes, proxy: FaultProxy, disks: dict[str, SmallDisk], rng: Random
    ) -> None:
        self.nodes, self.proxy, self.disks, self.rng = nodes, proxy, disks, rng
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []
        self.began = time.monotonic()
        self._lasting: list[Lasting] = []
        self._next: list[str] = []  # each kind once, then again
        self._latent: set[str] = set()  # altered while they ran, and not read since
        self._kinds: dict[str, Callable[[str], Callable[[], None]]] = {
            "kill": self._kill,
            "stop": self._stop,
            "isolate": self._isolate,
            "one-way": self._one_way,
            "damage": self._damage,
        }
        if any(disk.mounted for disk in disks.values()):
            self._kinds["full-disk"] = self._fill

    def step(self) -> None:
        """End what is over, and begin one fault if there is room for it."""
        now = time.monotonic()
        for each in [one for one in self._lasting if one.until <= now]:
            self._end(each)
        if len(self._lasting) >= AT_ONCE or any(one.kind == "damage" for one in self._lasting):
            return
        free = [n for n in self.nodes.nodes if all(one.node != n for one in self._lasting)]
        self._next = self._next or self.rng.sample(list(self._kinds), len(self._kinds))
        kind = self._next.pop()
        node = self.rng.choice(free)
        if kind == "damage":
            for each in list(self._lasting):
                self._end(each)
            if not self.is_whole(WHOLE):
                self._say("not whole: nothing is altered")
                return
        self._say(f"{kind} {node}")
        undo = self._kinds[kind](node)
        self.counts[kind] += 1
        lasts = self.rng.uniform(0.5, 6.0)
        self._lasting.append(Lasting(time.monotonic() + lasts, kind, node, undo))

    def heal(self) -> None:
        """End all faults. What was altered and read by nobody since is read: by processes that
        begin anew."""
        for each in list(self._lasting):
            self._end(each)
        self.proxy.heal()
        for name in sorted(self._latent):
            self._say(f"whole: {self.is_whole(WHOLE)}")
            self._kill(name)()

    def replicas(self) -> tuple[ReplicaInfo, ...]:
        """Of the stream's only shard, as some node hears of them."""
        for node in self.nodes.nodes.values():
            if node.is_up and not node.is_paused:
                try:
                    with ControlClient.connect(node.data, 5.0) as client:
                        found = client.ask(GetStreams(0, STREAM), Streams, 10.0)
                        return found.streams[0].shards[0].replicas
                except (ControlError, IndexError):
                    continue
        return ()

    def is_whole(self, seconds: float) -> bool:
        """Whether, within so many seconds, all replicas follow one leader and have what it has."""

        def whole() -> bool:
            found = self.replicas()
            states = sorted(each.state for each in found)
            ends = [each.durable for each in found]
            return (
                states == ["follows", "follows", "leads"]
                and not any(each.damaged for each in found)
                and max(ends) - min(ends) < 50
            )

        return wait(whole, seconds)

    def _end(self, one: Lasting) -> None:
        one.undo()
        self._lasting.remove(one)
        self._say(f"end of {one.kind} {one.node}")

    def _say(self, text: str) -> None:
        self.log.append(f"{time.monotonic() - self.began:.1f} {text}")

    # -- faults ----------------------------------------------------------------------------------

    def _kill(self, name: str) -> Callable[[], None]:
        self.nodes.kill(name)
        self._latent.discard(name)
        return lambda: self.nodes.restart(name, wiped=False)

    def _stop(self, name: str) -> Callable[[], None]:
        self.nodes.pause(name)
        return lambda: self.nodes.resume(name)

    def _isolate(self, name: str) -> Callable[[], None]:
        self.proxy.isolate(name)
        return lambda: self._join(name)

    def _join(self, name: str) -> None:
        for other in self.nodes.nodes:
            self.proxy.spoil(name, other, Faults())
            self.proxy.spoil(other, name, Faults())

    def _one_way(self, name: str) -> Callable[[], None]:
        for other in self.nodes.nodes:
            if other != name:
                self.proxy.spoil(name, other, Faults(hold=True))
        return lambda: self._join(name)

    def look(self) -> None:
        """Count the nodes that ended by themselves, but for those whose disk was full when they had
        to write more than rows: that is what they do (docs/guide/operate.md)."""
        for node in self.nodes.nodes.values():
            full = ("full-disk", node.name) in [(one.kind, one.node) for one in self._lasting]
            if full and node.process is not None and node.process.poll() == DISK_FAILED:
                node.is_meant_to_run = False
            node.look()

    def _fill(self, name: str) -> Callable[[], None]:
        self.disks[name].fill()
        return lambda: self._free(name)

    def _free(self, name: str) -> None:
        self.look()
        self.disks[name].free()
        node = self.nodes.nodes[name]
        if not node.is_up and not node.ended:
            self._say(f"{name} had ended, and begins anew")
            self.nodes.restart(name, wiped=False)

    def _damage(self, name: str) -> Callable[[], None]:
        """Alter a file, and have it found: by whoever reads it, or when the process begins anew."""
        altered = flip_bits(self.nodes.nodes[name].data, self.rng)
        self._say(f"altered {altered or 'nothing'} of {name}")
        if not altered or self.rng.random() < 0.5:
            self._kill(name)()
        else:
            self._latent.add(name)
        return lambda: self._mended(name)

    def _mended(self, name: str) -> None:
        self._say(f"whole: {self.is_whole(WHOLE)}")
