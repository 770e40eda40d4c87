"""The load of the figures: attributes by a Zipf law, kinds of events, ranges (CBDLO 5.2).

The paper: attribute i appears in a subscription with probability mu * i^-alpha, 0 < alpha, mu < 1
(its sign is lost in print; only minus makes a probability of it), and a subscription has 8
attributes on average. With alpha = 0.8 and 100 attributes mu = 0.98 gives those 8: the two numbers
fit each other.

What a match needs is left open. Drawn apart, an event would hardly ever have all of a
subscription's attributes. So both are of a *kind* (a schema, as events of one source have): the
attributes of a kind are drawn by the law, and a subscription to a kind asks for a range of each,
`value >= x` or `value <= x`, which a value meets with probability `width`. Every attribute is in
some kind, so that `attributes` is the number of trees once there are subscriptions enough.

Without kinds (`kinds: 0`) each subscription and each event draws its attributes for itself, as the
law says and nothing more. Then mostly small subscriptions match. Where `width` is below a half
there is no room for it on one side of a random cut, and a range is a window at a random place.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import msgspec

from matching import Value

MOST_VALUE = 1_000_000
"""Values are integers from 0 up to this: fine enough for every cut to be its own."""


class LoadShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of a load of range predicates as the papers evaluate it (CBDLO, section 5.1)."""

    attributes: int = 486  # docs/lab/figures.md: fits 90 % hits in 10 hops with 100 access points
    zipf: float = 0.8
    mean: float = 8.0  # attributes per subscription and event, CBDLO 5.4
    kinds: int = 150  # 0: each draws for itself. With `width` 3.3 matches per event …
    width: float = (
        0.92  # … at 1,000 subscriptions, as 408 expected deliveries of 125 events are (CBDLO 5.3)
    )


@dataclass(frozen=True)
class RangeSubscription:
    """One conjunction of ranges: attribute -> (low, high), both included."""

    number: int
    node: int
    ranges: dict[int, tuple[int, int]]

    def matches(self, event: dict[int, int]) -> bool:
        """Whether the event matches, compared range by range (for the oracle)."""
        return all(
            attribute in event and low <= event[attribute] <= high
            for attribute, (low, high) in self.ranges.items()
        )


def appearance(shape: LoadShape) -> list[float]:
    """Probability of each attribute: mu * i^-alpha with the mu that gives the wanted mean."""
    law = [rank**-shape.zipf for rank in range(1, shape.attributes + 1)]
    scale = shape.mean / sum(law)
    return [min(1.0, scale * part) for part in law]


class RangeLoad:
    """Draws subscriptions and events. The same generator in the same state gives the same."""

    def __init__(self, rng: Random, shape: LoadShape, nodes: int) -> None:
        self.shape = shape
        self.nodes = nodes
        self._rng = rng
        law = appearance(shape)
        self._law = law
        self.kinds = [self._kind(law) for _ in range(shape.kinds)]
        if self.kinds:
            self._use_all()

    def _kind(self, law: list[float]) -> tuple[int, ...]:
        return _drawn(law, self._rng)

    def _use_all(self) -> None:
        """Put each attribute that no kind has in the place of one that several have."""
        uses = [0] * self.shape.attributes
        for kind in self.kinds:
            for name in kind:
                uses[name] += 1
        for missing in [name for name, count in enumerate(uses) if not count]:
            for number in self._rng.sample(range(len(self.kinds)), len(self.kinds)):
                kind = self.kinds[number]
                common = max(kind, key=lambda name: uses[name])
                if uses[common] > 1:
                    uses[common] -= 1
                    uses[missing] = 1
                    self.kinds[number] = tuple(missing if n == common else n for n in kind)
                    break

    def subscription(self, number: int) -> RangeSubscription:
        """The next one, of a random kind at a random node."""
        rng = self._rng
        ranges = {attribute: self._range() for attribute in self.names(rng)}
        return RangeSubscription(number, rng.randrange(self.nodes), ranges)

    def names(self, rng: Random) -> tuple[int, ...]:
        """The attributes of one subscription or event, drawn from this generator."""
        return rng.choice(self.kinds) if self.kinds else _drawn(self._law, rng)

    def _range(self) -> tuple[int, int]:
        if self.shape.width < 0.5:
            low = self._rng.randrange(int((1 - self.shape.width) * MOST_VALUE) + 1)
            return low, low + int(self.shape.width * MOST_VALUE)
        # One cut inside the value space, as the paper's "virtual nodes ≤ subscriptions + 2" has it.
        cut = self._rng.randrange(2 * int((1 - self.shape.width) * MOST_VALUE) + 1)
        return (cut, MOST_VALUE) if self._rng.random() < 0.5 else (0, MOST_VALUE - cut)

    def event(self) -> dict[int, int]:
        """A value for each attribute of a random kind."""
        rng = self._rng
        return {name: rng.randrange(MOST_VALUE) for name in self.names(rng)}


def _drawn(law: list[float], rng: Random) -> tuple[int, ...]:
    while True:
        found = tuple(n for n, chance in enumerate(law) if rng.random() < chance)
        if found:
            return found


def attribute_name(number: int) -> str:
    """The name under which the machines know it."""
    return f"a{number}"


# --- the load of the papers' figures for full nodes: `load:` in a scenario, `--load paper` ---
#
# The same draws as in the routing model (canopy/sim/scenario/range_load.py): attributes by a Zipf
# law, one-sided ranges of integers, as selectors and events that the real nodes take.

SUBSCRIPTIONS = 20_000
"""Sampled: some dozens of pairs per event at the paper's shape, where one in 400 passes."""
EVENTS = 400
"""Sampled: the mean is then good to a few per cent."""
STEPS = 40
"""Halvings of the interval that the width lies in."""


def passing(load: RangeLoad, rng: Random) -> list[float]:
    """By number of attributes, the share of (subscription, event) pairs in which the event has all
    attributes of the subscription."""
    by_rarest: dict[int, list[frozenset[int]]] = {}
    for _ in range(SUBSCRIPTIONS):
        names = load.names(rng)
        by_rarest.setdefault(max(names), []).append(frozenset(names))
    share = [0.0] * (load.shape.attributes + 1)
    for _ in range(EVENTS):
        event = frozenset(load.names(rng))
        for name in sorted(event):
            for asked in by_rarest.get(name, ()):
                if asked <= event:
                    share[len(asked)] += 1 / (SUBSCRIPTIONS * EVENTS)
    return share


def fitted(
    shape: LoadShape, subscriptions: int, nodes: int, matching: float, seed: str
) -> LoadShape:
    """The shape with the width that makes an event interest `matching` nodes on average; with a
    width of 1 where even that does not. A subscription matches if the event has all of its
    attributes (counted on a sample) and each value lies in its range (`width` to the power of their
    number). Its kinds are those of a load of the same `seed`."""
    share = passing(RangeLoad(Random(seed), shape, nodes), Random(f"{seed}/fit"))

    def interested(width: float) -> float:
        matches = subscriptions * sum(part * width**number for number, part in enumerate(share))
        return nodes * (1.0 - (1.0 - 1.0 / nodes) ** matches)

    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if interested(middle) < matching:
            low = middle
        else:
            high = middle
    return msgspec.structs.replace(shape, width=high)


MATCHING = 10.0
"""Interested nodes per event of `--load paper`; the papers leave it open."""

PAPER = LoadShape(attributes=100, kinds=0)
"""100 attributes, Zipf 0.8, 8 each on average; subscriptions and events draw for themselves."""


def paper_load(subscriptions: int, nodes: int, seed: int) -> LoadShape:
    """The shape whose ranges are as wide as `MATCHING` interested nodes per event need."""
    return fitted(PAPER, subscriptions, nodes, MATCHING, f"{seed}/paper")


def selector_of(subscription: RangeSubscription) -> str:
    """The text of a subscription's ranges."""
    terms = []
    for number, (low, high) in subscription.ranges.items():
        name = attribute_name(number)
        if low > 0 and high < MOST_VALUE:
            terms.append(f"{name} BETWEEN {low} AND {high}")
        else:
            terms.append(f"{name} >= {low}" if low > 0 else f"{name} <= {high}")
    return " AND ".join(terms)


class PaperWorkload:
    """Draws selectors and events, as `canopy.sim.scenario.workload.Workload` does."""

    def __init__(self, rng: Random, shape: LoadShape) -> None:
        self._load = RangeLoad(rng, shape, 1)
        self._number = 0

    def selector(self) -> str:
        """The text of one selector."""
        self._number += 1
        return selector_of(self._load.subscription(self._number))

    def event(self) -> dict[str, Value | None]:
        """The attributes of one event."""
        return {attribute_name(name): value for name, value in self._load.event().items()}
