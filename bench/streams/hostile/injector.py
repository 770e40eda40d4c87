"""What is done to the nodes of a stream, and undone.

Each fault lasts for a while, and up to two do at a time, while what was altered in files waits to
be found and mended. No place is altered in two replicas at once. So what is acknowledged is always
whole on some disk, and that comes back (SIGCONT, a restart), which is what the stream promises to
survive.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from bench.processes.nodes import ProxiedNodes
from bench.streams.hostile.disks import Altered, SmallDisk, flip_bits
from bench.streams.hostile.programs import STREAM, wait, wait_on
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from harness.fault_proxy import FaultProxy, Faults
from overlay.client import GetStreams, Streams
from overlay.info import ReplicaInfo

AT_ONCE: Final = 2
NO_ROOM: Final = (6, 7)
"""Exit codes of a node whose disk is full: at its start, and later."""
ENDS_WITHIN: Final = 20.0
"""Seconds from when there is room again until a node that found none has ended; ample."""

WHOLE: Final = 60.0
"""Seconds for all replicas to have everything."""

CHECKED: Final = 300.0
"""Seconds without a place that was mended, after which the rest counts as not found. A node reads 2
MB of its logs a second, after a minute."""


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
        self._altered: list[Altered] = []  # what was not mended when somebody looked last
        self._full: dict[str, float] = {}  # until when its disk was full, by node
        self._kinds: dict[str, Callable[[str], bool]] = {
            "kill": self._kill,
            "stop": self._stop,
            "isolate": self._isolate,
            "one-way": self._one_way,
            "damage": self._damage,
        }
        if any(disk.mounted for disk in disks.values()):
            self._kinds["full-disk"] = self._fill

    def step(self) -> None:
        """Begin one fault, if there is room for it."""
        if len(self._lasting) >= AT_ONCE:
            return
        free = [n for n in self.nodes.nodes if all(one.node != n for one in self._lasting)]
        self._next = self._next or self.rng.sample(list(self._kinds), len(self._kinds))
        kind, node = self._next[-1], self.rng.choice(free)
        self._say(f"{kind} {node}")
        if self._kinds[kind](node):
            self.counts[kind] += 1
            self._next.pop()

    def heal(self) -> None:
        """End all faults, but for what was altered."""
        for each in list(self._lasting):
            self._end(each)
        self.proxy.heal()

    def unmended(self) -> int:
        """How many places are not mended in the end: nodes are given the time to find them."""
        wait_on(lambda: not self.altered(), lambda: len(self._altered), CHECKED)
        for each in self._altered:
            self._say(f"not mended: {each.path.name} of {each.node} at {each.at}")
        return len(self._altered)

    def altered(self) -> list[Altered]:
        """The places that nobody has mended yet."""
        self._altered = [each for each in self._altered if each.is_there()]
        return self._altered

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
            self.look()
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

    def _for_a_while(self, kind: str, name: str, undo: Callable[[], None]) -> bool:
        until = time.monotonic() + self.rng.uniform(0.5, 6.0)
        self._lasting.append(Lasting(until, kind, name, undo))
        return True

    def _kill(self, name: str) -> bool:
        self.nodes.kill(name)
        return self._for_a_while("kill", name, lambda: self.nodes.restart(name, wiped=False))

    def _stop(self, name: str) -> bool:
        self.nodes.pause(name)
        return self._for_a_while("stop", name, lambda: self.nodes.resume(name))

    def _isolate(self, name: str) -> bool:
        self.proxy.isolate(name)
        return self._for_a_while("isolate", name, lambda: self._join(name))

    def _join(self, name: str) -> None:
        for other in self.nodes.nodes:
            self.proxy.spoil(name, other, Faults())
            self.proxy.spoil(other, name, Faults())

    def _one_way(self, name: str) -> bool:
        for other in self.nodes.nodes:
            if other != name:
                self.proxy.spoil(name, other, Faults(hold=True))
        return self._for_a_while("one-way", name, lambda: self._join(name))

    def _fill(self, name: str) -> bool:
        self._full[name] = float("inf")
        self.disks[name].fill()
        return self._for_a_while("full-disk", name, lambda: self._free(name))

    def _free(self, name: str) -> None:
        self.disks[name].free()
        self._full[name] = time.monotonic()

    def look(self) -> None:
        """End what is over. Count the nodes that ended by themselves, but for those that had to
        write more than rows when their disk was full: that is what they do (docs/guide/operate.md).
        These begin again when there is room."""
        now = time.monotonic()
        for each in [one for one in self._lasting if one.until <= now]:
            self._end(each)
        for name, node in self.nodes.nodes.items():
            code = node.process.poll() if node.process is not None else None
            full_until = self._full.get(name, float("-inf"))
            if node.is_meant_to_run and code in NO_ROOM and now < full_until + ENDS_WITHIN:
                if full_until < now:
                    self._say(f"{name} had ended, and begins anew")
                    node.is_meant_to_run = False
                    self.nodes.kill(name)
                    self.nodes.restart(name, wiped=False)
            else:
                node.look()

    def _damage(self, name: str) -> bool:
        """Alter a file, and have it found: by whoever reads it, or when the process begins again.
        Returns whether there was one to alter."""
        done = flip_bits(name, self.nodes.nodes[name].data, self.rng, self.altered())
        if done is None:
            return False
        self._altered.append(done)
        self._say(f"altered {done.path.name} of {name} at {done.at}")
        if self.nodes.nodes[name].is_up and self.rng.random() < 0.5:
            self.nodes.kill(name)
            self.nodes.restart(name, wiped=False)
        return True
