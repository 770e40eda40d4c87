"""One AND-term of a predicate: the unit that is registered in an attribute's tree (C8, C9).

A conjunction is a set of null-rejecting constraints, one per attribute, and a residual: the tests
that are no such constraint and are evaluated on the whole event. Its *pivots* are the attributes
that it may be registered under: those without which it can never be true, each with an interval
outside of which it can never be true. A conjunction without a pivot (``x IS NULL``) may match any
event, so it has to be tested with every one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from matching.constraint import Constraint
from matching.selector.evaluate import ConditionFunction, all_of, condition
from matching.selector.expression import (
    TRUE,
    And,
    Attribute,
    Expression,
    IsNull,
    attributes_of,
    conjoin,
)
from matching.selector.unparse import unparse
from matching.values import EVERYTHING, Attributes, Interval

ALWAYS: Final = all_of(())
"""The conjunction that is left to check where an index has found everything."""


class Conjunction:
    """One AND-term: true exactly when all constraints and the residual are true. Immutable."""

    __slots__ = ("_function", "_pivots", "constraints", "residual")

    def __init__(
        self, constraints: dict[str, Constraint], residual: tuple[Expression, ...] = ()
    ) -> None:
        self.constraints: Mapping[str, Constraint] = MappingProxyType(constraints)
        """The null-rejecting single-attribute constraints, by attribute."""
        self.residual: Expression | None = conjoin(residual) if residual else None
        """The AND of all other tests (arithmetic, two attributes compared, IS NULL), or None."""
        self._function: ConditionFunction | None = None
        self._pivots: tuple[tuple[str, Interval], ...] | None = None

    def __repr__(self) -> str:
        return f"Conjunction({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Conjunction) and self.expression == other.expression

    def __hash__(self) -> int:
        return hash(self.expression)

    @property
    def expression(self) -> Expression:
        """The conjunction as one tree; TRUE if it has no test at all."""
        atoms = [term for c in self.constraints.values() for term in c.terms]
        atoms += self._residual_atoms()
        return conjoin(atoms) if atoms else TRUE

    @property
    def text(self) -> str:
        """The conjunction as a selector, in canonical form; compiles to an equal conjunction."""
        return unparse(self.expression)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of all attributes that it tests, sorted."""
        return attributes_of(self.expression)

    @property
    def residual_attributes(self) -> tuple[str, ...]:
        """The attributes that the residual cannot be true without, sorted.

        Arithmetic with NULL is NULL and a comparison with NULL is unknown, so every test but IS
        NULL needs all of its attributes.
        """
        names: dict[str, None] = {}
        for atom in self._residual_atoms():
            if not isinstance(atom, IsNull):
                names.update(dict.fromkeys(attributes_of(atom)))
        return tuple(sorted(names))

    @property
    def null_attributes(self) -> tuple[str, ...]:
        """The attributes that it can only be true without (``x IS NULL``), sorted."""
        atoms = (atom for atom in self._residual_atoms() if isinstance(atom, IsNull))
        operands = (atom.operand for atom in atoms)
        return tuple(sorted({each.name for each in operands if isinstance(each, Attribute)}))

    @property
    def is_box(self) -> bool:
        """Whether it asks for nothing but one exact interval of each of its attributes."""
        if self.residual is not None:
            return False
        for constraint in self.constraints.values():
            if len(constraint.intervals) != 1 or not constraint.exact:
                return False
        return True

    def _residual_atoms(self) -> tuple[Expression, ...]:
        if self.residual is None:
            return ()
        return self.residual.operands if isinstance(self.residual, And) else (self.residual,)

    def pivots(self) -> tuple[tuple[str, Interval], ...]:
        """Return where the conjunction may be registered: (attribute, interval), most selective
        first.

        The order is: equality, IN, intervals bounded on both sides, booleans, intervals bounded on
        one side, whole types, and last the attributes that only have to be present. Empty if no
        attribute is needed.
        """
        if self._pivots is None:
            ranked = sorted([constraint.pivot for constraint in self.constraints.values()])
            found = [(name, hull) for _, name, hull in ranked]
            if self.residual is not None:
                names = self.residual_attributes
                found += [(name, EVERYTHING) for name in names if name not in self.constraints]
            self._pivots = tuple(found)
        return self._pivots

    def matches(self, attributes: Attributes) -> bool:
        """Whether the conjunction is true for the attributes."""
        if self._function is None:
            self._function = self.check_except(None)
        return self._function(attributes) is True

    def check_except(self, attribute: str | None) -> ConditionFunction:
        """A function of an event that is True where everything but this attribute's constraint is.

        For callers that have found the attribute's value in the constraint's intervals already. A
        constraint whose intervals are not exact is checked nevertheless.
        """
        parts = [
            constraint.function()
            for name, constraint in self.constraints.items()
            if name != attribute or not constraint.exact
        ]
        if self.residual is not None:
            parts.append(condition(self.residual))
        if not parts:
            return ALWAYS
        return parts[0] if len(parts) == 1 else all_of(tuple(parts))
