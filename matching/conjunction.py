"""One AND-term of a predicate: what is registered in a tree (C9), attribute by attribute (C8).

A conjunction is a set of null-rejecting constraints, one per attribute, and a residual that is
checked with the whole event. Its *pivots* are the attributes it may be registered under: those
without which it can never be true, each with an interval outside of which it can never be true. A
conjunction without a pivot (``x IS NULL``) has to be shown every event.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from matching.constraint import Constraint
from matching.evaluate import ConditionFunction, all_of, condition
from matching.expression import TRUE, And, Expression, IsNull, attributes_of, conjoin
from matching.normal import Draft
from matching.values import EVERYTHING, WHOLE_TYPES, Attributes, Interval

if TYPE_CHECKING:
    from matching.predicate import Predicate

_WHOLE_ENDS = frozenset(end for whole in WHOLE_TYPES for end in (whole.lo, whole.hi))


class Conjunction:
    """One AND-term: true exactly when all constraints and the residual are; immutable."""

    __slots__ = ("_function", "_pivots", "constraints", "residual")

    def __init__(self, draft: Draft) -> None:
        self.constraints: Mapping[str, Constraint] = MappingProxyType(draft.constraints)
        """The null-rejecting single-attribute constraints, by attribute."""
        self.residual: Expression | None = conjoin(draft.residual) if draft.residual else None
        """Whatever is no such constraint: arithmetic, two attributes compared, IS NULL."""
        self._function: ConditionFunction | None = None
        self._pivots: tuple[tuple[str, Interval], ...] | None = None

    def __repr__(self) -> str:
        return f"Conjunction({self.predicate().text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conjunction) and self.expression == other.expression

    def __hash__(self) -> int:
        return hash(self.expression)

    @property
    def expression(self) -> Expression:
        """All of it as one tree; TRUE if it asks for nothing."""
        atoms = [term for c in self.constraints.values() for term in c.terms]
        atoms += self._residual_atoms()
        return conjoin(atoms) if atoms else TRUE

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of all attributes it asks for, sorted."""
        return attributes_of(self.expression)

    @property
    def residual_attributes(self) -> tuple[str, ...]:
        """Attributes whose NULL makes the residual not true, sorted.

        Arithmetic and comparisons with NULL are NULL and unknown, so every test but IS NULL needs
        all of its attributes.
        """
        names: dict[str, None] = {}
        for atom in self._residual_atoms():
            if not isinstance(atom, IsNull):
                names.update(dict.fromkeys(attributes_of(atom)))
        return tuple(sorted(names))

    def _residual_atoms(self) -> tuple[Expression, ...]:
        if self.residual is None:
            return ()
        return self.residual.operands if isinstance(self.residual, And) else (self.residual,)

    def pivots(self) -> tuple[tuple[str, Interval], ...]:
        """Where the conjunction may be registered: (attribute, interval), most selective first.

        Equality, then IN, intervals with two ends, booleans, intervals with one end, whole types,
        and last the attributes that need only be there. Empty if no attribute is needed.
        """
        if self._pivots is None:
            ranked = sorted((_breadth(c), name, c.hull) for name, c in self.constraints.items())
            rest = [n for n in self.residual_attributes if n not in self.constraints]
            self._pivots = (
                *((name, hull) for _, name, hull in ranked),
                *((name, EVERYTHING) for name in rest),
            )
        return self._pivots

    def matches(self, attributes: Attributes) -> bool:
        """Whether the conjunction is true for the attributes."""
        if self._function is None:
            self._function = self.check_except(None)
        return self._function(attributes) is True

    def check_except(self, attribute: str | None) -> ConditionFunction:
        """A function that is True where all but this attribute's constraint is true.

        For whoever knows already that the attribute's value lies in the constraint's intervals. If
        they are not exact the constraint is checked all the same.
        """
        parts = [
            constraint.function()
            for name, constraint in self.constraints.items()
            if name != attribute or not constraint.exact
        ]
        if self.residual is not None:
            parts.append(condition(self.residual))
        return parts[0] if len(parts) == 1 else all_of(tuple(parts))

    def predicate(self) -> Predicate:
        """The conjunction as a predicate; its text is canonical and compiles to an equal one.

        This conjunction is its only one: whoever has the subscription, too, shares all of it.
        """
        # Imported here: a predicate is made of conjunctions.
        from matching.predicate import Predicate

        return Predicate(self.expression, conjunctions=(self,))


def _breadth(constraint: Constraint) -> tuple[int, int]:
    """A rank of how much of the space a constraint lets through; smaller is more selective.

    Only the shape is known here, not the values that events carry, so this is an order of classes:
    *wild guess*, but the order that the hull's size has for most real attributes.
    """
    intervals = constraint.intervals
    hull = constraint.hull
    if hull.lo[0] == 0 and hull.hi <= WHOLE_TYPES[0].hi:
        # A boolean has two places: half of all events at best, and nothing to split.
        return (3, len(intervals))
    if constraint.is_points:
        return (0 if len(intervals) == 1 else 1, len(intervals))
    if hull == EVERYTHING:
        return (6, 0)
    open_ends = (hull.lo in _WHOLE_ENDS) + (hull.hi in _WHOLE_ENDS)
    return ((2, 4, 5)[open_ends], len(intervals))
