"""One predicate on a batch of events: each distinct value of an attribute is tested once.

An index finds which of many predicates are true of an event. Where there is one predicate, and many
events whose values repeat, this is quicker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matching.conjunction import Conjunction
from matching.predicate import Predicate
from matching.values import Attributes

SIMPLE = frozenset((str, int, bool, float, type(None)))


def matches_all(predicate: Predicate, batch: Sequence[Attributes]) -> list[bool]:
    """For each event of the batch whether the predicate is true of it."""
    found: list[bool] | None = None
    for conjunction in predicate.conjunctions:
        if conjunction.residual is not None:
            matches = predicate.matches
            return [matches(attributes) for attributes in batch]
        verdicts = _matches_by_value(conjunction, batch)
        if found is None or all(verdicts):
            found = verdicts
        elif not all(found):
            found = [one or other for one, other in zip(found, verdicts, strict=True)]
    return [False] * len(batch) if found is None else found


def _matches_by_value(conjunction: Conjunction, batch: Sequence[Attributes]) -> list[bool]:
    left: list[bool] | None = None
    for name, constraint in conjunction.constraints.items():
        column: list[Any] = [attributes.get(name) for attributes in batch]
        function = constraint.function()
        kinds = frozenset(map(type, column)) - {type(None)}
        if len(kinds) <= 1 and kinds <= SIMPLE:  # TRUE and 1 are one key of a dictionary
            known = {value: function({name: value}) is True for value in dict.fromkeys(column)}
            if all(known.values()):
                continue
            verdicts = [known[value] for value in column]
        else:
            verdicts = [function({name: value}) is True for value in column]
        if left is None:
            left = verdicts
        else:
            left = [one and other for one, other in zip(left, verdicts, strict=True)]
    return [True] * len(batch) if left is None else left
