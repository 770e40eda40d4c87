"""Seeded subscriptions and events, like those of CBDLO's simulation and beyond them.

The paper (section 5.1) draws attributes by a Zipf law with exponent 0.8 and does not describe their
values. Here every attribute has a type (numbers, strings, booleans in turn), and selectors use the
whole language: comparisons, ranges, IN, prefixes, OR, NOT, IS NULL and arithmetic. Events carry
some attributes, sometimes NULL, and rarely a value of another type than the attribute usually has,
since a peer-to-peer overlay can forbid neither.
"""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate
from random import Random

import msgspec

from matching import Value

WORDS = tuple(a + b for a in ("ash", "birch", "cedar", "elm", "fir") for b in ("", "er", "ly", "s"))
"""Strings with common prefixes."""

NUMBERS = 100
"""Numbers are 0 to 99, a tenth of them with a fraction: collisions are frequent."""


class WorkloadShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters with which the built-in workload draws attributes, values and terms."""

    attributes: int = 30
    zipf: float = 0.8  # CBDLO 5.1
    per_event: int = 5
    most_terms: int = 3  # per conjunction
    other_type: float = 0.02  # share of values of another type than the attribute's
    null: float = 0.03  # share of values that are NULL


class Workload:
    """Draws selectors and events, reproducibly from the state of its generator."""

    def __init__(self, rng: Random, shape: WorkloadShape | None = None) -> None:
        self.shape = shape or WorkloadShape()
        self._rng = rng
        self._names = [f"a{number}" for number in range(self.shape.attributes)]
        weights = (1 / rank**self.shape.zipf for rank in range(1, len(self._names) + 1))
        self._cumulated = list(accumulate(weights))
        self._events = 0

    # --- events ---

    def event(self) -> dict[str, Value | None]:
        """Draw the attributes of one event; `id` and `type` are among them."""
        self._events += 1
        event: dict[str, Value | None] = {
            "id": f"e{self._events}",
            "type": self._rng.choice(("reading", "alarm")),
        }
        for attribute in self._pick(self.shape.per_event):
            event[attribute] = self._value(attribute)
        return event

    def _value(self, attribute: str) -> Value | None:
        chance = self._rng.random()
        if chance < self.shape.null:
            return None
        kind = self._kind(attribute)
        if chance > 1 - self.shape.other_type:
            kind = (kind + 1) % 4
        if kind in (0, 1):
            return self._number()
        return self._rng.choice(WORDS) if kind == 2 else self._rng.random() < 0.5

    def _number(self) -> int | float:
        number = self._rng.randrange(NUMBERS)
        return number + 0.5 if self._rng.random() < 0.1 else number

    def _kind(self, attribute: str) -> int:
        return int(attribute[1:]) % 4  # two of four attributes are numbers

    def _pick(self, count: int) -> list[str]:
        """Draw distinct attributes by the Zipf law."""
        picked: dict[str, None] = {}
        count = min(count, len(self._names))
        while len(picked) < count:
            place = bisect(self._cumulated, self._rng.random() * self._cumulated[-1])
            picked[self._names[min(place, len(self._names) - 1)]] = None
        return list(picked)

    # --- selectors ---

    def selector(self) -> str:
        """Draw the text of one selector."""
        rng = self._rng
        chance = rng.random()
        if chance < 0.70:
            return self._conjunction()
        if chance < 0.85:
            return f"({self._conjunction()}) OR ({self._conjunction()})"
        if chance < 0.90:
            return f"NOT ({self._conjunction()}) AND {self._term(self._pick(1)[0])}"
        if chance < 0.95:
            (attribute,) = self._pick(1)
            return f"{attribute} IS NULL AND type = 'alarm'"
        if chance < 0.97:
            (attribute,) = self._pick(1)  # no pivot at all: registers under the reserved tree (C9)
            return f"{attribute} IS NULL"
        one, two = self._pick(2)
        return f"{one} + {two} > {rng.randrange(2 * NUMBERS)}"

    def _conjunction(self) -> str:
        terms = self._rng.randint(1, self.shape.most_terms)
        return " AND ".join(self._term(attribute) for attribute in self._pick(terms))

    def _term(self, attribute: str) -> str:
        kind = self._kind(attribute)
        if kind in (0, 1):
            return self._numeric(attribute)
        return self._textual(attribute) if kind == 2 else self._boolean(attribute)

    def _numeric(self, attribute: str) -> str:
        rng = self._rng
        low = rng.randrange(NUMBERS)
        high = low + rng.randrange(NUMBERS // 2)
        match rng.randrange(8):
            case 0 | 1:
                return f"{attribute} BETWEEN {low} AND {high}"
            case 2:
                return f"{attribute} >= {low}"
            case 3:
                return f"{attribute} < {high}"
            case 4:
                values = ", ".join(str(rng.randrange(NUMBERS)) for _ in range(rng.randint(1, 9)))
                return f"{attribute} IN ({values})"
            case 5:
                return f"{attribute} = {low}"
            case 6:
                return f"{attribute} <> {low}"
            case _:
                return f"{attribute} * 2 - 1 > {low}"

    def _textual(self, attribute: str) -> str:
        rng = self._rng
        word = rng.choice(WORDS)
        match rng.randrange(5):
            case 0:
                return f"{attribute} = '{word}'"
            case 1:
                return f"{attribute} LIKE '{word[:2]}%'"
            case 2:
                return f"{attribute} IN ('{word}', '{rng.choice(WORDS)}')"
            case 3:
                return f"{attribute} NOT LIKE '%{word[-1]}'"
            case _:
                return f"{attribute} > '{word}'"

    def _boolean(self, attribute: str) -> str:
        match self._rng.randrange(3):
            case 0:
                return attribute
            case 1:
                return f"{attribute} = FALSE"
            case _:
                return f"{attribute} IS NOT NULL"
