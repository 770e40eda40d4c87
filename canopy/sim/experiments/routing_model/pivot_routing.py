"""Routes an event in the routing model by pivots, shared hosts and summaries (C9, C11).

    publisher ── visit ──► host of a run ── copy ──► interested node
                                        └─ copy ──► delegate ── copy ──► interested node

In the steady state: publishers know the maps, and the summaries where the style has them. What an
event costs is one message per visit and one per copy; an attempt at a dead node is a message too.
No node sends more than `fan_out` copies: a host hands shares of its recipients to delegates, and a
publisher with that many visits hands shares of those to hosts
(`overlay/upper_tree/delivery/fan_out.py`).

**Failure.** Some nodes fail at once, and no other node knows it, also not from the event before.
Each hop is acknowledged or taken for lost: a publisher tries up to `tries` replicas of a run, a
share of a dead delegate goes to others of its share. Copies to the dead are copies too, so a node
that has none left hands what remains to one that did answer, which costs a message more but can not
fail. What no replica answers to goes to the
*fallback*: the owner's cluster, or else its ring successor, which has a copy of the registry (P5).
Each of its members is asked until one answers; it plants the run on a live node and hands the event
on. Its answer names the new host, but for the count here each event starts without knowledge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from numpy.typing import NDArray

from canopy.sim.experiments.routing_model.host_assignment import Fleet
from canopy.sim.experiments.routing_model.pivot_placement import Placing
from canopy.sim.scenario.range_load import RangeSubscription, attribute_name
from matching import place
from overlay.upper_tree.delivery.fan_out import rotation, spread

KEEPERS = 10
"""Nodes that know a registry: five of the cluster, five of its ring successor (ClusterSettings)."""

RESERVED = 2
"""Copies that a node keeps back: one to hand over what dead delegates left, and one in case it is
made a delegate after it was a host already."""


@dataclass
class RoutingTally:
    """What some events cost, and which deliveries they led to."""

    nodes: int
    events: int = 0
    interested: int = 0  # (event, live node) pairs: the deliveries that are expected
    delivered: int = 0
    rescued: int = 0  # … of these, only thanks to the fallback
    visits: int = 0  # messages: from publishers to hosts
    copies: int = 0  # messages: from hosts and delegates to interested nodes
    retries: int = 0  # messages: at dead nodes, of both kinds, and to hand over what they left
    fallback: int = 0  # messages: asking keepers of the registry, and from them to the new host
    most_copies: int = 0
    hops: Counter[int] = field(default_factory=Counter)  # of deliveries, from the publisher on
    traffic: NDArray[np.int64] = field(init=False)  # messages sent and received, by node
    serving: NDArray[np.int64] = field(init=False)  # … of these, for others, as host or delegate
    demand: NDArray[np.int64] = field(init=False)  # what no routing can take from a node: its own
    # events and interests, one message each

    def __post_init__(self) -> None:
        self.traffic = np.zeros(self.nodes, dtype=np.int64)
        self.serving = np.zeros(self.nodes, dtype=np.int64)
        self.demand = np.zeros(self.nodes, dtype=np.int64)

    @property
    def messages(self) -> int:
        """All messages of the data plane."""
        return self.visits + self.copies + self.retries + self.fallback

    @property
    def lower_bound(self) -> int:
        """One message to enter, and one per interested live node."""
        return self.events + self.interested


class Course:
    """Events through one placing, on one fleet."""

    def __init__(
        self,
        placing: Placing,
        fleet: Fleet,
        subscriptions: Sequence[RangeSubscription],
        alive: Sequence[bool],
        fan_out: int,
        tries: int,
        rng: Random,
    ) -> None:
        """`alive`: whether each node is up, by its number."""
        self.placing = placing
        self.fleet = fleet
        self.subscriptions = subscriptions
        self.alive = alive
        self.fan_out = fan_out
        self.tries = tries
        self.rng = rng
        self.tally = RoutingTally(len(alive))
        self._published: Counter[int] = Counter()  # events, by publisher
        self._event = (0, 0)  # the publisher of the present event, and its how-manieth it is
        self._sent: Counter[int] = Counter()  # copies of the present event, by node
        self._heard: dict[int, int] = {}  # node -> a recipient that answered it, as above
        self._reached: dict[int, int] = {}  # node -> hops, for the present event
        self._rescued: dict[int, None] = {}

    def publish(self, publisher: int, event: dict[int, int], matching: Sequence[int]) -> None:
        """One event, which interests these subscriptions."""
        self._event = (publisher, self._published[publisher])
        self._published[publisher] += 1
        self._sent, self._heard, self._reached, self._rescued = Counter(), {}, {}, {}
        audience = recipients(self.placing, event, matching, self.subscriptions)
        runs = wanted(self.placing, event)
        self._visit(publisher, publisher, [(run, audience.get(run, [])) for run in runs], 0)
        tally = self.tally
        tally.events += 1
        nodes = dict.fromkeys(self.subscriptions[number].node for number in matching)
        tally.demand[publisher] += 1
        for node in nodes:
            tally.interested += self.alive[node]
            tally.demand[node] += self.alive[node]
        tally.delivered += len(self._reached)
        tally.rescued += len(self._rescued)
        tally.hops.update(self._reached.values())
        tally.most_copies = max([tally.most_copies, *self._sent.values()])

    def _visit(
        self, sender: int, publisher: int, visits: list[tuple[int, list[int]]], hops: int
    ) -> None:
        entered: list[tuple[int, list[int]]] = []
        left_over: list[tuple[int, list[int]]] = []
        helper: int | None = None  # another host that has answered
        for (run, nodes), onward in spread(visits, self._left(sender), self._turn(sender)):
            found = self._enter(sender, publisher, run, hurried=helper is not None)
            if found is None and helper is not None and self._used(sender):
                left_over += [(run, nodes), *onward]
                continue
            if found is None:
                host, late = self._fall_back(sender, run), True
            else:
                host, late = found, False
            helper = host if host != sender else helper
            if onward:
                self._visit(host, publisher, list(onward), hops + 1)
            if late:
                nodes = [node for node in nodes if node not in self._reached]
                self._rescued.update((node, None) for node in nodes if self.alive[node])
            entered.append((host, nodes))
        if helper is not None and left_over:  # too many hosts were dead
            self._send(sender, helper, serves=sender != publisher)
            self.tally.retries += 1
            self._visit(helper, publisher, left_over, hops + 1)
        for host, nodes in entered:  # after all visits, which may have begun at one of the hosts
            self._deliver(host, nodes, hops + (host != sender))

    def _enter(self, sender: int, publisher: int, run: int, hurried: bool) -> int | None:
        """The replica that takes the event. `hurried`: tries no more than there are copies left."""
        for host in self.fleet.choices(run, publisher, self.tries):
            if hurried and self._used(sender):
                return None
            self._send(sender, host, serves=sender != publisher)
            if self.alive[host]:
                self.tally.visits += host != sender
                self.tally.serving[host] += host != sender
                return host
            self.tally.retries += 1
        return None

    def _fall_back(self, sender: int, run: int) -> int:
        """The first keeper of the registry that lives; all of them dead is left out."""
        for _ in range(KEEPERS - 1):
            keeper = self.rng.randrange(len(self.alive))
            self.tally.fallback += 1
            self._send(sender, keeper, serves=False)
            if self.alive[keeper]:
                break
        host = self.fleet.plant(run, self.alive)
        self.tally.fallback += 1
        self._send(keeper, host, serves=True)
        self.tally.serving[host] += 1
        return host

    def _deliver(self, sender: int, nodes: Sequence[int], hops: int) -> None:
        if sender in nodes:  # which needs no message for it
            self._reached.setdefault(sender, hops)
            nodes = [node for node in nodes if node != sender]
        while nodes:
            heard = self._heard.get(sender)
            if heard is not None and self._used(sender):
                self._send(sender, heard, serves=True)
                self.tally.retries += 1
                self._deliver(heard, nodes, hops + 1)
                return
            shares: list[tuple[int, tuple[int, ...]]] = []
            orphans: list[int] = []
            for node, share in spread(nodes, self._left(sender), self._turn(sender)):
                self._send(sender, node, serves=True)
                if not self.alive[node]:
                    self.tally.retries += 1
                    orphans += share
                    continue
                self._heard[sender] = node
                self.tally.copies += 1
                self._reached.setdefault(node, hops + 1)
                shares.append((node, share))
            for node, share in shares:
                self._deliver(node, share, hops + 1)
            nodes = orphans

    def _turn(self, sender: int) -> int:
        publisher, sequence = self._event
        return rotation(str(publisher), 0, sequence, str(sender))

    def _used(self, sender: int) -> bool:
        return self._sent[sender] >= self.fan_out - RESERVED

    def _left(self, sender: int) -> int:
        """How many copies of this event a node may still send: it may be publisher and host."""
        return max(1, self.fan_out - RESERVED - self._sent[sender])

    def _send(self, sender: int, receiver: int, serves: bool) -> None:
        if sender == receiver:
            return
        self._sent[sender] += 1
        self.tally.traffic[sender] += 1
        self.tally.serving[sender] += serves
        if self.alive[receiver]:
            self.tally.traffic[receiver] += 1


def wanted(placing: Placing, event: dict[int, int]) -> dict[int, None]:
    """The runs that the publisher of an event visits."""
    named = {attribute_name(name): value for name, value in event.items()}
    runs: dict[int, None] = {}
    for name, value in event.items():
        tree = placing.trees.get(name)
        if tree is None:
            continue
        for part in tree.cells[tree.map.find(place(value))]:
            run = placing.run_of[part]
            if run not in runs:
                summary = placing.parts[part].summary
                if summary is None or summary.admits(named):
                    runs[run] = None
    return runs


def recipients(
    placing: Placing,
    event: dict[int, int],
    matching: Sequence[int],
    subscriptions: Sequence[RangeSubscription],
) -> dict[int, list[int]]:
    """Per run, the nodes that it sends the event to, each once."""
    found: dict[int, dict[int, None]] = {}
    for number in matching:
        run = placing.run_of[placing.part_for(number, event)]
        found.setdefault(run, {})[subscriptions[number].node] = None
    return {run: list(nodes) for run, nodes in found.items()}
