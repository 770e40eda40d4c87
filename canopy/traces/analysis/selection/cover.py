"""Ranges of attributes outside of which a selector cannot be true.

A tree becomes conjunctions of ranges, of which at least one holds whenever the tree is true. A
conjunction is *exact* if the tree is also true whenever it holds; what was left out of the others
(arithmetic, most LIKE patterns, integers beyond doubles) has to be evaluated. NOT is pushed down to
the comparisons, whose opposite is another comparison of the same types; so unknown stays unknown.

Numbers compare here as doubles. Below 2^53 that is exact; a range with a larger bound is as wide as
rounding may move it, and not exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final

from canopy.traces.analysis.selection.trees import COMPARISONS, KINDS, Scalar, as_float, value_of

NULL: Final = "null"
ANY: Final = "any"
BOOL: Final = "bool"
NUMBER: Final = "number"
TEXT: Final = "text"

EXACT_BELOW: Final = 2**53
"""IEEE 754: integers up to here have doubles of their own."""

MOST: Final = 64
"""Conjunctions that an AND may multiply to. Beyond, one part of it stands for the whole, and the
rest is evaluated. Guess; to be measured by selectors that have several long lists."""

MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">": "<=", "<=": ">", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Range:
    """Values of one attribute: of kind NULL (absent), ANY (present), BOOL (`low` alone), NUMBER
    (from `low` to `high`, both included) or TEXT (from `low` to before `high`; None: no end)."""

    kind: str
    low: Any = None
    high: Any = None


EVERY_NUMBER: Final = Range(NUMBER, -math.inf, math.inf)
EVERY_TEXT: Final = Range(TEXT, "", None)


@dataclass(frozen=True, slots=True)
class RangeConjunction:
    """Ranges of different attributes that hold together."""

    ranges: dict[str, Range]
    exact: bool


def cover(tree: Any, wanted: bool = True) -> list[RangeConjunction]:
    """Return conjunctions of which at least one holds whenever the valid tree `tree` is
    `wanted`."""
    match tree:
        case ["lit", value]:
            return [RangeConjunction({}, True)] if value is wanted else []
        case ["attr", name]:
            return [RangeConjunction({name: Range(BOOL, wanted)}, True)]
        case ["not", inner]:
            return cover(inner, not wanted)
        case ["and" | "or" as word, *parts]:
            covers = [*map(cover, parts, repeat(wanted))]
            return _product(covers) if (word == "and") == wanted else [*chain(*covers)]
        case ["cmp", op, left, right]:
            return _comparison(op if wanted else OPPOSITE[op], left, right)
        case ["between", value, low, high]:
            bounds = ["and", ["cmp", ">=", value, low], ["cmp", "<=", value, high]]
            return cover(bounds, wanted)
        case ["in", value, choices]:
            return cover(["or", *(["cmp", "=", value, ["lit", each]] for each in choices)], wanted)
        case ["like", ["attr", name], pattern, escape]:
            return _like(name, pattern, escape, wanted)
        case ["isnull", ["attr", name]]:
            return [RangeConjunction({name: Range(NULL if wanted else ANY)}, True)]
    return [RangeConjunction({}, False)]


def _product(covers: list[list[RangeConjunction]]) -> list[RangeConjunction]:
    """Return conjunctions of which one holds if one of each of `covers` does."""
    covers.sort(key=len)
    out = covers[0]
    for each in covers[1:]:
        if len(out) * len(each) > max(MOST, len(out), len(each)):
            out = [RangeConjunction(one.ranges, False) for one in out]
            continue
        out = [both for one in out for other in each if (both := _both(one, other)) is not None]
    return out


def _both(one: RangeConjunction, other: RangeConjunction) -> RangeConjunction | None:
    ranges = dict(one.ranges)
    for name, each in other.ranges.items():
        mine = ranges.get(name)
        if mine is not None:
            shared = _shared(mine, each)
            if shared is None:
                return None
            ranges[name] = shared
        else:
            ranges[name] = each
    return RangeConjunction(ranges, one.exact and other.exact)


def _shared(one: Range, other: Range) -> Range | None:
    """The values in both ranges; None if there are none."""
    if one.kind == ANY and other.kind != NULL:
        return other
    if other.kind == ANY and one.kind != NULL:
        return one
    if one.kind != other.kind:
        return None
    if one.kind == NUMBER:
        low, high = max(one.low, other.low), min(one.high, other.high)
        return Range(NUMBER, low, high) if low <= high else None
    if one.kind == TEXT:
        low = max(one.low, other.low)
        ends = [each for each in (one.high, other.high) if each is not None]
        high = min(ends, default=None)
        return Range(TEXT, low, high) if high is None or low < high else None
    return one if one == other else None


def _comparison(op: str, left: Any, right: Any) -> list[RangeConjunction]:
    a, b = _literal(left), _literal(right)
    if left[0] == "attr" and b is not None:
        return [RangeConjunction({left[1]: each}, exact) for each, exact in ranges(op, b[0])]
    if right[0] == "attr" and a is not None:
        return [
            RangeConjunction({right[1]: each}, exact) for each, exact in ranges(MIRRORED[op], a[0])
        ]
    needed: dict[str, Range] = {}
    for side in (left, right):
        for name, each in _needed(side).items():
            shared = _shared(needed.get(name, each), each)
            if shared is None:
                return []
            needed[name] = shared
    return [RangeConjunction(needed, False)]


def _literal(tree: Any) -> tuple[Scalar | None] | None:
    """The value of a literal, within a tuple; None for anything else."""
    match tree:
        case ["lit", value]:
            return (value_of(value),)
        case ["neg", ["lit", value]]:
            found: Any = value_of(value)
            return (-found if KINDS.get(type(found)) == NUMBER else None,)
    return None


def _needed(tree: Any) -> dict[str, Range]:
    """Return the ranges of the attributes in which the term `tree` can have a value."""
    match tree:
        case ["attr", name]:
            return {name: Range(ANY)}
        case ["neg", inner]:
            return dict.fromkeys(_needed(inner), EVERY_NUMBER)
        case ["arith", _, left, right]:
            return dict.fromkeys(_needed(left) | _needed(right), EVERY_NUMBER)
    return {}


def ranges(op: str, value: Scalar | None) -> list[tuple[Range, bool]]:
    """The ranges of ``attribute op value``, and whether they are exact."""
    kind = KINDS.get(type(value))
    if value is None or kind is None:
        return []
    if kind == BOOL:
        flags = [flag for flag in (False, True) if COMPARISONS[op](flag, value)]
        return [(Range(BOOL, flag), True) for flag in flags]
    if isinstance(value, str):
        return [(each, True) for each in _texts(op, value)]
    return _numbers(op, value)


def _texts(op: str, value: str) -> list[Range]:
    after = value + "\0"  # the first string that is greater
    below, above = Range(TEXT, "", value), Range(TEXT, after, None)
    found = {
        "=": [Range(TEXT, value, after)],
        "<>": [below, above],
        "<": [below],
        "<=": [Range(TEXT, "", after)],
        ">": [above],
        ">=": [Range(TEXT, value, None)],
    }[op]
    return [each for each in found if each.high is None or each.low < each.high]


def _numbers(op: str, value: Any) -> list[tuple[Range, bool]]:
    at = as_float(value)
    if abs(value) >= EXACT_BELOW:
        wide = {
            "=": Range(NUMBER, at, at),
            "<": Range(NUMBER, -math.inf, at),
            "<=": Range(NUMBER, -math.inf, at),
            ">": Range(NUMBER, at, math.inf),
            ">=": Range(NUMBER, at, math.inf),
        }
        return [(wide.get(op, EVERY_NUMBER), False)]
    below = Range(NUMBER, -math.inf, math.nextafter(at, -math.inf))
    above = Range(NUMBER, math.nextafter(at, math.inf), math.inf)
    found = {
        "=": [Range(NUMBER, at, at)],
        "<>": [below, above],
        "<": [below],
        "<=": [Range(NUMBER, -math.inf, at)],
        ">": [above],
        ">=": [Range(NUMBER, at, math.inf)],
    }[op]
    return [(each, True) for each in found]


def _like(name: str, pattern: str, escape: str | None, wanted: bool) -> list[RangeConjunction]:
    prefix, rest = _prefix(pattern, escape)
    if not wanted:
        return [RangeConjunction({name: EVERY_TEXT}, False)]
    if rest == "":
        return [RangeConjunction({name: Range(TEXT, prefix, prefix + "\0")}, True)]
    return [RangeConjunction({name: Range(TEXT, prefix, _after_prefix(prefix))}, rest == "%")]


def _prefix(pattern: str, escape: str | None) -> tuple[str, str]:
    """The literal text that a LIKE pattern begins with, and the rest of the pattern."""
    prefix = ""
    place = 0
    while place < len(pattern):
        character = pattern[place]
        if character == escape:
            if place + 1 == len(pattern):
                break
            place += 1
            character = pattern[place]
        elif character in "%_":
            break
        prefix += character
        place += 1
    return prefix, pattern[place:]


def _after_prefix(prefix: str) -> str | None:
    """The first string after all that begin with `prefix`; None if there is none."""
    for place in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[place])
        if code < 0x10FFFF:
            return prefix[:place] + chr(code + 1)
    return None
