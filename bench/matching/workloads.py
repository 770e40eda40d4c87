"""Subscriptions and events to measure matching with, as arrays and as what the index takes.

Twenty attributes, drawn by Zipf's law (exponent 0.8) without repetition; unless said otherwise each
subscription has 5 intervals of width 0.3, anywhere in [0, 1), and events have all attributes,
uniform. In *mixed* values are thousandths and a subscription has 1 to 8 predicates, a third each
equality, one-sided and interval; in *symbols* every second attribute is a string, asked for by
equality (7 of 10) or by a prefix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from matching.conjunction import Conjunction
from matching.constraint import Constraint
from matching.selector import expression as nodes
from matching.values import Interval, prefix_interval

ATTRIBUTES: Final = 20
SYMBOLS: Final = 5000
Array = Any


@dataclass(frozen=True)
class WorkloadParameters:
    """What makes one differ from *base*."""

    predicates: tuple[int, int] = (5, 5)
    width: float = 0.3
    event_attributes: int = ATTRIBUTES
    mixed: bool = False
    symbols: bool = False


WORKLOADS: Final = {
    "base": WorkloadParameters(),
    "k8": WorkloadParameters(predicates=(8, 8)),
    "w01": WorkloadParameters(width=0.1),
    "mixed": WorkloadParameters(predicates=(1, 8), mixed=True),
    "e8": WorkloadParameters(event_attributes=8),
    "w07": WorkloadParameters(width=0.7),
    "symbols": WorkloadParameters(symbols=True),
}


class Table:
    """A workload as numbers: closed intervals per attribute, infinite where nothing is asked.

    A string attribute's numbers are the ranks of its symbols.
    """

    def __init__(
        self, workload: WorkloadParameters, count: int, seed: int, skew: float = 0.8
    ) -> None:
        rng = np.random.default_rng(seed)
        self.workload = workload
        self.names = [f"a{number}" for number in range(ATTRIBUTES)]
        self.symbols = [f"S{number:05}" for number in range(SYMBOLS)]
        self.is_text = [workload.symbols and a % 2 == 1 for a in range(ATTRIBUTES)]
        self._rng = rng
        weights = np.arange(1, ATTRIBUTES + 1) ** -skew
        # The k largest of u ** (1 / w) are k draws by weight without repetition.
        keys = np.log(rng.random((count, ATTRIBUTES))) / weights
        rank = np.empty((count, ATTRIBUTES), np.int8)
        np.put_along_axis(rank, np.argsort(-keys, axis=1), np.arange(ATTRIBUTES, dtype=np.int8), 1)
        some = rng.integers(workload.predicates[0], workload.predicates[1] + 1, count)
        uses = rank < some[:, None]
        low = rng.random((count, ATTRIBUTES)) * (1 - workload.width)
        high = low + workload.width
        if workload.mixed:
            low, high = self._mixed(low, high)
        for attribute in np.flatnonzero(self.is_text):
            low[:, attribute], high[:, attribute] = self._texts(count)
        self.low = np.where(uses, low, -np.inf)
        self.high = np.where(uses, high, np.inf)

    def _mixed(self, low: Array, high: Array) -> tuple[Array, Array]:
        low, high = np.round(low, 3), np.round(high, 3)
        kind = self._rng.integers(0, 6, low.shape)
        value = self._rng.integers(0, 1000, low.shape) / 1000
        point, above, below = kind <= 1, kind == 2, kind == 3
        low = np.where(point | above, value, np.where(below, -np.inf, low))
        high = np.where(point | below, value, np.where(above, np.inf, high))
        return low, high

    def _texts(self, count: int) -> tuple[Array, Array]:
        """Equality with a symbol, or the ten symbols with one prefix."""
        symbol = self._rng.integers(0, SYMBOLS, count)
        prefix = self._rng.random(count) < 0.3
        return np.where(prefix, symbol // 10 * 10, symbol), np.where(
            prefix, symbol // 10 * 10 + 9, symbol
        )

    def __len__(self) -> int:
        return len(self.low)

    def conjunctions(self, numbers: range) -> Iterator[Conjunction]:
        """The subscriptions, as a compiled selector has them."""
        for number in numbers:
            low, high = self.low[number].tolist(), self.high[number].tolist()
            constraints = {
                name: self._constraint(a, name, low[a], high[a])
                for a, name in enumerate(self.names)
                if low[a] != -math.inf or high[a] != math.inf
            }
            yield Conjunction(constraints)

    def _constraint(self, attribute: int, name: str, low: float, high: float) -> Constraint:
        first: Any = low
        last: Any = high
        if self.is_text[attribute]:
            first, last = self.symbols[int(low)], self.symbols[int(high)]
        operand = nodes.attribute(name)
        rank = 2 if self.is_text[attribute] else 1
        term: nodes.Expression
        interval = Interval((rank, first, 0), (rank, last, 1))
        if rank == 2 and low < high:
            term = nodes.Like(operand, f"{first[:-1]}%", None)
            interval = prefix_interval(first[:-1])
        elif low == high:
            term = nodes.Comparison("=", operand, nodes.literal(first))
        elif low == -math.inf:
            term = nodes.Comparison("<=", operand, nodes.literal(last))
        elif high == math.inf:
            term = nodes.Comparison(">=", operand, nodes.literal(first))
            interval = Interval((1, first, 0), (2, "", 0))
        else:
            term = nodes.Between(operand, nodes.literal(first), nodes.literal(last))
        return Constraint(name, (term,), (interval,), True)

    def events(self, count: int) -> tuple[Array, list[dict[str, Any]]]:
        """Events as rows of numbers (NaN: absent), and as what the index takes."""
        values = self._rng.random((count, ATTRIBUTES))
        if self.workload.mixed:
            values = np.floor(values * 1000) / 1000
        for attribute in np.flatnonzero(self.is_text):
            values[:, attribute] = self._rng.integers(0, SYMBOLS, count)
        if self.workload.event_attributes < ATTRIBUTES:
            order = np.argsort(self._rng.random(values.shape), axis=1)
            values[order >= self.workload.event_attributes] = np.nan
        events = [
            {
                name: self.symbols[int(value)] if self.is_text[a] else value
                for a, (name, value) in enumerate(zip(self.names, row, strict=True))
                if not math.isnan(value)
            }
            for row in values.tolist()
        ]
        return values, events

    def brute_force(self, values: Array) -> Array:
        """The numbers of the subscriptions that an event satisfies, attribute by attribute."""
        true = np.ones(len(self), np.bool_)
        for a in range(ATTRIBUTES):
            free = np.isinf(self.low[:, a]) & np.isinf(self.high[:, a])
            true &= free | ((self.low[:, a] <= values[a]) & (values[a] <= self.high[:, a]))
        return np.flatnonzero(true)
