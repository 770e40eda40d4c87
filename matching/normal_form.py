"""Disjunctive normal form in three-valued logic (C9; docs/design/selectors.md).

A predicate becomes an OR of conjunctions such that the predicate *is true* exactly when one of them
is. False and unknown need not be distinguished, since only true delivers. NOT is pushed down to the
tests by laws that hold for unknown, too: De Morgan, double negation, and the inverse comparison
(``NOT x < 3`` and ``x >= 3`` are unknown for the same x). The law of the excluded middle does not
hold in three-valued logic and is never used.

The number of conjunctions is counted before any is built, and bounded; so is all work here.
"""

from __future__ import annotations

from typing import NamedTuple

from matching.constraint import Constraint, constant, constraint_of, merge, plain_constraint
from matching.selector.evaluate import condition
from matching.selector.expression import (
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

# Conjunctions of one selector: docs/reference/selectors.md promises at least so many. Each is
# registered by itself, so this bounds what one subscription costs the overlay.
MAX_CONJUNCTIONS = 1024


class Product(NamedTuple):
    """An AND-term while the normal form is built: what a `Conjunction` is made of."""

    constraints: dict[str, Constraint]
    """The constraint of each attribute, by its name."""
    residual: tuple[Expression, ...]
    """The atoms that are no single-attribute constraint."""

    def atoms(self) -> list[Expression]:
        """All tests, those of the constraints first."""
        return [*(term for c in self.constraints.values() for term in c.terms), *self.residual]


def negation_normal_form(node: Expression, positive: bool = True) -> Expression:
    """The tree with NOT only before tests that have no inverse, and constant tests evaluated.

    The result is true for the same events as the given tree, or as its negation if not `positive`.
    """
    match node:
        case Not(operand=operand):
            return negation_normal_form(operand, not positive)
        case And(operands=operands) | Or(operands=operands):
            parts = [negation_normal_form(operand, positive) for operand in operands]
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
    """TRUE or FALSE in place of a test without attributes; unknown counts as false here."""
    if attributes_of(atom):
        return atom
    return TRUE if condition(atom)({}) is True else FALSE


def _between(node: Between, positive: bool) -> Expression:
    """BETWEEN as it is where that is a single constraint, else as its two comparisons."""
    constants = constant(node.low)[0] + constant(node.high)[0]
    plain = isinstance(node.operand, Attribute)
    # Split where a half becomes a single-attribute constraint or a constant.
    helps = (plain and constants == 1) or constant(node.operand)[0]
    if constants == 2 or (positive and not helps):
        return _decided(node if positive else Not(node))
    low = Comparison(">=" if positive else "<", node.operand, node.low)
    high = Comparison("<=" if positive else ">", node.operand, node.high)
    parts = [_decided(low), _decided(high)]
    return _and(parts) if positive else _or(parts)


def count_products(node: Expression) -> int:
    """Return the number of AND-terms of the normal form, before contradictions and duplicates are
    dropped.

    The tree must be in negation normal form.
    """
    if isinstance(node, Or):
        return sum(count_products(operand) for operand in node.operands)
    total = 1
    if isinstance(node, And):
        for operand in node.operands:
            total *= count_products(operand)
    return total


def products(node: Expression) -> list[Product]:
    """The AND-terms of a tree in negation normal form, each once, contradictions dropped.

    The caller has made sure that `count_products` is at most MAX_CONJUNCTIONS.
    """
    by_atom: dict[Expression, list[Product]] = {}
    # `by_atom` makes equal atoms one object, so products are compared by identities: cheap.
    unique = {tuple(map(id, product.atoms())): product for product in _products(node, by_atom)}
    return list(unique.values())


def plain_products(node: Expression) -> list[Product] | None:
    """`products` of an AND of tests that compare one attribute with constants each, which is its
    own normal form; None for any other tree. Most selectors are such: it takes a fifth of the
    time."""
    atoms = node.operands if isinstance(node, And) else (node,)
    constraints: dict[str, Constraint] = {}
    several: dict[str, dict[Expression, Constraint]] = {}  # of attributes that have more than one
    for atom in atoms:
        constraint = plain_constraint(atom)
        if constraint is None:
            return None
        name = constraint.attribute
        before = constraints.get(name)
        if before is None:
            constraints[name] = constraint
        elif before is not constraint:
            several.setdefault(name, {before.terms[0]: before})[atom] = constraint
    for name, same in several.items():
        constraints[name] = merge(list(same.values()))
    for constraint in constraints.values():
        if not constraint.intervals:
            return []
    return [Product(constraints, ())]


def _products(node: Expression, by_atom: dict[Expression, list[Product]]) -> list[Product]:
    if isinstance(node, Or):
        return [product for operand in node.operands for product in _products(operand, by_atom)]
    if not isinstance(node, And):
        if node not in by_atom:
            by_atom[node] = _atom(node)
        return by_atom[node]
    # The atoms that all products share are merged once, first; then each OR multiplies.
    atoms: list[Product] = []
    for operand in node.operands:
        if not isinstance(operand, Or):
            atom = _products(operand, by_atom)
            if not atom:
                return []
            atoms += atom
    common = _merged(atoms)
    out = [] if common is None else [common]
    for operand in node.operands:
        if isinstance(operand, Or):
            branches = _products(operand, by_atom)
            merged = (_merged([left, right]) for left in out for right in branches)
            out = [product for product in merged if product is not None]
    return out


def _atom(node: Expression) -> list[Product]:
    """The product of a single atom; empty if it is never true."""
    if node in (TRUE, FALSE):
        return [Product({}, ())] if node == TRUE else []
    constraint = constraint_of(node)
    if constraint is None:
        return [Product({}, (node,))]
    return [Product({constraint.attribute: constraint}, ())] if constraint.intervals else []


def _merged(parts: list[Product]) -> Product | None:
    """The AND of products; None if the constraints of some attribute contradict each other."""
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
    return Product(constraints, tuple(residual.values()))
