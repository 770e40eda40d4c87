"""The load of the figures: attributes by a Zipf law, kinds of events, ranges (CBDLO 5.2).

The paper: attribute i appears in a subscription with probability mu * i^-alpha, 0 < alpha, mu < 1
(its sign is lost in print; only minus makes a probability of it), and a subscription has 8
attributes on average. With alpha = 0.8 and 100 attributes mu = 0.98 gives those 8: the two numbers
are consistent.

The paper does not say how an event comes to match. If both were drawn independently, an event would
hardly ever have all of a subscription's attributes. So both are of a *kind* (a schema, as events of
one source have): the attributes of a kind are drawn by the law, and a subscription to a kind asks
for a range of each, `value >= x` or `value <= x`, which a value meets with probability `width`.
Every attribute is in some kind, so that `attributes` is the number of trees once there are enough
subscriptions.

Without kinds (`kinds: 0`) each subscription and each event draws its attributes independently, by
the law alone. Then mostly small subscriptions match. If `width` is below a half, one side of a
random cut has no room for it, and a range is a window at a random place.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import msgspec

from matching import Value

MOST_VALUE = 1_000_000
"""The upper bound of values, which are integers from 0: so many that every cut differs."""


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
        """Return whether the event matches, compared range by range (for the oracle)."""
        return all(
            attribute in event and low <= event[attribute] <= high
            for attribute, (low, high) in self.ranges.items()
        )


def appearance(shape: LoadShape) -> list[float]:
    """Return the probability of each attribute: mu * i^-alpha with the mu that gives the wanted
    mean."""
    law = [rank**-shape.zipf for rank in range(1, shape.attributes + 1)]
    scale = shape.mean / sum(law)
    return [min(1.0, scale * part) for part in law]


class RangeLoad:
    """Draws subscriptions and events, reproducibly from the state of its generator."""

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
        """Replace attributes that several kinds have by those that no kind has."""
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
        """Draw the next subscription, of a random kind at a random node."""
        rng = self._rng
        ranges = {attribute: self._range() for attribute in self.names(rng)}
        return RangeSubscription(number, rng.randrange(self.nodes), ranges)

    def names(self, rng: Random) -> tuple[int, ...]:
        """Draw the attributes of one subscription or event with this generator."""
        return rng.choice(self.kinds) if self.kinds else _drawn(self._law, rng)

    def _range(self) -> tuple[int, int]:
        if self.shape.width < 0.5:
            low = self._rng.randrange(int((1 - self.shape.width) * MOST_VALUE) + 1)
            return low, low + int(self.shape.width * MOST_VALUE)
        # One cut inside the value space, as the paper's "virtual nodes ≤ subscriptions + 2" has it.
        cut = self._rng.randrange(2 * int((1 - self.shape.width) * MOST_VALUE) + 1)
        return (cut, MOST_VALUE) if self._rng.random() < 0.5 else (0, MOST_VALUE - cut)

    def event(self) -> dict[int, int]:
        """Draw a value for each attribute of a random kind."""
        rng = self._rng
        return {name: rng.randrange(MOST_VALUE) for name in self.names(rng)}


def _drawn(law: list[float], rng: Random) -> tuple[int, ...]:
    while True:
        found = tuple(n for n, chance in enumerate(law) if rng.random() < chance)
        if found:
            return found


def attribute_name(number: int) -> str:
    """Return the attribute's name in events and selectors."""
    return f"a{number}"


# --- the load of the papers' figures for full nodes: `load:` in a scenario, `--load paper` ---
#
# The same draws as in the routing model (canopy/sim/scenario/range_load.py): attributes by a Zipf
# law, one-sided ranges of integers, as selectors and events that the real nodes take.

SUBSCRIPTIONS = 20_000
"""The size of the sample of subscriptions: some dozens of pairs per event at the paper's shape,
where one in 400 passes."""
EVENTS = 400
"""The size of the sample of events: the mean is then good to a few per cent."""
STEPS = 40
"""The number of halvings of the interval that contains the width."""


def passing(load: RangeLoad, rng: Random) -> list[float]:
    """Return, by number of attributes, the share of (subscription, event) pairs in which the event
    has all attributes of the subscription."""
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
    """Return the shape with the width at which an event interests `matching` nodes on average; a
    width of 1 if even that is too little. A subscription matches if the event has all of its
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
"""Interested nodes per event of `--load paper`; the papers do not give the number."""

PAPER = LoadShape(attributes=100, kinds=0)
"""100 attributes, Zipf 0.8, 8 of them on average; subscriptions and events are drawn
independently."""


def paper_load(subscriptions: int, nodes: int, seed: int) -> LoadShape:
    """Return the shape whose ranges give `MATCHING` interested nodes per event."""
    return fitted(PAPER, subscriptions, nodes, MATCHING, f"{seed}/paper")


def selector_of(subscription: RangeSubscription) -> str:
    """Return the selector of a subscription's ranges."""
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
        """Draw the text of one selector."""
        self._number += 1
        return selector_of(self._load.subscription(self._number))

    def event(self) -> dict[str, Value | None]:
        """Draw the attributes of one event."""
        return {attribute_name(name): value for name, value in self._load.event().items()}
