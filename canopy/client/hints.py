"""Hints about a selector that is valid and may still not be what was meant.

They depend only on the selector and on the names that its node has seen. The subscription is made
nevertheless, since the first event with a new attribute may arrive at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeAlias

from matching import Predicate, Value, compile_selector
from matching.selector.expression import And, Attribute, Not, Or
from matching.selector.unparse import quote_value, unparse

ValuesOf: TypeAlias = Callable[[str], Sequence[Value]]
"""Recent values of an attribute."""

_STRING: Final = re.compile(r"'(?:[^']|'')*'")


def never_true(predicate: Predicate) -> tuple[str, ...]:
    """Return a sentence for the selector if no event can match it, else one for each alternative
    (operand of an OR outside parentheses) that no event can match: one without conjunctions in the
    normal form."""
    if not predicate.conjunctions:
        return ("this selector is never true: no event can match it",)
    whole = predicate.expression
    if not isinstance(whole, Or):
        return ()
    parts = (unparse(operand) for operand in whole.operands)
    return tuple(
        f"this part is never true: {part}"
        for part in parts
        if not compile_selector(part).conjunctions
    )


def not_seen(predicate: Predicate, seen: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for each double-quoted attribute of the selector that is not in `seen` (the
    names that the node knows), and one for all other attributes that are not.

    If `seen` is empty, only double-quoted attributes are reported.
    """
    unseen = [name for name in predicate.attributes if name not in seen]
    code = _STRING.sub("", predicate.text)
    quoted = [name for name in unseen if '"{}"'.format(name.replace('"', '""')) in code]
    plain = [name for name in unseen if name not in quoted]
    found = [
        f'no attribute "{name}" was seen yet; a text has single quotes: {quote_value(name)}'
        for name in quoted
    ]
    if seen and plain:
        found.append(f"not seen yet: {', '.join(plain)}")
    return tuple(found)


def bare_names(predicate: Predicate) -> tuple[str, ...]:
    """Return the attributes that are a condition by themselves in the selector: ``mag > 4 AND
    place``."""
    found: dict[str, None] = {}
    left = [predicate.expression]
    while left:
        one = left.pop(0)
        if isinstance(one, And | Or):
            left += one.operands
        elif isinstance(one, Not):
            left.append(one.operand)
        elif isinstance(one, Attribute):
            found[one.name] = None
    return tuple(found)


def never_boolean(predicate: Predicate, values_of: ValuesOf) -> tuple[str, ...]:
    """Return a sentence for each attribute that is a condition by itself, unless an event that the
    node knows has it as a boolean. With another type it is neither true nor false."""
    found = []
    for name in bare_names(predicate):
        kinds = {"text" if isinstance(v, str) else "number" for v in values_of(name)}
        if any(isinstance(value, bool) for value in values_of(name)):
            continue
        known = f"{name} was only ever a {' or a '.join(sorted(kinds))}, and" if kinds else name
        written = unparse(Attribute(name))
        found.append(
            f"{known} alone is true only as the boolean TRUE: compare it ({written} = …), or write "
            f"{written} IS NOT NULL for events that have it"
        )
    return tuple(found)


def hints(
    predicate: Predicate, seen: Sequence[str], values_of: ValuesOf = lambda name: ()
) -> tuple[str, ...]:
    """Return all hints about a selector. `seen`: the attributes that its node has seen;
    `values_of`: their recent values."""
    return (
        *never_true(predicate),
        *not_seen(predicate, seen),
        *never_boolean(predicate, values_of),
    )
