"""The events and values that a changed selector gains and loses, for people: on known events, and
for any event by the intervals of single attributes.

An attribute *admits* a value if some conjunction of the selector can be true with it, by the
conjunction's test of this attribute alone. If only one of two selectors admits a value, only that
one can match events with it. The converse does not hold: two selectors that admit the same values
may still differ, in patterns of LIKE or in the combination of their tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from matching import EVERYTHING, Conjunction, Cut, Interval, Predicate, Value
from matching.selector.expression import And, Attribute, Expression, IsNull
from matching.selector.unparse import quote_value
from matching.values import WHOLE_TYPES, Intervals, complement, intersection, union
from overlay.client import Event

ABSENT: Final = "absent"
WHOLE: Final = ("TRUE or FALSE", "any number", "any text")
"""All values of a type, by its rank."""


class SelectorComparison(msgspec.Struct, frozen=True):
    """Events by which of two selectors match them."""

    both: tuple[Event, ...]
    gained: tuple[Event, ...]
    """Events that only the new selector matches."""
    lost: tuple[Event, ...]
    """Events that only the old selector matches."""
    neither: tuple[Event, ...]


class Difference(msgspec.Struct, frozen=True):
    """Values of one attribute, as texts, that only one of two selectors admits."""

    gained: tuple[str, ...]
    lost: tuple[str, ...]


class Admitted(msgspec.Struct, frozen=True):
    """Values of one attribute that a selector admits, and whether it may be absent."""

    values: Intervals
    absent: bool

    def without(self, other: Admitted) -> tuple[str, ...]:
        """Return, as texts, the values that this admits and `other` does not."""
        rest = intersection(self.values, complement(other.values, EVERYTHING))
        texts = [text for interval in rest for text in interval_texts(interval)]
        return (*texts, *((ABSENT,) if self.absent and not other.absent else ()))


def compare(old: Predicate, new: Predicate, events: Iterable[Event]) -> SelectorComparison:
    """Sort the events by which of the selectors match them, each group in the events' order."""
    found: dict[tuple[bool, bool], list[Event]] = {}
    for event in events:
        verdict = (old.matches(event.attributes), new.matches(event.attributes))
        found.setdefault(verdict, []).append(event)
    parts = ((True, True), (False, True), (True, False), (False, False))
    return SelectorComparison(*(tuple(found.get(part, ())) for part in parts))


def differences(old: Predicate, new: Predicate) -> Mapping[str, Difference]:
    """Return, for each attribute whose admitted values differ, the values that only one selector
    admits."""
    found = {}
    for attribute in sorted({*old.attributes, *new.attributes}):
        before, after = admitted(old, attribute), admitted(new, attribute)
        difference = Difference(after.without(before), before.without(after))
        if difference.gained or difference.lost:
            found[attribute] = difference
    return found


def covers(wide: Predicate, narrow: Predicate) -> bool:
    """Return whether every event that `narrow` matches is known to match `wide`. False means
    unknown: only intervals are compared, and other terms have to be equal."""
    return all(
        any(_covers(wider, one) for wider in wide.conjunctions) for one in narrow.conjunctions
    )


def _covers(wide: Conjunction, narrow: Conjunction) -> bool:
    for name, asked in wide.constraints.items():
        given = narrow.constraints.get(name)
        if given is None:
            return False
        beyond = intersection(given.intervals, complement(asked.intervals, EVERYTHING))
        if (beyond or not asked.exact) and not set(asked.terms) <= set(given.terms):
            return False
    return set(_atoms(wide)) <= set(_atoms(narrow))


def _atoms(conjunction: Conjunction) -> tuple[Expression, ...]:
    residual = conjunction.residual
    if residual is None:
        return ()
    return residual.operands if isinstance(residual, And) else (residual,)


def admitted(predicate: Predicate, attribute: str) -> Admitted:
    """Return the values of an attribute that a selector admits."""
    parts = [_admitted(conjunction, attribute) for conjunction in predicate.conjunctions]
    values = union(interval for part in parts for interval in part.values)
    return Admitted(values, any(part.absent for part in parts))


def _admitted(conjunction: Conjunction, attribute: str) -> Admitted:
    constraint = conjunction.constraints.get(attribute)
    if constraint is not None:
        return Admitted(constraint.intervals, absent=False)
    if IsNull(Attribute(attribute)) in _atoms(conjunction):
        return Admitted((), absent=True)
    return Admitted((EVERYTHING,), attribute not in conjunction.residual_attributes)


def interval_texts(interval: Interval) -> tuple[str, ...]:
    """Describe an interval for people: one text for each type that has values in it."""
    if interval == EVERYTHING:
        return ("any value",)
    found = []
    for rank, whole in enumerate(WHOLE_TYPES):
        part = whole.intersect(interval)
        if part is not None:
            found.append(WHOLE[rank] if part == whole else _text(part, whole))
    return tuple(found)


def _text(part: Interval, whole: Interval) -> str:
    if part.is_point():
        return _value(part.lo)
    low = "" if part.lo == whole.lo else f"{'>' if part.lo[2] else '>='} {_value(part.lo)}"
    high = "" if part.hi == whole.hi else f"{'<=' if part.hi[2] else '<'} {_value(part.hi)}"
    return " and ".join(filter(None, (low, high)))


def _value(cut: Cut) -> str:
    value: Value = cut[1]
    return quote_value(value)
