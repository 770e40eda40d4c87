"""Three-valued evaluation: a tree becomes one Python function (docs/design/selectors.md).

A condition becomes a function of an event's attributes that returns True, False or None (unknown);
a term becomes one that returns a value or None (NULL). An absent attribute, JSON null and values of
other types are NULL; a comparison with NULL or between types is unknown; arithmetic on anything but
numbers is NULL, and so are division by zero and results that are no finite number.

Closures are several times faster per event than walking the tree, for the same amount of code. Each
level of the tree is one Python frame; `MAX_DEPTH` bounds them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from matching.selector import expression as nodes
from matching.selector.expression import Expression
from matching.selector.like import matcher
from matching.values import RANKS, Attributes, Value

Verdict: TypeAlias = bool | None
ConditionFunction: TypeAlias = Callable[[Attributes], Verdict]
TermFunction: TypeAlias = Callable[[Attributes], Value | None]

COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(op: str, left: Value | None, right: Value | None) -> Verdict:
    """Compare two values; None (unknown) with NULL and between types."""
    rank = RANKS.get(type(left))
    if rank is None or rank != RANKS.get(type(right)):
        return None
    return COMPARE[op](left, right)


def condition(node: Expression) -> ConditionFunction:
    """The function of a node that stands for a truth value. TypeError if it is no condition."""
    match node:
        case nodes.Literal(value=value):
            verdict = value if isinstance(value, bool) else None
            return lambda attributes: verdict
        case nodes.Attribute(name=name):
            return _flag(name)
        case nodes.Comparison(op=op, left=left, right=right):
            return _comparison(op, left, right)
        case nodes.Between(operand=operand, low=low, high=high):
            return all_of((_comparison(">=", operand, low), _comparison("<=", operand, high)))
        case nodes.InList(operand=operand, choices=choices):
            return _in_list(term(operand), tuple(choice.value for choice in choices))
        case nodes.Like(operand=operand, pattern=pattern, escape=escape):
            return _like(term(operand), matcher(pattern, escape))
        case nodes.IsNull(operand=operand):
            value_of = term(operand)
            return lambda attributes: value_of(attributes) is None
        case nodes.Not(operand=operand):
            return _not(condition(operand))
        case nodes.And(operands=operands):
            return all_of(tuple(condition(operand) for operand in operands))
        case nodes.Or(operands=operands):
            return _connective(tuple(condition(operand) for operand in operands), decisive=True)
        case _:
            raise TypeError(f"{type(node).__name__} is no condition")


def term(node: Expression) -> TermFunction:
    """The function of a node that stands for a value. TypeError if it is no term."""
    match node:
        case nodes.Literal(value=value):
            return lambda attributes: value
        case nodes.Attribute(name=name):
            return _lookup(name)
        case nodes.Negate(operand=operand):
            return _negation(term(operand))
        case nodes.Arithmetic(op=op, left=left, right=right):
            return _arithmetic(op, term(left), term(right))
        case _:
            raise TypeError(f"{type(node).__name__} is no term")


def _lookup(name: str) -> TermFunction:
    def value_of(attributes: Attributes) -> Value | None:
        value = attributes.get(name)
        return value if type(value) in RANKS else None

    return value_of


def _flag(name: str) -> ConditionFunction:
    def verdict(attributes: Attributes) -> Verdict:
        value = attributes.get(name)
        return value if isinstance(value, bool) else None

    return verdict


def _comparison(op: str, left: Expression, right: Expression) -> ConditionFunction:
    test = COMPARE[op]
    if isinstance(left, nodes.Attribute) and isinstance(right, nodes.Literal):
        # The most common comparison by far: this saves two calls.
        name, value, rank = left.name, right.value, RANKS[type(right.value)]

        def verdict(attributes: Attributes) -> Verdict:
            seen = attributes.get(name)
            return test(seen, value) if RANKS.get(type(seen)) == rank else None

        return verdict
    left_of, right_of = term(left), term(right)

    def general(attributes: Attributes) -> Verdict:
        a, b = left_of(attributes), right_of(attributes)
        rank = RANKS.get(type(a))
        return test(a, b) if rank is not None and rank == RANKS.get(type(b)) else None

    return general


def _in_list(value_of: TermFunction, choices: tuple[Value, ...]) -> ConditionFunction:
    found = {(RANKS[type(choice)], choice): True for choice in choices}
    # With choices of two types one comparison is always unknown, so the result is never false.
    ranks = {RANKS[type(choice)] for choice in choices}
    only = RANKS[type(choices[0])] if len(ranks) == 1 else None

    def verdict(attributes: Attributes) -> Verdict:
        value = value_of(attributes)
        rank = RANKS.get(type(value))
        if rank is None:
            return None
        if (rank, value) in found:
            return True
        return False if rank == only else None

    return verdict


def _like(value_of: TermFunction, matches: Callable[[str], bool]) -> ConditionFunction:
    def verdict(attributes: Attributes) -> Verdict:
        value = value_of(attributes)
        return matches(value) if isinstance(value, str) else None

    return verdict


def _not(inner: ConditionFunction) -> ConditionFunction:
    def verdict(attributes: Attributes) -> Verdict:
        value = inner(attributes)
        return None if value is None else not value

    return verdict


def all_of(parts: tuple[ConditionFunction, ...]) -> ConditionFunction:
    """The AND of functions; without any it is always true."""
    return _connective(parts, decisive=False)


def _connective(parts: tuple[ConditionFunction, ...], decisive: bool) -> ConditionFunction:
    """AND (a single False decides) or OR (a single True decides)."""
    undecided = not decisive

    def verdict(attributes: Attributes) -> Verdict:
        result: Verdict = undecided
        for part in parts:
            value = part(attributes)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return verdict


def _negation(value_of: TermFunction) -> TermFunction:
    def value(attributes: Attributes) -> Value | None:
        operand = value_of(attributes)
        return -operand if RANKS.get(type(operand)) == 1 else None  # type: ignore[operator]

    return value


def _arithmetic(op: str, left_of: TermFunction, right_of: TermFunction) -> TermFunction:
    compute = _ARITHMETIC[op]

    def value(attributes: Attributes) -> Value | None:
        left, right = left_of(attributes), right_of(attributes)
        if RANKS.get(type(left)) != 1 or RANKS.get(type(right)) != 1:
            return None
        try:
            result = compute(left, right)
        except (ZeroDivisionError, OverflowError):
            # Overflow: an integer beyond the range of floats was combined with a float.
            return None
        # x - x is 0 for every number but NaN and the infinities.
        return result if isinstance(result, int) or result - result == 0 else None

    return value


def _divide(left: int | float, right: int | float) -> int | float:
    """The quotient; of two integers the exact one, truncated toward zero (as in SQLite)."""
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


_ARITHMETIC: Mapping[str, Callable[[Any, Any], int | float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
}
