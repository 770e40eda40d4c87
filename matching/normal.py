"""Disjunctive normal form that is exact in three-valued logic (C9).

A predicate becomes an OR of conjunctions such that the predicate *is true* exactly when one of them
is; between false and unknown no difference has to be kept, since only true delivers. NOT is pushed
down to the tests by laws that hold for unknown too: De Morgan, double negation, and the inverse
comparison (``NOT x < 3`` and ``x >= 3`` are unknown for the same x). The law of the excluded middle
does not hold and is never used. AND and OR of parts that are exact where true are exact where true.

The number of conjunctions is known before any is built; it is bounded, and so is all work here.
"""

from __future__ import annotations

from typing import NamedTuple

from matching.constraint import Constraint, constant, constraint_of, merge
from matching.evaluate import condition
from matching.expression import (
    FALSE,
    INVERSE,
    TRUE,
    And,
    Attribute,
    Between,
    Comparison,
    Expression,
    Not,
    Or,
    attributes_of,
    conjoin,
    disjoin,
)

# DESIGN.md, Selectors: at least this many are allowed.
MAX_CONJUNCTIONS = 1024


class Draft(NamedTuple):
    """A conjunction in the making: constraints by attribute, and the atoms that are none."""

    constraints: dict[str, Constraint]
    residual: tuple[Expression, ...]

    def atoms(self) -> list[Expression]:
        """All the tests, those of the constraints first."""
        return [*(term for c in self.constraints.values() for term in c.terms), *self.residual]


def negation_normal(node: Expression, positive: bool = True) -> Expression:
    """The tree with NOT only before tests that have no inverse, and constants decided.

    True for the same attributes as the given tree (or as its negation, where not `positive`).
    """
    match node:
        case Not(operand=operand):
            return negation_normal(operand, not positive)
        case And(operands=operands) | Or(operands=operands):
            parts = [negation_normal(operand, positive) for operand in operands]
            return _and(parts) if isinstance(node, And) == positive else _or(parts)
        case Comparison(op=op, left=left, right=right):
            return _decided(node if positive else Comparison(INVERSE[op], left, right))
        case Between():
            return _between(node, positive)
        case _:
            return _decided(node if positive else Not(node))


def _and(parts: list[Expression]) -> Expression:
    if FALSE in parts:
        return FALSE
    kept = [part for part in parts if part != TRUE]
    return conjoin(kept) if kept else TRUE


def _or(parts: list[Expression]) -> Expression:
    if TRUE in parts:
        return TRUE
    kept = [part for part in parts if part != FALSE]
    return disjoin(kept) if kept else FALSE


def _decided(atom: Expression) -> Expression:
    """TRUE or FALSE for a test without attributes; unknown is as good as false here."""
    if attributes_of(atom):
        return atom
    return TRUE if condition(atom)({}) is True else FALSE


def _between(node: Between, positive: bool) -> Expression:
    """BETWEEN as one constraint where it is one, else as its two comparisons."""
    constants = constant(node.low)[0] + constant(node.high)[0]
    plain = isinstance(node.operand, Attribute)
    # Split where that makes an atom simpler: a single constraint, or no NOT of two comparisons.
    helps = (plain and constants == 1) or constant(node.operand)[0]
    if constants == 2 or (positive and not helps):
        return _decided(node if positive else Not(node))
    low = Comparison(">=" if positive else "<", node.operand, node.low)
    high = Comparison("<=" if positive else ">", node.operand, node.high)
    parts = [_decided(low), _decided(high)]
    return _and(parts) if positive else _or(parts)


def count(node: Expression) -> int:
    """How many conjunctions the normal form has, before contradictions are dropped."""
    if isinstance(node, Or):
        return sum(count(operand) for operand in node.operands)
    total = 1
    if isinstance(node, And):
        for operand in node.operands:
            total *= count(operand)
    return total


def drafts(node: Expression) -> list[Draft]:
    """The conjunctions of a tree in negation normal form, each once, contradictions dropped.

    The caller has made sure that `count` is within MAX_CONJUNCTIONS.
    """
    known: dict[Expression, list[Draft]] = {}
    # Equal atoms are one object, so drafts are compared by identities, which is cheap.
    unique = {tuple(map(id, draft.atoms())): draft for draft in _drafts(node, known)}
    return list(unique.values())


def _drafts(node: Expression, known: dict[Expression, list[Draft]]) -> list[Draft]:
    if isinstance(node, Or):
        return [draft for operand in node.operands for draft in _drafts(operand, known)]
    if not isinstance(node, And):
        if node not in known:
            known[node] = _atom(node)
        return known[node]
    # What is common to all goes first and is merged once; then each OR multiplies.
    atoms: list[Draft] = []
    for operand in node.operands:
        if not isinstance(operand, Or):
            atom = _drafts(operand, known)
            if not atom:
                return []
            atoms += atom
    common = _merged(atoms)
    out = [] if common is None else [common]
    for operand in node.operands:
        if isinstance(operand, Or):
            branches = _drafts(operand, known)
            products = (_merged([left, right]) for left in out for right in branches)
            out = [product for product in products if product is not None]
    return out


def _atom(node: Expression) -> list[Draft]:
    if node in (TRUE, FALSE):
        return [Draft({}, ())] if node == TRUE else []
    constraint = constraint_of(node)
    if constraint is None:
        return [Draft({}, (node,))]
    return [Draft({constraint.attribute: constraint}, ())] if constraint.intervals else []


def _merged(parts: list[Draft]) -> Draft | None:
    """The AND of drafts, or None if no value satisfies it."""
    if len(parts) == 2 and not parts[0].constraints.keys() & parts[1].constraints.keys():
        constraints = parts[0].constraints | parts[1].constraints
    else:
        by_attribute: dict[str, list[Constraint]] = {}
        for part in parts:
            for name, constraint in part.constraints.items():
                by_attribute.setdefault(name, []).append(constraint)
        constraints = {
            name: same[0] if len(same) == 1 else merge(same) for name, same in by_attribute.items()
        }
    if any(not constraint.intervals for constraint in constraints.values()):
        return None
    residual = {id(atom): atom for part in parts for atom in part.residual}
    return Draft(constraints, tuple(residual.values()))
