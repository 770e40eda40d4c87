"""Whether a condition is true, by one Python function for all conditions.

`evaluate` makes a closure for each part of a condition: calls within calls, and objects of its own
for each predicate, which a node with thousands of them mostly finds in no cache. An event that was
delivered is checked with one predicate of many, and nobody asks whether that is false or unknown.
For that the AND of comparisons becomes a few tables, which `is_true` goes through.

What is no comparison of an attribute with a constant is tested by its function of `evaluate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from matching.selector import expression as nodes
from matching.selector.evaluate import COMPARE, ConditionFunction, condition
from matching.selector.expression import Expression
from matching.selector.like import matcher
from matching.values import RANKS, Attributes, Value

Test: TypeAlias = tuple[str, int, Callable[[Any, Any], bool], Any]
"""An attribute, the rank that its value must have (`values.RANKS`), and a function that has to be
true of the value and this constant."""

Compared: TypeAlias = tuple[str, str, Value]
"""An attribute, an operator, and the constant that it is compared with."""

NUMBER: Final = RANKS[float]

EXACT: Final = 2**53
"""Up to here every integer is a float, so that the next float is the next number that a value can
be: what is greater than a constant is at least the float behind it."""


class Truth(NamedTuple):
    """All of these have to be true. The first two have all their parts in one row, so that a
    predicate that was not looked at lately is in few lines of memory."""

    ranges: tuple[Any, ...]
    """An attribute whose value must be a number, from which one to which one, both included; the
    next attribute, and so on."""
    same: tuple[Any, ...]
    """An attribute and the text or boolean that its value must be; and so on."""
    tests: tuple[Test, ...]
    others: tuple[ConditionFunction, ...]


def truth_of(node: Expression) -> Truth:
    """The tables of a condition, for `is_true`. TypeError if it is no condition."""
    return truth_of_all(map(_compared, _operands(node)))


def truth_of_all(parts: Iterable[Compared | Expression]) -> Truth:
    """The tables of an AND, for `is_true`. TypeError if some part is no condition."""
    numbers: dict[str, tuple[float, float]] = {}  # by attribute, from where to where
    same: list[Any] = []
    tests: list[Test] = []
    others: list[ConditionFunction] = []
    for part in parts:
        match part:
            case (name, op, value):
                ends = _ends(op, value)
                if ends is not None:
                    low, high = numbers.get(name, (-math.inf, math.inf))
                    numbers[name] = max(low, ends[0]), min(high, ends[1])
                elif op == "=" and type(value) in (str, bool):
                    same += (name, value)
                else:
                    tests.append((name, RANKS[type(value)], COMPARE[op], value))
            case nodes.Like(nodes.Attribute(name), pattern, escape):
                tests.append((name, RANKS[str], _accepts, matcher(pattern, escape)))
            case _:
                others.append(condition(part))
    # Adding zero makes numbers that lie beside one another, and not where they were parsed.
    ranges = [
        part for name, (low, high) in numbers.items() for part in (name, low + 0.0, high + 0.0)
    ]
    return Truth(tuple(ranges), tuple(same), tuple(tests), tuple(others))


def _ends(op: str, value: Value) -> tuple[float, float] | None:
    """Return the least and the greatest number for which a comparison with this constant is true;
    None: they are not known as floats."""
    if RANKS[type(value)] != NUMBER or not -EXACT < value < EXACT:  # type: ignore[operator]
        return None
    number = float(value)
    match op:
        case "=":
            return number, number
        case ">=":
            return number, math.inf
        case ">":
            return math.nextafter(number, math.inf), math.inf
        case "<=":
            return -math.inf, number
        case "<":
            return -math.inf, math.nextafter(number, -math.inf)
    return None


def is_true(truth: Truth, attributes: Attributes) -> bool:
    """Whether a condition is true of an event; unknown is not."""
    ranges, same, tests, others = truth
    value: Any
    parts = iter(ranges)
    for name in parts:
        value = attributes.get(name)
        kind = type(value)
        if (kind is not float and kind is not int) or not next(parts) <= value <= next(parts):
            return False
    parts = iter(same)
    for name in parts:
        value, constant = attributes.get(name), next(parts)
        if value != constant or type(value) is not type(constant):
            return False
    for name, rank, test, constant in tests:
        value = attributes.get(name)
        if RANKS.get(type(value)) != rank or not test(value, constant):
            return False
    for function in others:  # noqa: SIM110  # mostly none: `all` takes longer
        if function(attributes) is not True:
            return False
    return True


def _compared(part: Expression) -> Compared | Expression:
    match part:
        case nodes.Comparison(op, nodes.Attribute(name), nodes.Literal(value)):
            return name, op, value
    return part


def _accepts(value: str, function: Callable[[str], bool]) -> bool:
    return function(value)


def _operands(node: Expression) -> Iterator[Expression]:
    """Yield the conditions that all have to be true."""
    match node:
        case nodes.And(operands=operands):
            for operand in operands:
                yield from _operands(operand)
        case nodes.Between(operand=operand, low=low, high=high):
            yield nodes.Comparison(">=", operand, low)
            yield nodes.Comparison("<=", operand, high)
        case _:
            yield node
