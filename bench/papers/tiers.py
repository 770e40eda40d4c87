"""Tensor's network in the simulator: a headquarters, the divisions of three areas, and points.

The regions are paths, as nodes name them: `hq`, `a`, `a/3`. A way from the headquarters to an area
takes what the paper measured, 25, 30 and 32 ms, one between two areas both; inside an area 1 to 3
ms, which the paper does not say. Each machine sends at most a gigabit a second, as the paper's, and
has a processor of its own, whose work takes the time of a real node's (`Processor`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final

from bench.experiments.frame import READY_WITHIN, run_until_ready
from canopy.sim.world.clients import Publication, Shown
from canopy.sim.world.network import Conditions
from canopy.sim.world.processor import Processor
from canopy.sim.world.world import MeteredNode, World
from canopy.wire.transport.codec import WireCodec
from matching import Value
from overlay.machine import Message, Peer
from overlay.upper_tree.messages import Deliver, Visit

AWAY: Final = {"a": 0.025, "b": 0.030, "c": 0.032}
"""Seconds from the headquarters to each area (Tensor, V.B)."""

CONDITIONS: Final = Conditions(
    latency_low=0.001, latency_high=0.003, away=AWAY, node_bandwidth=125e6
)
PROCESSOR: Final = Processor(per_publish=0.000_02, per_delivery=0.000_005)
BODY: Final = "x" * 1_000
"""Of each message: 1 kB (Tensor, V.B)."""

TOPIC: Final = "topic = 'rules'"
HEADQUARTERS: Final = 3
DIVISION: Final = 3
"""Nodes of the headquarters, and of the division of each area."""

BURST: Final = 250
"""Messages that are published together …"""

AHEAD: Final = 8
"""… and how many such batches have no answer at most, as a program's that notices that it is too
fast."""


def message(number: int) -> dict[str, Value | None]:
    """Return the attributes of event `number`, with a body of `BODY`."""
    return {"topic": "rules", "n": number, "body": BODY}


def _is_answered(made: Sequence[Publication]) -> bool:
    return all(one.identity or one.refused for one in made)


class Tally:
    """Stands for `Clients.deliveries`: counts them, and keeps none."""

    def __init__(self) -> None:
        self.count = 0
        self.last = 0.0
        self.by_node: dict[str, int] = {}

    def __len__(self) -> int:
        return self.count

    def extend(self, shown: Iterable[Shown]) -> None:
        """Count deliveries, in all and by node, and note the time of the last one."""
        for one in shown:
            self.count += 1
            self.last = one.time
            self.by_node[one.node] = self.by_node.get(one.node, 0) + 1


class Tiers:
    """The overlay, its publisher at the headquarters and subscribers at the points."""

    def __init__(
        self,
        seed: int,
        points: int,
        processor: Processor | None = PROCESSOR,
        founder: str = "hq",
    ) -> None:
        """`points`: nodes at points, spread over the areas. `founder`: whose nodes are there first,
        one of which owns the messages' tree then."""
        self.passed: dict[str, int] = {}
        """By node id, the copies of events that it has sent to other nodes."""
        passed = self.passed

        class CountedNode(MeteredNode):
            def send(self, peer: Peer, message: Message) -> None:
                if peer.id != self.me.id and isinstance(message, Visit | Deliver):
                    passed[self.me.id] = passed.get(self.me.id, 0) + len(message.events)
                super().send(peer, message)

        self.world = world = World(seed, WireCodec(), build=CountedNode)
        world.processor = processor
        world.network.conditions = CONDITIONS
        self.members: dict[str, list[str]] = {"hq": [], **{area: [] for area in AWAY}}
        """The nodes of the headquarters, and of each area with its points."""
        self.points: list[str] = []
        self.tally = Tally()
        for area in sorted(self.members, key=lambda each: each != founder):
            for number in range(HEADQUARTERS if area == "hq" else DIVISION):
                self._add(area, area, 2 if area == "hq" else 1, f"{area}{number}")
        for number in range(points):
            area = list(AWAY)[number % len(AWAY)]
            self.points.append(self._add(area, f"{area}/{number}", 0, f"p{number}"))
        run_until_ready(world, world.ready)
        world.run(20.0)

    @property
    def publisher(self) -> str:
        """The node at which messages are published."""
        return self.members["hq"][-1]

    def brokers(self) -> list[str]:
        """The nodes of the headquarters and of the divisions."""
        return [name for name in self.world.drivers if name not in self.points]

    def _add(self, area: str, region: str, tier: int, name: str) -> str:
        world = self.world
        world.network.place(name, area)
        first = next(iter(world.drivers), "")
        world.add_node([*self.members[area][:1], first][:1] if first else [], name, region, tier)
        self.members[area].append(name)
        world.run(0.2)
        return name

    def subscribe(self, count: int) -> None:
        """Make `count` programs subscribe at the points, and no other."""
        for number in range(count):
            node = self.points[number % len(self.points)]
            self.world.subscribe(node, TOPIC, client=1 + number // len(self.points))
            if number % 50 == 49:
                self.world.run(0.05)
        until = self.world.now + READY_WITHIN
        while not self.world.acknowledged():  # which looks at all of them
            assert self.world.now < until, "not all programs are registered"
            self.world.run(1.0)
        self.world.run(20.0)

    def distribute(self, messages: int) -> dict[str, Any]:
        """Publish messages as fast as the publisher's node takes them, and wait for all
        deliveries: the seconds from the first published to the last delivered."""
        world, expected = self.world, messages * len(self.world.clients.subscriptions)
        self.tally = tally = Tally()
        world.clients.deliveries = tally  # type: ignore[assignment]
        self.passed.clear()
        began, waiting = world.now, deque[list[Publication]]()
        places = [*range(0, messages, BURST), messages]
        for first, last in pairwise(places):
            waiting.append(world.publish(self.publisher, *map(message, range(first, last))))
            if len(waiting) == AHEAD:
                world.run_until(partial(_is_answered, waiting.popleft()), 600.0)
            world.clients.publications.clear()
        world.run_until(lambda: tally.count >= expected, 600.0)
        return {
            "messages": messages,
            "expected": expected,
            "delivered": tally.count,
            "distribution_s": round(tally.last - began, 3),
        }

    def spread(self, names: Sequence[str]) -> tuple[float, float]:
        """The mean of the copies that these nodes have passed on since, and their standard
        deviation."""
        counts = [self.passed.get(self.world.drivers[name].disk.node, 0) for name in names]
        mean = sum(counts) / len(counts)
        return mean, (sum((c - mean) ** 2 for c in counts) / len(counts)) ** 0.5
