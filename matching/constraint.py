"""A conjunction's conditions on one attribute: its terms, and intervals that cover what they allow.

A constraint is *null-rejecting*: it is never true of an event without the attribute. That makes the
attribute a possible pivot (C9) and lets `counting` routing (C8) register the constraint alone in
that attribute's tree. Its intervals contain every value that it is true for; where they contain no
other value they are *exact*, and testing the intervals is testing the constraint. The intervals of
NOT and ``<>`` stay within one type: a comparison between types is unknown, and so is its negation.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import TypeAlias

from matching.selector.evaluate import ConditionFunction, Verdict, condition, term
from matching.selector.expression import (
    INVERSE,
    MIRRORED,
    Attribute,
    Between,
    Comparison,
    Expression,
    InList,
    IsNull,
    Like,
    Literal,
    Not,
    attribute,
    attributes_of,
    conjoin,
    is_term,
    literal,
    tree,
)
from matching.selector.like import cover
from matching.selector.truth import Compared
from matching.selector.unparse import unparse
from matching.values import (
    EVERYTHING,
    INT_MAX,
    INT_MIN,
    RANKS,
    WHOLE_TYPES,
    Attributes,
    Interval,
    Intervals,
    Value,
    complement,
    intersection,
    point,
    union,
)

SHARED = 4_096
"""Comparisons whose constraints are cached to be shared between selectors: a kilobyte each, if the
constants are short. Subscriptions that one program makes differ in some of their constants, and
have the others in common. Not measured; would be measured by the share that is found."""

_WHOLE_ENDS = frozenset(end for whole in WHOLE_TYPES for end in (whole.lo, whole.hi))


Comparing: TypeAlias = tuple[str, Value, Value | None]
"""An operator and a constant, or two of BETWEEN: a term that is not made yet."""


class Constraint:
    """The AND of one or more null-rejecting terms over a single attribute; immutable."""

    __slots__ = (
        *("_comparisons", "_function", "_pivot", "_terms"),
        *("attribute", "codes", "exact", "intervals"),
    )

    def __init__(
        self,
        attribute: str,
        terms: tuple[Expression, ...],
        intervals: Intervals,
        exact: bool,
        comparisons: tuple[Comparing, ...] = (),
    ) -> None:
        """`comparisons`: what the terms are, which are made when they are asked for; `terms` is
        empty then."""
        self.attribute = attribute
        """Name of the attribute that all terms test."""
        self._terms = terms
        self._comparisons = comparisons
        self.intervals = intervals
        """Sorted and disjoint; every value that all terms are true for lies in one of them."""
        self.exact = exact
        """Whether all terms are true for every value in the intervals."""
        self.codes: tuple[int, int] | None = None
        """For `matching.engine`: the codes of its one interval, once known, if all engines have the
        same."""
        self._function: ConditionFunction | None = None
        self._pivot: Pivot | None = None

    def __repr__(self) -> str:
        return f"Constraint({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraint) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    @property
    def terms(self) -> tuple[Expression, ...]:
        """The conditions, all of which have to be true."""
        if not self._terms:
            self._terms = tuple([_term(self.attribute, *one) for one in self._comparisons])
        return self._terms

    def compared(self) -> list[Compared]:
        """Return the comparisons of the attribute, for a constraint made by `comparing`."""
        found: list[Compared] = []
        for op, first, last in self._comparisons:
            if last is None:
                found.append((self.attribute, op, first))
            else:
                found += [(self.attribute, ">=", first), (self.attribute, "<=", last)]
        return found

    def tree(self) -> list[object]:
        """The tree of `expression` as nested lists (see `matching.selector`)."""
        if len(self._comparisons) != 1:
            return tree(self.expression)
        ((op, first, last),) = self._comparisons  # which need not be made into nodes
        operand = ["attr", self.attribute]
        if last is None:
            return ["cmp", op, operand, ["lit", first]]
        return ["between", operand, ["lit", first], ["lit", last]]

    def meet(self, other: Constraint) -> Constraint | None:
        """The AND of this and of another one on the attribute, both made by `comparing` or by this;
        None if no value is such."""
        intervals = intersection(self.intervals, other.intervals)
        comparisons = self._comparisons + other._comparisons
        return Constraint(self.attribute, (), intervals, True, comparisons) if intervals else None

    @property
    def expression(self) -> Expression:
        """All terms joined by AND, as one expression tree."""
        return conjoin(self.terms)

    @property
    def text(self) -> str:
        """The constraint alone as a selector, in canonical form."""
        return unparse(self.expression)

    @property
    def hull(self) -> Interval:
        """The smallest single interval that contains all intervals."""
        first, last = self.intervals[0], self.intervals[-1]
        return first if first is last else Interval(first.lo, last.hi)

    @property
    def pivot(self) -> Pivot:
        """Return the attribute as a pivot of the conjunctions that contain this constraint."""
        if self._pivot is None:
            self._pivot = (_selectivity(self), self.attribute, self.hull)
        return self._pivot

    @property
    def is_points(self) -> bool:
        """Whether only single values are allowed (equality, IN)."""
        if len(self.intervals) == 1:  # mostly
            return self.intervals[0].is_point()
        return all(interval.is_point() for interval in self.intervals)

    def function(self) -> ConditionFunction:
        """A function of an event's attributes that returns True where all terms are true.

        Compiled by the first call. Several terms with exact intervals are replaced by one binary
        search in the intervals.
        """
        if self._function is None:
            if self.exact and len(self.terms) > 1:
                self._function = _membership(self.attribute, self.intervals)
            else:
                terms = self.terms
                self._function = condition(terms[0] if len(terms) == 1 else conjoin(terms))
        return self._function


def _membership(name: str, intervals: Intervals) -> ConditionFunction:
    """A condition: the attribute's value lies in one of the sorted, disjoint intervals."""
    starts = [interval.lo for interval in intervals]
    ends = [interval.hi for interval in intervals]

    def verdict(attributes: Attributes) -> Verdict:
        value = attributes.get(name)
        rank = RANKS.get(type(value))
        if rank is None or value is None:
            return None
        place = (rank, value, 0)
        index = bisect_right(starts, place) - 1
        return index >= 0 and place < ends[index]

    return verdict


Pivot: TypeAlias = tuple[tuple[int, int], str, Interval]
"""(rank: smaller is more selective; attribute; interval outside of which the test is not true)."""


def _selectivity(constraint: Constraint) -> tuple[int, int]:
    """A rank by the share of values that a constraint lets through; smaller is more selective.

    Only the constraint's shape is known here, not the distribution of the events' values, so this
    is an order of classes. Not measured; would be measured by the share of an attribute's events
    that constraints of each class let through in real feeds.
    """
    intervals, hull = constraint.intervals, constraint.hull
    if hull.lo[0] and len(intervals) == 1:  # mostly
        if hull.is_point():
            return (0, 1)
        return ((2, 4, 5)[(hull.lo in _WHOLE_ENDS) + (hull.hi in _WHOLE_ENDS)], 1)
    if hull.lo[0] == 0 and hull.hi <= WHOLE_TYPES[0].hi:
        # A boolean has two values: half of all events at best, and nothing for a tree to split.
        return (3, len(intervals))
    if constraint.is_points:
        return (0 if len(intervals) == 1 else 1, len(intervals))
    if hull == EVERYTHING:
        return (6, 0)
    open_ends = (hull.lo in _WHOLE_ENDS) + (hull.hi in _WHOLE_ENDS)
    return ((2, 4, 5)[open_ends], len(intervals))


def merge(constraints: list[Constraint]) -> Constraint:
    """The AND of at least one constraint on the same attribute.

    Merged pairwise, level by level, so that a thousand ``<>`` cost n log n and not n squared.
    """
    level = constraints
    while len(level) > 1:
        paired = [_both(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + level[len(paired) * 2 :]
    only = level[0]
    # `normal_form.products` makes equal terms one object, so comparing by identity is enough.
    terms = {id(term): term for term in only.terms}
    return Constraint(only.attribute, tuple(terms.values()), only.intervals, only.exact)


def _both(left: Constraint, right: Constraint) -> Constraint:
    return Constraint(
        left.attribute,
        left.terms + right.terms,
        intersection(left.intervals, right.intervals),
        left.exact and right.exact,
    )


@lru_cache(SHARED, typed=True)
def comparing(name: str, op: str, first: Value, last: Value | None) -> Constraint | None:
    """The constraint ``name op first``, or, where there is a `last`, ``name BETWEEN first AND
    last``, shared with other selectors; None if no value is such."""
    intervals: Intervals = ()
    if last is None:
        intervals = comparison_intervals(op, first)
    elif RANKS[type(first)] == RANKS[type(last)] and first <= last:  # type: ignore[operator]
        rank = RANKS[type(first)]
        intervals = (Interval((rank, first, 0), (rank, last, 1)),)
    return Constraint(name, (), intervals, True, ((op, first, last),)) if intervals else None


def _term(name: str, op: str, first: Value, last: Value | None) -> Expression:
    if last is None:
        return Comparison(op, attribute(name), literal(first))
    return Between(attribute(name), literal(first), literal(last))


def constraint_of(atom: Expression) -> Constraint | None:
    """The constraint that an atom of the normal form stands for; None if it is not a null-rejecting
    test of a single attribute. Empty intervals mean that the atom is never true.
    """
    match atom:
        case Attribute(name=name):
            return Constraint(name, (atom,), (point(True),), True)
        case Not(operand=Attribute(name=name)):
            return Constraint(name, (atom,), (point(False),), True)
        case Not(operand=IsNull(operand=Attribute(name=name))):
            return Constraint(name, (atom,), (EVERYTHING,), True)
        case Comparison():
            return _comparison(atom)
        case Between(operand=Attribute(name=name)):
            return _between(name, atom, atom, negated=False)
        case Not(operand=Between(operand=Attribute(name=name)) as inner):
            return _between(name, atom, inner, negated=True)
        case InList(operand=Attribute(name=name), choices=choices):
            points = union(point(choice.value) for choice in choices)
            return Constraint(name, (atom,), points, True)
        case Not(operand=InList(operand=Attribute(name=name)) as inner):
            return Constraint(name, (atom,), _none_of(inner), True)
        case Like(operand=Attribute(name=name), pattern=pattern, escape=escape):
            return Constraint(name, (atom,), *cover(pattern, escape))
        case Not(operand=Like(operand=Attribute(name=name)) as inner):
            covered, exact = cover(inner.pattern, inner.escape)
            strings = WHOLE_TYPES[2]
            rest = complement(covered, strings) if exact else (strings,)
            return Constraint(name, (atom,), rest, exact)
        case _:
            return None


def plain_constraint(atom: Expression) -> Constraint | None:
    """`constraint_of` an atom that compares an attribute with literals, and that the normal form
    leaves as it is; None for any other. That of a comparison is shared with other selectors, but
    not with a zero: 0.0 and -0.0 are one key of the cache, and two constants of texts."""
    match atom:
        case Comparison(op=op, left=Attribute(name=name), right=Literal(value=first)) if first:
            return comparing(name, op, first, None) or constraint_of(atom)
        case Between(
            operand=Attribute(name=name), low=Literal(value=first), high=Literal(value=last)
        ) if first and last and not isinstance(first, bool):  # else it has points
            return comparing(name, "BETWEEN", first, last) or constraint_of(atom)
        case Attribute() | Between(operand=Attribute()):
            return constraint_of(atom)
        case InList(operand=Attribute()) | Like(operand=Attribute()):
            return constraint_of(atom)
        case Comparison(left=Attribute(), right=Literal()):
            return constraint_of(atom)
    return None


def comparison_intervals(op: str, value: Value) -> Intervals:
    """The values x that ``x op value`` is true for, all of the value's type."""
    rank = RANKS[type(value)]
    if isinstance(value, bool):
        # There are only two values. As points, `<> FALSE` is as selective as `= TRUE`.
        true_for = [v for v in (False, True) if _holds(op, v, value)]
        return (WHOLE_TYPES[0],) if len(true_for) == 2 else tuple(point(v) for v in true_for)
    whole = WHOLE_TYPES[rank]
    before, after = (rank, value, 0), (rank, value, 1)
    if op == "=":
        return (Interval(before, after),)
    if op == "<>":
        return complement((Interval(before, after),), whole)
    lo = whole.lo if op in ("<", "<=") else after if op == ">" else before
    hi = whole.hi if op in (">", ">=") else after if op == "<=" else before
    return (Interval(lo, hi),) if lo < hi else ()


def _holds(op: str, left: bool, right: bool) -> bool:
    if op in ("=", "<>"):
        return (left == right) == (op == "=")
    if op in (">", ">="):
        return _holds(MIRRORED[op], right, left)
    return left < right or (op == "<=" and left == right)


def constant(node: Expression) -> tuple[bool, Value | None]:
    """(whether the node is a term without attributes, its value if it is)."""
    if isinstance(node, Literal):
        return True, node.value
    if isinstance(node, Attribute):
        return False, None
    if not is_term(node) or attributes_of(node):
        return False, None
    return True, term(node)({})


def _bounded(value: Value | None) -> bool:
    """Whether a cut can have the value: exact integers can exceed the 64 bits on the wire."""
    return type(value) is not int or INT_MIN <= value <= INT_MAX


def _true_for(op: str, value: Value | None) -> Intervals:
    return () if value is None else comparison_intervals(op, value)


def _comparison(atom: Comparison) -> Constraint | None:
    op, left, right = atom.op, atom.left, atom.right
    if isinstance(right, Attribute):
        op, left, right = MIRRORED[op], right, left
    is_constant, value = constant(right)
    if not isinstance(left, Attribute) or not is_constant or not _bounded(value):
        return None
    return Constraint(left.name, (atom,), _true_for(op, value), True)


def _between(name: str, atom: Expression, inner: Between, negated: bool) -> Constraint | None:
    parts: list[Intervals] = []
    for op, bound in ((">=", inner.low), ("<=", inner.high)):
        is_constant, value = constant(bound)
        if not is_constant or not _bounded(value):
            return None
        parts.append(_true_for(INVERSE[op] if negated else op, value))
    intervals = union(parts[0] + parts[1]) if negated else intersection(parts[0], parts[1])
    return Constraint(name, (atom,), intervals, True)


def _none_of(node: InList) -> Intervals:
    """The values that NOT IN is true for: none if the choices are of two types, since one of the
    comparisons is always unknown then."""
    ranks = sorted(RANKS[type(choice.value)] for choice in node.choices)
    if ranks[0] != ranks[-1]:
        return ()
    if ranks[0] == 0:
        listed = [choice.value for choice in node.choices]
        return tuple(point(value) for value in (False, True) if value not in listed)
    points = union(point(choice.value) for choice in node.choices)
    return complement(points, WHOLE_TYPES[ranks[0]])
