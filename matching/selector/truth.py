"""Whether a condition is true, by one Python function for all conditions.

`evaluate` makes a closure for each part of a condition: calls within calls, and objects of its own
for each predicate, which a node with thousands of them mostly finds in no cache. An event that was
delivered is checked with one predicate of many, and nobody asks whether that is false or unknown.
For that the AND of comparisons becomes a few tables, which `is_true` goes through.

What is no comparison of an attribute with a constant is tested by its function of `evaluate`.
(Measured: docs/design/selectors.md.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from matching.selector import expression as nodes
from matching.selector.evaluate import COMPARE, ConditionFunction, condition
from matching.selector.expression import Expression
from matching.selector.like import matcher
from matching.values import RANKS, Attributes

Test: TypeAlias = tuple[str, int, Callable[[Any, Any], bool], Any]
"""An attribute, the rank that its value must have (`values.RANKS`), and a function that has to be
true of the value and this constant."""

Range: TypeAlias = tuple[str, float, float]
"""An attribute whose value must be a number from the first up to the second."""

NUMBER: Final = RANKS[float]


class Truth(NamedTuple):
    """All of these have to be true."""

    closed: tuple[Range, ...]
    """With their ends …"""
    half_open: tuple[Range, ...]
    """… and without the upper one."""
    tests: tuple[Test, ...]
    others: tuple[ConditionFunction, ...]


def truth_of(node: Expression) -> Truth:
    """The tables of a condition, for `is_true`. TypeError if it is no condition."""
    numbers: dict[str, dict[str, float]] = {}  # by attribute and operator
    tests: list[Test] = []
    others: list[ConditionFunction] = []
    for part in _operands(node):
        match part:
            case nodes.Comparison(op, nodes.Attribute(name), nodes.Literal(value)):
                rank = RANKS[type(value)]
                if rank == NUMBER and op not in numbers.get(name, ()):
                    numbers.setdefault(name, {})[op] = value  # type: ignore[assignment]
                else:
                    tests.append((name, rank, COMPARE[op], value))
            case nodes.Like(nodes.Attribute(name), pattern, escape):
                tests.append((name, RANKS[str], _accepts, matcher(pattern, escape)))
            case _:
                others.append(condition(part))
    closed: list[Range] = []
    half_open: list[Range] = []
    for name, ends in numbers.items():
        if ends.keys() == {">=", "<="}:
            closed.append((name, ends[">="], ends["<="]))
        elif ends.keys() == {">=", "<"}:
            half_open.append((name, ends[">="], ends["<"]))
        else:
            tests += [(name, NUMBER, COMPARE[op], value) for op, value in ends.items()]
    return Truth(tuple(closed), tuple(half_open), tuple(tests), tuple(others))


def is_true(truth: Truth, attributes: Attributes) -> bool:
    """Whether a condition is true of an event; unknown is not."""
    closed, half_open, tests, others = truth
    value: Any
    for name, low, high in closed:
        value = attributes.get(name)
        kind = type(value)
        if (kind is not float and kind is not int) or not low <= value <= high:
            return False
    for name, low, high in half_open:
        value = attributes.get(name)
        kind = type(value)
        if (kind is not float and kind is not int) or not low <= value < high:
            return False
    for name, rank, test, constant in tests:
        value = attributes.get(name)
        if RANKS.get(type(value)) != rank or not test(value, constant):
            return False
    for function in others:  # noqa: SIM110  # mostly none: `all` takes longer
        if function(attributes) is not True:
            return False
    return True


def _accepts(value: str, function: Callable[[str], bool]) -> bool:
    return function(value)


def _operands(node: Expression) -> Iterator[Expression]:
    """The conditions of which all have to be true."""
    match node:
        case nodes.And(operands=operands):
            for operand in operands:
                yield from _operands(operand)
        case nodes.Between(operand=operand, low=low, high=high):
            yield nodes.Comparison(">=", operand, low)
            yield nodes.Comparison("<=", operand, high)
        case _:
            yield node
