"""C5, C9: what a publisher may know of a tree's registrations, so that it skips needless visits.

A summary is a short list of *boxes*. A box says: an event that has all of these attributes, each
with a value in its interval. Each registered conjunction lies in some box, so an event that no box
admits matches none of them. A box asks for fewer attributes and wider intervals than the
conjunctions in it, hence a summary is small and says yes too often, never no too often. The empty
summary says that there are no subscribers (C5).

Three-valued logic needs no care beyond one thing: a conjunction's pivots are null-rejecting, so it
is never true without one of them, and never outside of its interval. What is no pivot (IS NULL) is
left out of the box. A conjunction without a pivot makes a box without conditions.

**Making one.** Boxes are merged greedily, each time the pair whose merging adds least to what is
admitted. What is admitted is estimated from the conjunctions themselves, since nothing else is
known: an attribute is in an event as often as conjunctions ask for it, and a value lies in an
interval in proportion to the interval's ends among all of that attribute's. The loosest are put
in first: what lies in them then costs nothing more. It takes some n * boxes estimates, each of a
few attributes.

**Slack.** A summary that is out with publishers has to be invalidated when a registration comes
that it does not admit. So the ends of the intervals are pushed outwards by some of the ends beyond
them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator
from typing import TypeAlias

import msgspec

from matching import Attributes, Conjunction, Cut, Interval
from matching.values import BOTTOM, RANKS, TOP, place

GROUP = 256
"""Boxes that are merged with each other, so that the work does not grow with the square of all.
Measured on 10,000 conjunctions without kinds: groups of 96 take two thirds of the time for 1 % more
messages, groups of 48 half of it for 3 % more."""

Box: TypeAlias = tuple[tuple[str, Interval], ...]
"""(attribute, interval) each, sorted by attribute; no attribute twice."""


def box_of(conjunction: Conjunction) -> Box:
    """The smallest box around a conjunction."""
    return tuple(sorted(conjunction.pivots()))  # no two have one name: intervals are not compared


def box_covers(outer: Box, inner: Box) -> bool:
    """Whether each event that `inner` admits is admitted by `outer` too."""
    asked = dict(inner)
    for name, interval in outer:
        found = asked.get(name)
        if found is None or found.lo < interval.lo or found.hi > interval.hi:
            return False
    return True


def _places(attributes: Attributes) -> dict[str, Cut]:
    return {
        name: place(value)
        for name, value in attributes.items()
        if value is not None and type(value) in RANKS
    }


class Summary(msgspec.Struct, frozen=True, array_like=True):
    """A bound on what a tree's registrations match: it admits every event that may match one of
    them, and some others."""

    boxes: tuple[Box, ...] = ()

    def admits(self, attributes: Attributes) -> bool:
        """False only if none of the summarised conjunctions can match the event."""
        get = _places(attributes).get
        for box in self.boxes:
            for name, interval in box:  # plain loops: this is asked for every tree of every event
                spot = get(name)
                if spot is None or not interval.lo <= spot < interval.hi:
                    break
            else:
                return True
        return False

    def covers(self, box: Box) -> bool:
        """Whether all events that `box` admits are admitted. One box of the summary has to hold it
        whole: False may be said of what several hold together."""
        return any(box_covers(outer, box) for outer in self.boxes)


_Spans: TypeAlias = dict[str, tuple[int, int]]
"""A box on the scale: attribute -> (index of the lower end, of the upper one)."""


class _Scale:
    """The ends of all intervals, by attribute, sorted: what lies between two is their number."""

    def __init__(self, boxes: list[Box]) -> None:
        ends: dict[str, list[Cut]] = {}
        for box in boxes:
            for name, interval in box:
                ends.setdefault(name, []).extend((interval.lo, interval.hi))
        self.presence = {name: len(cuts) / 2 / len(boxes) for name, cuts in ends.items()}
        self.ends = {
            name: sorted(dict.fromkeys([BOTTOM, TOP, *cuts])) for name, cuts in ends.items()
        }
        self.weight = {  # of an event that has a value in one step of the scale
            name: self.presence[name] / (len(cuts) - 1) for name, cuts in self.ends.items()
        }

    def spans(self, box: Box) -> _Spans:
        """Return where each of the box's intervals begins and ends on the scale of its
        attribute."""
        return {
            name: (bisect_left(self.ends[name], at.lo), bisect_left(self.ends[name], at.hi))
            for name, at in box
        }

    def box(self, spans: _Spans) -> Box:
        """The box whose places on the scale these are: the inverse of `spans`."""
        return tuple(
            (name, Interval(self.ends[name][lo], self.ends[name][hi]))
            for name, (lo, hi) in sorted(spans.items())
        )

    def size(self, spans: _Spans) -> float:
        """The estimated share of events that a box admits."""
        share = 1.0
        for name, (lo, hi) in spans.items():
            share *= self.weight[name] * (hi - lo)
        return share

    def joined_size(self, left: _Spans, right: _Spans) -> float:
        """`size` of `_join`, without making it: nearly all pairs are looked at and not taken."""
        if len(right) < len(left):
            left, right = right, left
        share = 1.0
        for name, (lo, hi) in left.items():
            other = right.get(name)
            if other is not None:
                low, high = other
                share *= self.weight[name] * (
                    (hi if hi > high else high) - (lo if lo < low else low)
                )
        return share


def _join(left: _Spans, right: _Spans) -> _Spans:
    """The smallest box around two."""
    if len(right) < len(left):
        left, right = right, left
    return {
        name: (min(span[0], other[0]), max(span[1], other[1]))
        for name, span in left.items()
        if (other := right.get(name)) is not None
    }


def _inside(inner: _Spans, outer: _Spans) -> bool:
    for name, (lo, hi) in outer.items():
        span = inner.get(name)
        if span is None or span[0] < lo or span[1] > hi:
            return False
    return True


class _Cluster(msgspec.Struct, eq=False):
    """A box in the making, and the cheapest partner among those before it."""

    spans: _Spans
    size: float
    growth: float = 0.0
    partner: _Cluster | None = None

    def choose(self, others: list[_Cluster], scale: _Scale) -> None:
        """Find the partner with which merging admits least that is new."""
        self.partner = None
        for other in others:
            growth = scale.joined_size(self.spans, other.spans) - self.size - other.size
            if self.partner is None or growth < self.growth:
                self.partner, self.growth = other, growth


def _order(box: Box) -> tuple[tuple[str, Cut, Cut], ...]:
    return tuple((name, interval.lo, interval.hi) for name, interval in box)


def summarise_boxes(boxes: list[Box], most: int) -> Generator[None, None, Summary]:
    """Return a summary of at most `most` (at least 1) boxes that admits what `boxes` (of `box_of`)
    admit. Made in pieces of about `GROUP` boxes, with a pause before each."""
    scale = _Scale(boxes)
    found: list[_Cluster] = []
    for group in _groups(boxes, most, scale):
        yield
        spans = [scale.spans(box) for box in group]
        sizes = [scale.size(one) for one in spans]
        clusters: list[_Cluster] = []
        for number in sorted(range(len(group)), key=lambda n: (-sizes[n], _order(group[n]))):
            _insert(clusters, _Cluster(spans[number], sizes[number]), scale)
            if len(clusters) > max(1, most * len(group) // len(boxes)):
                _merge_cheapest(clusters, scale)
        found += clusters
    kept = sorted((scale.box(cluster.spans) for cluster in found), key=_order)
    return Summary(tuple(kept))


def _groups(boxes: list[Box], most: int, scale: _Scale) -> list[list[Box]]:
    """Boxes that have their rarest attributes in common, in groups that are merged apart."""

    def signature(box: Box) -> tuple[list[tuple[float, str]], tuple[tuple[str, Cut, Cut], ...]]:
        return sorted((scale.presence[name], name) for name, _ in box), _order(box)

    count = min(most, -(-len(boxes) // GROUP))
    if count <= 1:
        return [boxes]
    ordered = sorted(boxes, key=signature)
    return [ordered[n * len(boxes) // count : (n + 1) * len(boxes) // count] for n in range(count)]


def _insert(clusters: list[_Cluster], new: _Cluster, scale: _Scale) -> None:
    if any(_inside(new.spans, cluster.spans) for cluster in clusters):
        return
    new.choose(clusters, scale)
    clusters.append(new)


def _merge_cheapest(clusters: list[_Cluster], scale: _Scale) -> None:
    """Merge the cheapest cluster with its partner. The first cluster has no partner, since none is
    before it."""
    left = min(clusters[1:], key=lambda cluster: cluster.growth)
    right = left.partner
    assert right is not None
    joined = _join(left.spans, right.spans)
    kept = [
        cluster
        for cluster in clusters
        if cluster is not left and cluster is not right and not _inside(cluster.spans, joined)
    ]
    gone = [cluster for cluster in clusters if cluster not in kept]
    clusters[:] = kept
    for index, cluster in enumerate(clusters):
        if index == 0:
            cluster.partner = None
        elif cluster.partner is None or cluster.partner in gone:
            cluster.choose(clusters[:index], scale)
    _insert(clusters, _Cluster(joined, scale.size(joined)), scale)
