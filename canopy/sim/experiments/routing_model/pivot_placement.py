"""Where the routing model registers conjunctions: pivots, virtual nodes, shards, runs (C6, C9).

What decides is the product's: `choose_pivot`, `best_cut`, `PartitionMap`, `pack`, `summarise`. Here
they are put together for all subscriptions at once, in one of several *styles*, so that their costs
can be laid side by side:

1. each conjunction chooses its pivot, in the order in which they come, with what was known then;
2. a tree with more registrations than a host has room for is cut by value, as long as that does not
   copy too many of them; what is still too large is cut by subscription into *shards*, those that
   ask for the same attributes together;
3. the parts (virtual nodes or shards of them) get a host each, or share hosts in order of
   popularity. What one host holds is a *run*. `host_assignment.py` gives each run its replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec

from canopy.sim.experiments.routing_model.random_graph import model_peer
from canopy.sim.scenario.range_load import MOST_VALUE, RangeSubscription, attribute_name
from matching import EVERYTHING, Conjunction, Cut, Interval, place
from matching.constraint import constraint_of
from matching.selector.expression import Between, Comparison, Expression, attribute, literal
from overlay.upper_tree.messages import Entry
from overlay.upper_tree.owner.placement import by_popularity, pack
from overlay.upper_tree.partition import PartitionMap, best_cut
from overlay.upper_tree.pivots import choose_pivot
from overlay.upper_tree.summary import Summary, summarise

MOST_COPIES = 1.4
"""A cut by value may make this many registrations of one: two levels at most double
them. Not measured; would be measured by the load of the hottest host over this factor."""

LEARN_EVERY = 1.1
"""Subscribers learn popularities anew when there are this many times more.
Not measured; would be measured by the load of the hottest host over this factor."""


class Style(msgspec.Struct, frozen=True):
    """One way to choose the trees in which a conjunction is registered, and whether publishers have
    summaries."""

    name: str
    pivot: Literal["listed", "cover", "least"]
    shared: bool = False
    summaries: bool = False


STYLES = (
    Style("pivot, own hosts", "listed"),
    Style("+ greedy cover", "cover"),
    Style("+ shared hosts", "cover", shared=True),
    Style("+ summaries", "cover", shared=True, summaries=True),
    Style("least traffic, own hosts", "least"),
    Style("least, shared hosts", "least", shared=True),
    Style("least, shared, summaries", "least", shared=True, summaries=True),
)
"""Side by side in a report; the last is the one that is proposed."""


class Coarseness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How coarse the summaries at publishers are."""

    boxes: int = 128  # most boxes of one summary
    per_box: int = 2  # registrations that a box stands for, at least
    slack: float = 0.0  # see `summarise`; a tenth doubles the visits where ranges are narrow


@dataclass(frozen=True, slots=True)
class Part:
    """A virtual node, or a shard of one."""

    attribute: int
    members: tuple[int, ...]  # numbers of the subscriptions
    summary: Summary | None  # None: publishers know nothing of it


@dataclass(frozen=True, slots=True)
class ModelCells:
    """A tree: its map, and per virtual node its parts (one, or shards) by their numbers."""

    map: PartitionMap
    cells: tuple[tuple[int, ...], ...]


def conjunction_of(subscription: RangeSubscription) -> Conjunction:
    """The conjunction that a subscriber would register for this subscription."""
    constraints = {}
    for number, (low, high) in subscription.ranges.items():
        name = attribute_name(number)
        found = constraint_of(_condition(name, low, high))
        assert found is not None
        constraints[name] = found
    return Conjunction(constraints)


def _condition(name: str, low: int, high: int) -> Expression:
    of = attribute(name)
    if high >= MOST_VALUE:
        return Comparison(">=", of, literal(low))
    if low <= 0:
        return Comparison("<=", of, literal(high))
    return Between(of, literal(low), literal(high))


@lru_cache(maxsize=10_000)
def number_of(name: str) -> int:
    """The number of `attribute_name`."""
    return int(name[1:])


class Placing:
    """All conjunctions placed on virtual nodes, in one style."""

    def __init__(
        self,
        style: Style,
        conjunctions: Sequence[Conjunction],
        room: int,
        coarseness: Coarseness,
    ) -> None:
        """`room`: registrations per host."""
        self.style = style
        self._conjunctions = conjunctions
        self._room = room
        self._coarseness = coarseness
        self.popularity: dict[str, int] = {}
        self.pivots: list[tuple[str, Interval]] = []
        self._choose()
        self.parts: list[Part] = []
        self.trees: dict[int, ModelCells] = {}
        self._shard: dict[tuple[int, int, int], int] = {}  # (attribute, cell, subscription) -> part
        self._cut()
        order = pack(((n, len(part.members)) for n, part in enumerate(self.parts)), room)
        self.runs = order if style.shared else [[number] for number in range(len(self.parts))]
        self.run_of = [0] * len(self.parts)
        for number, run in enumerate(self.runs):
            for part in run:
                self.run_of[part] = number

    def entries(self, run: int) -> int:
        """How many index entries a run has."""
        return sum(len(self.parts[part].members) for part in self.runs[run])

    def part_for(self, subscription: int, event: Mapping[int, int]) -> int:
        """The part (virtual node or shard) in which an event meets the registration of a
        subscription that it matches."""
        name = number_of(self.pivots[subscription][0])
        tree = self.trees[name]
        cell = tree.map.find(place(event[name]))
        parts = tree.cells[cell]
        return parts[0] if len(parts) == 1 else self._shard[name, cell, subscription]

    def cells_for(self, conjunction: Conjunction) -> list[tuple[int, ...]]:
        """Where another conjunction would be registered: the parts of each virtual node that it
        overlaps (of shards, any one would do); an empty tuple where there is no tree."""
        name, interval = choose_pivot(conjunction.pivots(), self.popularity)
        tree = self.trees.get(number_of(name))
        if tree is None:
            return [()]
        return [
            cell
            for cell, entry in zip(tree.cells, tree.map.entries, strict=True)
            if entry.interval.overlaps(interval)
        ]

    # --- choosing ---

    def _choose(self) -> None:
        asked: Counter[str] = Counter()
        known: dict[str, int] = {}
        joined: Counter[str] = Counter()
        learn_at = 1.0
        for number, conjunction in enumerate(self._conjunctions):
            if number >= learn_at:
                known, learn_at = dict(asked), number * LEARN_EVERY
            pivots = conjunction.pivots()
            if self.style.pivot == "listed":
                pivot = pivots[0]
            elif self.style.pivot == "cover":
                pivot = max(pivots, key=lambda p: (joined[p[0]], known.get(p[0], 0)))
                joined[pivot[0]] += 1
            else:
                pivot = choose_pivot(pivots, known)
            self.pivots.append(pivot)
            asked.update(name for name, _ in pivots)
        self.popularity = dict(asked)

    # --- cutting ---

    def _cut(self) -> None:
        by_tree: dict[str, list[int]] = {}
        for number, (name, _) in enumerate(self.pivots):
            by_tree.setdefault(name, []).append(number)
        ranks = {
            name: rank for rank, name in enumerate(by_popularity(self.popularity, self.popularity))
        }
        for name in by_popularity(by_tree, self.popularity):
            found = self._by_value(EVERYTHING, by_tree[name])
            cells = []
            for index, (_, members) in enumerate(found):
                cells.append(self._by_subscription(number_of(name), index, members, ranks))
            host = model_peer(cells[0][0])
            entries = tuple(Entry(interval, (host,)) for interval, _ in found)
            self.trees[number_of(name)] = ModelCells(PartitionMap((1, 1), entries), tuple(cells))

    def _by_value(self, where: Interval, members: list[int]) -> list[tuple[Interval, list[int]]]:
        if len(members) <= self._room:
            return [(where, members)]
        intervals = [self.pivots[number][1] for number in members]
        cut = best_cut(where, intervals)
        if cut is None:
            return [(where, members)]
        halves = (Interval(where.lo, cut), Interval(cut, where.hi))
        split = [
            (half, [n for n, i in zip(members, intervals, strict=True) if i.overlaps(half)])
            for half in halves
        ]
        if sum(len(part) for _, part in split) > MOST_COPIES * len(members):
            return [(where, members)]
        return [cell for half, part in split for cell in self._by_value(half, part)]

    def _by_subscription(
        self, name: int, cell: int, members: list[int], ranks: dict[str, int]
    ) -> tuple[int, ...]:
        """Shards of those that ask for the same attributes, the rarest first."""

        def signature(number: int) -> tuple[list[int], Cut]:
            pivots = self._conjunctions[number].pivots()
            return sorted((ranks[n] for n, _ in pivots), reverse=True), self.pivots[number][1].lo

        shards = -(-len(members) // self._room)
        if shards > 1:
            members = sorted(members, key=signature)
        made = []
        for shard in range(shards):
            some = members[shard * len(members) // shards : (shard + 1) * len(members) // shards]
            if shards > 1:
                self._shard.update(((name, cell, number), len(self.parts)) for number in some)
            made.append(len(self.parts))
            self.parts.append(Part(name, tuple(some), self._summary(some)))
        return tuple(made)

    def _summary(self, members: Sequence[int]) -> Summary | None:
        if not self.style.summaries:
            return None
        coarse = self._coarseness
        most = max(1, min(coarse.boxes, len(members) // coarse.per_box))
        return summarise((self._conjunctions[n] for n in members), most, coarse.slack)
