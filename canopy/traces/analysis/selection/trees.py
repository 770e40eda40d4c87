"""A selector's tree as a function of an event's attributes, in SQL's three values.

Values are Python's: bool, int (of any size, exact), float and str; NULL is None. A comparison of
two types, and whatever has an operand that is NULL, is unknown (None). Integers meet floats
exactly, which is Python's own rule; strings compare by code points.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from canopy.traces.analysis.constants import MAX_DEPTH

Scalar = bool | int | float | str
Attributes = Mapping[str, Scalar]
Term = Callable[[Attributes], Scalar | None]
Condition = Callable[[Attributes], bool | None]

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
KINDS: Final[dict[type, str]] = {bool: "bool", int: "number", float: "number", str: "text"}
"""The types of values; only values of one kind compare."""

INT_MAX: Final = 2**63 - 1
"""The largest integer of an event; a larger one is the nearest double."""


class TreeError(ValueError):
    """The tree of a subscribe record is not a selector's tree."""


def parse_tree(text: str) -> Any:
    """The tree in a subscribe record. Raises TreeError if it is not JSON or nests too deep."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TreeError(f"the selector's tree is not JSON: {error}") from None
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [part for node in level if isinstance(node, list) for part in node]
        if not level:
            return tree
    raise TreeError(f"the selector nests deeper than {MAX_DEPTH} levels")


def parse_attributes(text: str | None) -> dict[str, Scalar]:
    """The attributes of a publish record that have a value: of an object in JSON; else none."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    values = ((name, _scalar(value)) for name, value in found.items())
    return {name: value for name, value in values if value is not None}


def _scalar(value: Any) -> Scalar | None:
    kind = type(value)
    if kind is int and not -INT_MAX - 1 <= value <= INT_MAX:
        value = as_float(value)
        kind = float
    if kind is float:
        return value if math.isfinite(value) else None
    return value if kind in KINDS else None


def as_float(value: float) -> float:
    """The nearest double; an infinity beyond the largest."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def condition(tree: Any) -> Condition:
    """The function that evaluates `tree`. Raises TreeError if it is not a condition."""
    match tree:
        case ["lit", value]:
            verdict = value if isinstance(value, bool) else None
            return lambda attributes: verdict
        case ["attr", str(name)]:
            return _flag(name)
        case ["cmp", str(op), left, right] if op in COMPARISONS:
            return _comparison(op, term(left), term(right))
        case ["and", _, *_]:
            return _every(list(map(condition, tree[1:])), False)
        case ["or", _, *_]:
            return _every(list(map(condition, tree[1:])), True)
        case ["not", inner]:
            return _not(condition(inner))
        case ["between", value, low, high]:
            seen = term(value)
            above = _comparison(">=", seen, term(low))
            return _every([above, _comparison("<=", seen, term(high))], False)
        case ["in", value, [_, *_] as choices]:
            return _one_of(term(value), choices)
        case ["like", value, str(pattern), (None | str()) as escape]:
            return _like(term(value), pattern, escape)
        case ["isnull", value]:
            inner_term = term(value)
            return lambda attributes: inner_term(attributes) is None
    raise TreeError(f"not a condition of the selector language: {str(tree)[:80]}")


def term(tree: Any) -> Term:
    """The function that computes the value of `tree`. Raises TreeError."""
    match tree:
        case ["attr", str(name)]:
            return lambda attributes: attributes.get(name)
        case ["lit", value]:
            literal = value_of(value)
            return lambda attributes: literal
        case ["neg", inner]:
            return _negated(term(inner))
        case ["arith", "+" | "-" | "*" | "/" as op, left, right]:
            return _computed(op, term(left), term(right))
    return condition(tree)  # its result is a boolean


def value_of(literal: Any) -> Scalar | None:
    """Return the value of a literal in a tree; None if it is no value of the language."""
    if type(literal) is float and not math.isfinite(literal):
        return None
    return literal if type(literal) in KINDS else None


def like_expression(pattern: str, escape: str | None) -> str | None:
    """The regular expression of a LIKE pattern; None if it can match nothing.

    Every piece between two ``%`` is taken at its leftmost place for good (an atomic group), which
    leaves the most for the rest, so that the search never goes back over earlier choices.
    """
    pieces = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literally = next(characters, None)
            if literally is None:
                return None  # a pattern that ends in its escape, as in SQLite
            pieces[-1] += re.escape(literally)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    if len(pieces) == 1:
        return f"(?s:{pieces[0]})\\Z"
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1] if piece)
    last = rf".*{pieces[-1]}\Z" if pieces[-1] else ""
    return f"(?s:{pieces[0]}{middle}{last})"


def _flag(name: str) -> Condition:
    def evaluate(attributes: Attributes) -> bool | None:
        value = attributes.get(name)
        return value if isinstance(value, bool) else None

    return evaluate


def _comparison(op: str, left: Term, right: Term) -> Condition:
    compare = COMPARISONS[op]

    def evaluate(attributes: Attributes) -> bool | None:
        a, b = left(attributes), right(attributes)
        kind = KINDS.get(type(a))
        return compare(a, b) if kind is not None and kind == KINDS.get(type(b)) else None

    return evaluate


def _every(parts: list[Condition], decisive: bool) -> Condition:
    """AND (False decides) or OR (True decides)."""

    def evaluate(attributes: Attributes) -> bool | None:
        result: bool | None = not decisive
        for part in parts:
            found = part(attributes)
            if found is decisive:
                return decisive
            if found is None:
                result = None
        return result

    return evaluate


def _not(inner: Condition) -> Condition:
    def evaluate(attributes: Attributes) -> bool | None:
        found = inner(attributes)
        return None if found is None else not found

    return evaluate


def _one_of(value: Term, choices: list[Any]) -> Condition:
    """``value = a OR value = b …``: with choices of other types a miss is unknown, never false."""
    by_kind: dict[str | None, set[Any]] = {}
    for choice in choices:
        by_kind.setdefault(KINDS.get(type(value_of(choice))), set()).add(value_of(choice))
    one_kind = len(by_kind) == 1

    def evaluate(attributes: Attributes) -> bool | None:
        seen = value(attributes)
        if seen is None:
            return None
        same = by_kind.get(KINDS[type(seen)])
        if same is not None and seen in same:
            return True
        return False if same is not None and one_kind else None

    return evaluate


def _like(value: Term, pattern: str, escape: str | None) -> Condition:
    expression = like_expression(pattern, escape)
    search = None if expression is None else re.compile(expression).match

    def evaluate(attributes: Attributes) -> bool | None:
        seen = value(attributes)
        if not isinstance(seen, str):
            return None
        return search is not None and search(seen) is not None

    return evaluate


def _negated(inner: Term) -> Term:
    def compute(attributes: Attributes) -> Scalar | None:
        value = inner(attributes)
        return -value if KINDS.get(type(value)) == "number" else None  # type: ignore[operator]

    return compute


def _computed(op: str, left: Term, right: Term) -> Term:
    def compute(attributes: Attributes) -> Scalar | None:
        a: Any = left(attributes)
        b: Any = right(attributes)
        if KINDS.get(type(a)) != "number" or KINDS.get(type(b)) != "number":
            return None
        try:
            return _arithmetic(op, a, b)
        except (OverflowError, ZeroDivisionError):
            return None

    return compute


def _arithmetic(op: str, a: Any, b: Any) -> Scalar | None:
    """Exact between integers, whose quotient is cut toward zero; else a finite double."""
    result: Any
    if op == "+":
        result = a + b
    elif op == "-":
        result = a - b
    elif op == "*":
        result = a * b
    elif type(a) is int and type(b) is int:
        quotient = abs(a) // abs(b)
        result = quotient if (a < 0) == (b < 0) else -quotient
    else:
        result = a / b
    return result if type(result) is int or math.isfinite(result) else None
