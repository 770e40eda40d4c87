"""What a conjunction asks of one attribute: its terms, and intervals that cover what they allow.

A constraint is *null-rejecting*: without the attribute it is never true. That makes its attribute a
possible pivot (C9) and lets `counting` routing (C8) register it alone in that attribute's tree. Its
intervals hold every value that it is true for; where they hold nothing else they are *exact* and
stand for the constraint. NOT and ``<>`` stay within the type: a comparison between types is
unknown, and so is its negation.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from matching.evaluate import ConditionFunction, Verdict, condition, term
from matching.expression import (
    INVERSE,
    MIRRORED,
    Attribute,
    Between,
    Comparison,
    Expression,
    InList,
    IsNull,
    Like,
    Not,
    attributes_of,
    conjoin,
    is_term,
)
from matching.like import cover
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

if TYPE_CHECKING:
    from matching.predicate import Predicate


class Constraint:
    """The AND of one or more null-rejecting terms over a single attribute; immutable."""

    __slots__ = ("_function", "attribute", "exact", "intervals", "terms")

    def __init__(
        self, attribute: str, terms: tuple[Expression, ...], intervals: Intervals, exact: bool
    ) -> None:
        self.attribute = attribute
        """The attribute's name."""
        self.terms = terms
        """The conditions, all of which have to hold."""
        self.intervals = intervals
        """Sorted, disjoint; every value that the terms are true for lies in one of them."""
        self.exact = exact
        """Whether the terms are true for every value in the intervals."""
        self._function: ConditionFunction | None = None

    def __repr__(self) -> str:
        return f"Constraint({self.predicate().text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraint) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    @property
    def hull(self) -> Interval:
        """The smallest single interval around all of them."""
        first, last = self.intervals[0], self.intervals[-1]
        return first if first is last else Interval(first.lo, last.hi)

    @property
    def is_points(self) -> bool:
        """Whether only single values are allowed (equality, IN)."""
        return all(interval.is_point() for interval in self.intervals)

    def function(self) -> ConditionFunction:
        """A function of the attributes that is True where all terms are; shared by all users.

        Of several terms with exact intervals one search in the intervals takes the place, whatever
        their number.
        """
        if self._function is None:
            if self.exact and len(self.terms) > 1:
                self._function = _membership(self.attribute, self.intervals)
            else:
                self._function = condition(conjoin(self.terms))
        return self._function

    def predicate(self) -> Predicate:
        """Only this attribute's part, as a predicate of its own."""
        # Imported here: a predicate is made of conjunctions, which are made of constraints.
        from matching.predicate import Predicate

        return Predicate(conjoin(self.terms))


def _membership(name: str, intervals: Intervals) -> ConditionFunction:
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


def merge(constraints: list[Constraint]) -> Constraint:
    """The AND of constraints on one attribute.

    Merged in pairs of pairs, so that a thousand ``<>`` cost n log n and not n squared.
    """
    level = constraints
    while len(level) > 1:
        paired = [_both(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = paired + level[len(paired) * 2 :]
    only = level[0]
    # Equal terms are one object here (`normal.drafts` sees to it), so this costs no deep compare.
    terms = {id(term): term for term in only.terms}
    return Constraint(only.attribute, tuple(terms.values()), only.intervals, only.exact)


def _both(left: Constraint, right: Constraint) -> Constraint:
    return Constraint(
        left.attribute,
        left.terms + right.terms,
        intersection(left.intervals, right.intervals),
        left.exact and right.exact,
    )


def constraint_of(atom: Expression) -> Constraint | None:
    """The constraint that an atom of the normal form is, or None if it is none.

    Empty intervals mean that the atom is never true.
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


def comparison_intervals(op: str, value: Value) -> Intervals:
    """The values that ``x op value`` is true for; within the value's type."""
    rank = RANKS[type(value)]
    if isinstance(value, bool):
        # Two values only: said as points, so that `<> FALSE` is as good as `= TRUE`.
        true_for = [v for v in (False, True) if _holds(op, v, value)]
        return (WHOLE_TYPES[0],) if len(true_for) == 2 else tuple(point(v) for v in true_for)
    whole = WHOLE_TYPES[rank]
    before, after = (rank, value, 0), (rank, value, 1)
    if op == "=":
        return (Interval(before, after),)
    if op == "<>":
        return complement((Interval(before, after),), whole)
    interval = {
        "<": Interval(whole.lo, before),
        "<=": Interval(whole.lo, after),
        ">": Interval(after, whole.hi),
        ">=": Interval(before, whole.hi),
    }[op]
    return (interval,) if interval.lo < interval.hi else ()


def _holds(op: str, left: bool, right: bool) -> bool:
    if op in ("=", "<>"):
        return (left == right) == (op == "=")
    if op in (">", ">="):
        return _holds(MIRRORED[op], right, left)
    return left < right or (op == "<=" and left == right)


def constant(node: Expression) -> tuple[bool, Value | None]:
    """Whether the term is free of attributes, and its value if it is."""
    if not is_term(node) or attributes_of(node):
        return False, None
    return True, term(node)({})


def _bounded(value: Value | None) -> bool:
    """Whether a cut may hold the value: exact arithmetic may leave the 64 bits of the wire."""
    return type(value) is not int or INT_MIN <= value <= INT_MAX


def _allowed(op: str, value: Value | None) -> Intervals:
    return () if value is None else comparison_intervals(op, value)


def _comparison(atom: Comparison) -> Constraint | None:
    op, left, right = atom.op, atom.left, atom.right
    if isinstance(right, Attribute):
        op, left, right = MIRRORED[op], right, left
    is_constant, value = constant(right)
    if not isinstance(left, Attribute) or not is_constant or not _bounded(value):
        return None
    return Constraint(left.name, (atom,), _allowed(op, value), True)


def _between(name: str, atom: Expression, inner: Between, negated: bool) -> Constraint | None:
    parts: list[Intervals] = []
    for op, bound in ((">=", inner.low), ("<=", inner.high)):
        is_constant, value = constant(bound)
        if not is_constant or not _bounded(value):
            return None
        parts.append(_allowed(INVERSE[op] if negated else op, value))
    intervals = union(parts[0] + parts[1]) if negated else intersection(parts[0], parts[1])
    return Constraint(name, (atom,), intervals, True)


def _none_of(node: InList) -> Intervals:
    """NOT IN: with choices of two types some comparison is always unknown, so it is never true."""
    ranks = sorted(RANKS[type(choice.value)] for choice in node.choices)
    if ranks[0] != ranks[-1]:
        return ()
    if ranks[0] == 0:
        listed = [choice.value for choice in node.choices]
        return tuple(point(value) for value in (False, True) if value not in listed)
    points = union(point(choice.value) for choice in node.choices)
    return complement(points, WHOLE_TYPES[ranks[0]])
