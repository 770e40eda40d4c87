"""What is done to the nodes of a stream, and undone.

Each fault lasts for a while, and some do at a time, while what was damaged in files waits to be
found and mended. No place is damaged in two replicas at once, and of a shard whose replica has lost
its folder or its vote no other replica is damaged: where there are five replicas and several
shards, those with an even number have files that are altered and deleted, the others have replicas
that lose everything. (Of three, one that has lost its vote and one that was killed while it wrote
leave no majority of which it is known what it acknowledged.) So what is acknowledged is always
whole on some disk, and that comes back (SIGCONT, a restart), which is what the stream promises to
survive.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from bench.processes.nodes import ProxiedNodes
from bench.streams.hostile.disks import (
    Damage,
    SmallDisk,
    Wiped,
    delete_segment,
    flip_bits,
    segments,
)
from bench.streams.hostile.programs import wait, wait_on
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from canopy.wire.shards.shard_list import HARD_STATE
from harness.fault_proxy import FaultProxy, Faults
from overlay.client import GetStreams, Streams
from overlay.info import ShardInfo, StreamInfo

JUMP: Final = 7_200.0
"""Seconds by which a wall clock is set forward or back, at most."""
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
        self,
        nodes: ProxiedNodes,
        proxy: FaultProxy,
        disks: dict[str, SmallDisk],
        rng: Random,
        streams: Sequence[StreamInfo],
        at_once: int,
    ) -> None:
        """`streams`: those whose files are damaged, and that are to be whole in the end; `at_once`:
        how many faults last at a time, at most."""
        self.nodes, self.proxy, self.disks, self.rng = nodes, proxy, disks, rng
        self.streams, self.at_once = streams, at_once
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []
        self.began = time.monotonic()
        self._lasting: list[Lasting] = []
        self._altered: list[Damage] = []  # what was not mended when somebody looked last
        self._full: dict[str, float] = {}  # until when its disk was full, by node
        self._kinds: dict[str, Callable[[str], bool]] = {
            "kill": self._kill,
            "stop": self._stop,
            "isolate": self._isolate,
            "one-way": self._one_way,
            "damage": self._damage,
            "delete": self._delete,
        }
        if nodes.can_set_clocks:
            self._kinds["clock"] = self._set_clock
        self._wiped = {each.id for each in streams if each.replicas > 3 and len(each.shards) > 1}
        if self._wiped:
            self._kinds["wipe"] = self._wipe
        if any(disk.mounted for disk in disks.values()):
            self._kinds["full-disk"] = self._fill

    def step(self) -> None:
        """Begin one fault, if there is room for it: of the kinds that can be done now, one of which
        there were fewest."""
        if len(self._lasting) >= self.at_once:
            return
        free = [n for n in self.nodes.nodes if all(one.node != n for one in self._lasting)]
        node = self.rng.choice(free)
        for kind in sorted(self._kinds, key=lambda kind: (self.counts[kind], self.rng.random())):
            self._say(f"{kind} {node}")
            if self._kinds[kind](node):
                self.counts[kind] += 1
                return

    def heal(self) -> None:
        """End all faults, but for what was altered."""
        for each in list(self._lasting):
            self._end(each)
        self.proxy.heal()

    def unmended(self) -> int:
        """How many places are not mended in the end: nodes are given the time to find them."""
        wait_on(lambda: not self.altered(), lambda: len(self._altered), CHECKED)
        for each in self._altered:
            self._say(f"not mended: {each}")
        return len(self._altered)

    def altered(self) -> list[Damage]:
        """What was damaged and nobody has mended yet."""
        self._altered = [each for each in self._altered if each.is_there()]
        return self._altered

    def shards(self) -> tuple[tuple[str, ShardInfo], ...]:
        """All shards with the ids of their streams, as some node hears of them; () if none does."""
        for node in self.nodes.nodes.values():
            if node.is_up and not node.is_paused:
                try:
                    with ControlClient.connect(node.data, 5.0) as client:
                        found = [
                            client.ask(GetStreams(0, each.name), Streams, 10.0).streams[0]
                            for each in self.streams
                        ]
                        return tuple((each.id, shard) for each in found for shard in each.shards)
                except (ControlError, IndexError):
                    continue
        return ()

    def is_whole(self, seconds: float) -> bool:
        """Whether, within so many seconds, all replicas follow one leader and have what it has."""
        wanted = {each.id: each.replicas for each in self.streams}

        def whole() -> bool:
            self.look()
            found = self.shards()
            return bool(found) and all(has_everything(s, wanted[id_]) for id_, s in found)

        return wait(whole, seconds)

    def _shard_is_whole(self, stream: str, number: int) -> bool:
        wanted = {each.id: each.replicas for each in self.streams}
        return any(
            has_everything(shard, wanted[id_])
            for id_, shard in self.shards()
            if (id_, shard.number) == (stream, number)
        )

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
                    self._say(f"{name} had ended, and begins again")
                    node.is_meant_to_run = False
                    self.nodes.kill(name)
                    self.nodes.restart(name, wiped=False)
            else:
                node.look()

    def _set_clock(self, name: str) -> bool:
        self.nodes.set_clock(name, self.rng.uniform(-JUMP, JUMP))
        return self._for_a_while("clock", name, lambda: self.nodes.set_clock(name, 0.0))

    def _damage(self, name: str) -> bool:
        return self._found(flip_bits(name, self._segments(name), self.rng, self.altered()))

    def _delete(self, name: str) -> bool:
        return self._found(delete_segment(name, self._segments(name), self.rng, self.altered()))

    def _segments(self, name: str) -> list[Path]:
        """The files of a node that may be damaged."""
        found = segments(self.nodes.nodes[name].data)
        return [path for path in found if not self._may_wipe(path.parent)]

    def _may_wipe(self, shard: Path) -> bool:
        """Whether replicas of the shard with this folder lose everything."""
        return shard.parent.name in self._wiped and int(shard.name) % 2 == 1

    def _found(self, done: Damage | None) -> bool:
        """Have damage found: by whoever reads it, or when the process begins again. Returns whether
        there is any."""
        if done is None:
            return False
        self._altered.append(done)
        self._say(f"damaged {done}")
        if self.nodes.nodes[done.node].is_up and self.rng.random() < 0.5:
            self.nodes.kill(done.node)
            self.nodes.restart(done.node, wiped=False)
        return True

    def _wipe(self, name: str) -> bool:
        """A replica has lost its folder, or its vote, while its node was down."""
        folders = {path.parent: None for path in segments(self.nodes.nodes[name].data)}
        mine = [each for each in folders if self._may_wipe(each)]
        if not mine or not self.nodes.nodes[name].is_up:
            return False
        folder = self.rng.choice(mine)
        if not self._shard_is_whole(folder.parent.name, int(folder.name)):
            return False
        self.nodes.kill(name)
        if self.rng.random() < 0.5:
            (folder / HARD_STATE).unlink()
        else:
            shutil.rmtree(folder)
        self.nodes.restart(name, wiped=False)
        self._altered.append(Wiped(name, folder, self._shard_is_whole))
        self._say(f"damaged {self._altered[-1]}")
        return True


def has_everything(shard: ShardInfo, replicas: int) -> bool:
    """Whether so many replicas follow one leader and have what it has."""
    states = Counter(each.state for each in shard.replicas)
    ends = [each.durable for each in shard.replicas]
    return (
        states == {"leads": 1, "follows": replicas - 1}
        and not any(each.damaged for each in shard.replicas)
        and max(ends) - min(ends) < 50
    )
