"""Injects faults into an overlay of real processes, as a seed draws them (endurance.py).

Faults overlap: the next begins while the last may still hold. Two rules keep them survivable, so
that what is lost is the overlay's doing: no more than `TOGETHER` nodes are down, standing still or
cut off at once, unless a whole cluster is killed or the overlay is cut in two, which happens when
no other node is; and a node that was silent rests for `REST` before it is made silent again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Final

from bench.endurance.oracle import Ledger
from bench.processes.nodes import ProxiedNodes
from harness.fault_proxy import SOUND, Faults
from harness.recovery.plan import members

TOGETHER: Final = 2
"""Nodes that are silent at once: of three members one, and another elsewhere; sometimes both are of
one cluster, which loses its majority."""

REST: Final = 12.0
"""Seconds: twice what silence takes to count as death (`links.dead_after`)."""

LEAVING: Final = 30.0
"""Seconds until a node that was asked to leave is started again: more than its bound for leaving
(`stop.bound`, ten seconds), and time for others to notice. Guess."""


@dataclass(frozen=True)
class Profile:
    """Which faults are drawn, how often, and for how long they hold (seconds, from and to)."""

    kinds: tuple[tuple[str, int], ...]
    pause: tuple[float, float] = (1.0, 20.0)
    isolate: tuple[float, float] = (0.5, 15.0)
    halves: tuple[float, float] = (5.0, 90.0)
    leaving: float = LEAVING

    def only(self, kinds: Sequence[str]) -> Profile:
        """The same with these of its kinds only; with all of them if none is named."""
        found = tuple(each for each in self.kinds if not kinds or each[0] in kinds)
        return replace(self, kinds=found)


USUAL: Final = Profile(
    (
        *(("kill", 5), ("wipe", 3), ("primary", 3), ("cluster", 1)),
        *(("pause", 5), ("isolate", 2), ("cut", 4), ("one-way", 4)),
        *(("clog", 2), ("reset", 2), ("slow", 3), ("damage", 2)),
    )
)
"""Faults after which nothing is lost but what a killed node had in flight."""

HOSTILE: Final = Profile(
    (
        *(("kill", 3), ("wipe", 2), ("primary", 2), ("cluster", 1), ("leave", 4)),
        *(("pause", 5), ("isolate", 3), ("halves", 2), ("cut", 2), ("one-way", 2)),
        *(("clog", 1), ("reset", 1), ("slow", 2), ("damage", 1)),
        *(("flood", 3), ("throng", 3), ("long-selector", 2)),
    ),
    pause=(1.0, 70.0),
    isolate=(0.5, 40.0),
)
"""Also faults that may cost deliveries, which must then be reported to the subscribing program:
nodes that stand still for longer than anything is kept, an overlay in two halves, events faster
than they can be carried, programs with thousands of subscriptions, and nodes that leave in order.
"""

CHURNING: Final = Profile(
    (("kill", 1), ("pause", 1), ("stop-kill", 1), ("leave", 1)), leaving=LEAVING / 2
)
"""What happens to nodes whose programs keep their subscriptions."""

SILENCING: Final = ("kill", "wipe", "primary", "pause", "stop-kill", "isolate", "leave")

PRESSURE: Final = ("flood", "throng", "long-selector")
"""Made by programs (pressure.py), not by faults of nodes or links."""

HALVES: Final = "halves"
"""What stands for both halves among the silent nodes."""

Undo = Callable[[], None]


class Injector(threading.Thread):
    """Carries out `count` faults, one every `every` seconds or so."""

    def __init__(
        self,
        nodes: ProxiedNodes,
        ledger: Ledger,
        seed: int,
        count: int,
        every: float,
        profile: Profile = USUAL,
        press: Callable[[str, Random], str] | None = None,
    ) -> None:
        """`press`: carries out a kind of `PRESSURE` and returns what it did, for the story."""
        super().__init__(daemon=True)
        self.nodes = nodes
        self.ledger = ledger
        self.rng = Random(seed)
        self.count = count
        self.every = every
        self.profile = profile
        self.press = press
        self.done = 0
        self.kinds: Counter[str] = Counter()
        self.story: list[tuple[float, str]] = []
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self._ends: list[tuple[float, int, str, Undo]] = []  # a heap: what ends when
        self._silent: dict[str, float] = {}  # node -> when it may be made silent again
        self._down: dict[str, float] = {}  # … since when
        self._due = ""  # a kind that waits until no node is silent

    def run(self) -> None:
        try:
            while self.done < self.count and not self.stopping.is_set():
                self._wait(self.rng.uniform(0.2, 1.8) * self.every)
                self.inject()
            self._wait(0.0)
            while self._ends:
                self._wait(0.5)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.nodes.proxy.heal()

    def inject(self) -> None:
        """One more fault; none, if what is drawn would be too much just now."""
        kinds, shares = zip(*self.profile.kinds, strict=True)
        kind = self.rng.choices(kinds, shares)[0]
        now = time.monotonic()
        free = [name for name in self.nodes.nodes if self._silent.get(name, 0.0) <= now]
        if kind in ("cluster", HALVES):
            self._due = self._due or kind
        if self._due and kind in (*SILENCING, "cluster", HALVES):
            kind = self._due  # no node is made silent until it can be done
            found = self._cluster(free) if kind == "cluster" else self._halves(free)
            self._due = "" if found else kind
        elif kind in PRESSURE:
            assert self.press is not None
            self._note(self.press(kind, self.rng))
            found = True
        elif kind in SILENCING:
            found = len(self._down) < TOGETHER and bool(free) and self._silence(kind, free)
        else:
            found = self._spoil(kind)
        if found:
            self.kinds[kind] += 1
            self.done += 1

    # -- kinds -----------------------------------------------------------------------------------

    def _cluster(self, free: list[str]) -> bool:
        """A whole cluster is killed; each of its nodes comes back, with its disk or without."""
        clusters = self.nodes.clusters(list(self._down))
        if self._down or not clusters:
            return False
        self._learn()
        names = [self.nodes.named(node) for node in members(self.rng.choice(clusters))]
        if not names or not all(name in free for name in names):
            return False
        for name in names:
            wiped = self.rng.random() < 0.4
            self._kill(name, wiped, self.rng.uniform(0.5, 8.0))
        return True

    def _halves(self, free: list[str]) -> bool:
        """The overlay is cut in two: nothing passes between the halves."""
        names = list(self.nodes.nodes)
        if self._down or len(free) < len(names):
            return False
        one = set(self.rng.sample(names, len(names) // 2))
        seconds = self.rng.uniform(*self.profile.halves)
        self._note(f"halves {' '.join(sorted(one))} and the others for {seconds:.1f}")
        now = time.monotonic()
        for name in names:
            self._down[name], self._silent[name] = now, inf
        ways = [(a, b) for a in names for b in names if (a in one) != (b in one)]
        self._hold(ways, seconds, Faults(hold=True), *names)
        return True

    def _silence(self, kind: str, free: list[str]) -> bool:
        name = self.rng.choice(free)
        if kind == "primary":
            clusters = self.nodes.clusters(list(self._down))
            self._learn()
            primaries = [self.nodes.named(cluster.primary) for cluster in clusters]
            fit = [primary for primary in primaries if primary in free]
            if not fit:
                return False
            name = self.rng.choice(fit)
        if kind in ("pause", "stop-kill"):
            seconds = self.rng.uniform(*self.profile.pause)
            self._begin(f"pause {name} for {seconds:.1f}", name)
            self.nodes.pause(name)
            self._after(seconds, f"end of the pause of {name}", lambda: self._wake(name, kind))
        elif kind == "isolate":
            seconds = self.rng.uniform(*self.profile.isolate)
            self._begin(f"isolate {name} for {seconds:.1f}", name)
            ways = [way for other in self.nodes.nodes if other != name
                    for way in ((name, other), (other, name))]  # fmt: skip
            self._hold(ways, seconds, Faults(hold=True), name)
        elif kind == "leave":
            self._begin(f"leave {name}", name)
            self.ledger.leave(name, time.monotonic())
            self.nodes.leave(name)
            self._after(self.profile.leaving, f"restart {name}", lambda: self._restart(name, False))
        else:
            self._kill(name, kind == "wipe", self.rng.uniform(0.3, 10.0))
        return True

    def _spoil(self, kind: str) -> bool:
        one, other = self.rng.sample(list(self.nodes.nodes), 2)
        seconds = self.rng.uniform(0.5, 15.0)
        if kind == "reset":
            self._note(f"reset {one} {other}")
            self.nodes.proxy.close(one, other)
            return True
        if kind == "cut":
            ways, faults = [(one, other), (other, one)], Faults(hold=True)
        elif kind == "one-way":
            ways, faults = [(one, other)], Faults(hold=True)
        elif kind == "clog":
            pairs = [(a, b) for a in self.nodes.nodes for b in self.nodes.nodes if a != b]
            for way in self.rng.sample(pairs, 6):  # freed one by one
                self._hold([way], self.rng.uniform(0.2, 5.0), Faults(hold=True))
            self._note("clog six ways")
            return True
        elif kind == "slow":
            ways = [(one, other), (other, one)]
            faults = Faults(delay=self.rng.uniform(0.02, 0.5), rate=self.rng.uniform(2e4, 5e5))
        else:
            ways, faults = [(one, other)], Faults(damage=0.05)
        self._note(f"{kind} {one} {other} for {seconds:.1f}")
        self._hold(ways, seconds, faults)
        return True

    # -- doing and undoing -----------------------------------------------------------------------

    def _kill(self, name: str, wiped: bool, seconds: float) -> None:
        self._begin(f"kill {name}" + (", wiped" if wiped else ""), name)
        self.ledger.kill(name, time.monotonic(), self.nodes.nodes[name].id)
        self.nodes.kill(name)
        self._after(seconds, f"restart {name}", lambda: self._restart(name, wiped))

    def _restart(self, name: str, wiped: bool) -> None:
        self.ledger.started[name] = time.monotonic()
        self.nodes.restart(name, wiped)
        self._rest(name)

    def _wake(self, name: str, kind: str) -> None:
        self.ledger.pauses.append((name, self._down[name], time.monotonic()))
        if kind == "stop-kill":
            self._kill(name, False, self.rng.uniform(0.3, 10.0))
        else:
            self.nodes.resume(name)
            self._rest(name)

    def _hold(
        self, ways: list[tuple[str, str]], seconds: float, faults: Faults, *silent: str
    ) -> None:
        """Spoil these ways for a while, which silences these nodes. (Where two faults share a way,
        the first end ends both.)"""
        for way in ways:
            self.nodes.proxy.spoil(*way, faults)

        def free() -> None:
            for way in ways:
                self.nodes.proxy.spoil(*way, SOUND)
            for name in silent:
                self._rest(name)

        self._after(seconds, f"join {' '.join(silent)}" if silent else "", free)

    def _begin(self, text: str, name: str) -> None:
        self._note(text)
        self._down.setdefault(name, time.monotonic())
        self._silent[name] = inf

    def _rest(self, name: str) -> None:
        self.ledger.silences.append((name, self._down.pop(name), time.monotonic()))
        self._silent[name] = time.monotonic() + REST

    def _note(self, text: str) -> None:
        self.story.append((time.monotonic(), text))

    def _after(self, seconds: float, text: str, undo: Undo) -> None:
        heappush(self._ends, (time.monotonic() + seconds, len(self.story), text, undo))

    def _learn(self) -> None:
        """Ids of nodes that were started again."""
        for name, node in self.nodes.nodes.items():
            if node.is_up and not node.is_paused:
                self.nodes.status(name)

    def _wait(self, seconds: float) -> None:
        """Let time pass, and end what falls due meanwhile."""
        until = time.monotonic() + seconds
        while True:
            due = self._ends[0][0] if self._ends else until
            time.sleep(max(0.0, min(due, until) - time.monotonic()))
            while self._ends and self._ends[0][0] <= time.monotonic():
                _, _, text, undo = heappop(self._ends)
                if text:
                    self._note(text)
                undo()
            if time.monotonic() >= until:
                return
