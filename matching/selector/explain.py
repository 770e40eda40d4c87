"""Why a predicate is or is not true for an event: the verdict on every part, with the values."""

from __future__ import annotations

from matching.selector import expression as nodes
from matching.selector.evaluate import Verdict, condition, term
from matching.selector.expression import Expression
from matching.selector.unparse import quote_name, quote_value, unparse
from matching.values import RANKS, Attributes, Value, type_name

_VERDICTS = {True: "true", False: "false", None: "unknown"}


class Explanation:
    """The verdict on one sub-expression of a selector, and those on its parts. Immutable."""

    __slots__ = ("children", "reason", "seen", "text", "verdict")

    def __init__(
        self,
        text: str,
        verdict: Verdict,
        seen: tuple[tuple[str, Value | None], ...],
        reason: str,
        children: tuple[Explanation, ...],
    ) -> None:
        self.text = text
        """The sub-expression in canonical form."""
        self.verdict = verdict
        """True, False, or None for unknown."""
        self.seen = seen
        """For a test: each of its attributes with the event's value, None if absent or NULL."""
        self.reason = reason
        """Why a test is unknown (an absent attribute, a NULL, two types); else empty."""
        self.children = children
        """The parts of AND, OR and NOT, in the order of the text; empty for a test."""

    def __repr__(self) -> str:
        return f"Explanation({self.text!r}, {self.verdict})"

    def lines(self) -> list[str]:
        """The explanation as text: a line per part, indented by two spaces per level."""
        note = ", ".join(f"{quote_name(name)} is {quote_value(value)}" for name, value in self.seen)
        if self.reason:
            note = self.reason
        own = f"{_VERDICTS[self.verdict]}: {self.text}" + (f"  ({note})" if note else "")
        return [own, *("  " + line for child in self.children for line in child.lines())]


def explain(node: Expression, attributes: Attributes) -> Explanation:
    """The verdict of a condition on an event, and of each of its parts."""
    verdict = condition(node)(attributes)
    match node:
        case nodes.And(operands=parts) | nodes.Or(operands=parts):
            children = tuple(explain(part, attributes) for part in parts)
            return Explanation(unparse(node), verdict, (), "", children)
        case nodes.Not(
            operand=nodes.And() | nodes.Or() | nodes.Not() | nodes.Comparison() as operand
        ):
            child = explain(operand, attributes)
            return Explanation(unparse(node), verdict, (), "", (child,))
        case _:
            seen = tuple((name, _value(attributes, name)) for name in nodes.attributes_of(node))
            reason = _reason(node, attributes) if verdict is None else ""
            return Explanation(unparse(node), verdict, seen, reason, ())


def _value(attributes: Attributes, name: str) -> Value | None:
    value = attributes.get(name)
    return value if type(value) in RANKS else None


def _reason(node: Expression, attributes: Attributes) -> str:
    """Return why a test is unknown for the event."""
    for name in nodes.attributes_of(node):
        if _value(attributes, name) is None:
            what = "NULL" if name in attributes else "absent"
            return f"attribute {quote_name(name)} is {what}"
    inner = node.operand if isinstance(node, nodes.Not) else node
    match inner:
        case nodes.Comparison(left=left, right=right):
            pairs = [(left, right)]
        case nodes.Between(operand=operand, low=low, high=high):
            pairs = [(operand, low), (operand, high)]
        case nodes.InList(operand=operand, choices=choices):
            pairs = [(operand, choice) for choice in choices]
        case nodes.Like(operand=operand):
            return f"{_described(operand, attributes)}, LIKE needs a string"
        case _:
            return f"{_described(inner, attributes)}, not a boolean"
    for left, right in pairs:
        if _kind(left, attributes) != _kind(right, attributes):
            return f"{_described(left, attributes)}, {_described(right, attributes)}"
    return f"{_described(pairs[0][0], attributes)}, so is the other side"


def _kind(node: Expression, attributes: Attributes) -> str:
    return type_name(term(node)(attributes))


def _described(node: Expression, attributes: Attributes) -> str:
    value = term(node)(attributes)
    if isinstance(node, nodes.Literal):
        return f"{quote_value(value)} is a {type_name(value)}"
    kind = type_name(value)
    shown = "NULL" if kind == "NULL" else f"the {kind} {quote_value(value)}"
    return f"{unparse(node)} is {shown}"
