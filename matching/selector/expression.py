"""The parsed tree of a selector: immutable nodes, and the constructors that keep it canonical.

A node is a condition (true, false or unknown) or a term (a value or NULL); an attribute and a
literal can be both. AND and OR have any number of operands, none of their own kind, so a chain of a
thousand ORs is one level deep and recursion over a tree is bounded by `MAX_DEPTH`.

Ten thousand subscriptions have half a million nodes. Trees have no cycles, so the nodes are not
tracked by the garbage collector (`gc=False` saves 16 bytes each, and collection time), and equal
names, operators and kinds share one string.

A literal has a `kind` since in Python ``1 == True == 1.0``, while ``x = TRUE`` and ``x = 1`` are
different conditions, and ``x / 2`` and ``x / 2.0`` are different terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from matching.values import INT_MAX, INT_MIN, Value, check_value, is_utf8

# Characters of a long line that are shown on each side of the caret: an 80-column terminal has room
# for both.
_CONTEXT = 36


class SelectorError(ValueError):
    """A selector that cannot be compiled, or a predicate that cannot be built.

    `message` is one line that says what was expected, `text` the whole selector ("" if there is
    none), and `position` the index of the character in question (``len(text)`` for its end).
    """

    def __init__(self, message: str, text: str = "", position: int = 0) -> None:
        # A message quotes the text, which may contain line breaks, and has to stay one line.
        message = "".join(c if c.isprintable() else " " for c in message)
        super().__init__(message)
        self.message = message
        self.text = text
        # Without a text the position is kept for a caller that adds the text and raises again.
        self.position = min(position, len(text)) if text else position

    def caret(self) -> str:
        """The line in question, a caret below the position, and the message: 2 or 3 lines."""
        if not self.text.strip():
            return f"(empty selector)\n{self.message}"
        start = self.text.rfind("\n", 0, self.position) + 1
        end = self.text.find("\n", self.position)
        end = len(self.text) if end < 0 else end
        left = max(start, self.position - _CONTEXT)
        right = min(end, self.position + _CONTEXT)
        before = ("…" if left > start else "") + self.text[left : self.position]
        after = self.text[self.position : right] + ("…" if right < end else "")
        # A tab or another control character would misplace the caret.
        line = "".join(c if c.isprintable() else " " for c in before + after)
        return f"{line}\n{' ' * len(before)}^\n{self.message}"


# Levels of parentheses, NOT and arithmetic. Far above what people write, and twice this many Python
# frames are below the interpreter's limit of 1,000. Not measured; would be measured by the deepest
# tree that the interpreter and Spark evaluate.
MAX_DEPTH = 128

# Bytes of UTF-8. docs/reference/selectors.md promises as many; canonical text can be twice as
# long as its source (spaces around operators), and has to be accepted again by other nodes.
MAX_TEXT = 16 * 1024

INVERSE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
KINDS = {bool: "bool", int: "int", float: "float", str: "str"}
# Attribute nodes that are cached to be shared between trees. Not measured; would be measured by the
# number of distinct attributes of a busy node's subscriptions.
SHARED = 1_024


class Literal(msgspec.Struct, frozen=True, gc=False):
    """A value written in the selector. Build it with `literal`, which sets `kind`."""

    value: Value
    kind: str


class Attribute(msgspec.Struct, frozen=True, gc=False):
    """The value of an attribute; as a condition it is true only if that value is TRUE."""

    name: str


_attribute = lru_cache(SHARED)(Attribute)


class Negate(msgspec.Struct, frozen=True, gc=False):
    """``-operand``: NULL unless the operand is a number."""

    operand: Expression


class Arithmetic(msgspec.Struct, frozen=True, gc=False):
    """``left op right`` with one of + - * /."""

    op: str
    left: Expression
    right: Expression


class Comparison(msgspec.Struct, frozen=True, gc=False):
    """``left op right`` with one of = <> < <= > >=."""

    op: str
    left: Expression
    right: Expression


class Between(msgspec.Struct, frozen=True, gc=False):
    """``operand >= low AND operand <= high``."""

    operand: Expression
    low: Expression
    high: Expression


class InList(msgspec.Struct, frozen=True, gc=False):
    """``operand = a OR operand = b …``, where a, b … are literals."""

    operand: Expression
    choices: tuple[Literal, ...]


class Like(msgspec.Struct, frozen=True, gc=False):
    """The operand is a string that matches the pattern: % any run, _ any single character."""

    operand: Expression
    pattern: str
    escape: str | None


class IsNull(msgspec.Struct, frozen=True, gc=False):
    """The operand is NULL. Never unknown."""

    operand: Expression


class Not(msgspec.Struct, frozen=True, gc=False):
    """True and false swapped; unknown stays unknown."""

    operand: Expression


class And(msgspec.Struct, frozen=True, gc=False):
    """True if all operands are, false if any is, else unknown. Build it with `conjoin`."""

    operands: tuple[Expression, ...]


class Or(msgspec.Struct, frozen=True, gc=False):
    """True if any operand is, false if all are, else unknown. Build it with `disjoin`."""

    operands: tuple[Expression, ...]


Term: TypeAlias = Literal | Attribute | Negate | Arithmetic
Condition: TypeAlias = Comparison | Between | InList | Like | IsNull | Not | And | Or
Expression: TypeAlias = Term | Condition


def literal(value: Value) -> Literal:
    """A literal node. Raises SelectorError for a value that `check_value` refuses.

    An integer beyond 64 bits becomes the nearest float, as in SQLite: no event can contain it, and
    no frame or column could carry it.
    """
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        try:
            value = float(value)
        except OverflowError:
            raise SelectorError("the number is too large: infinities are no values") from None
    reason = check_value(value)
    if reason is not None:
        raise SelectorError(reason)
    return Literal(value, KINDS[type(value)])


TRUE = literal(True)
FALSE = literal(False)


def attribute(name: str) -> Attribute:
    """An attribute node. Raises SelectorError for an empty or reserved name, or one UTF-8 lacks.

    Names that begin with ``$`` are reserved: no selector may refer to a tree such as ``$event``,
    where conjunctions without a pivot are registered (C9).
    """
    if not isinstance(name, str) or not name:
        raise SelectorError("an attribute needs a name")
    if name.startswith("$"):
        raise SelectorError(f"the name {name} is reserved: attribute names do not begin with $")
    if not is_utf8(name):
        raise SelectorError("the attribute's name has a lone surrogate")
    return _attribute(name)


def negate(operand: Expression) -> Expression:
    """``-operand``; the negation of a number is one literal."""
    if isinstance(operand, Literal) and operand.kind in ("int", "float"):
        return literal(-operand.value)  # type: ignore[operator]
    return Negate(operand)


def conjoin(operands: Iterable[Expression]) -> Expression:
    """The AND of at least one operand; operands that are ANDs themselves are flattened."""
    flat = tuple(_flatten(operands, And))
    return flat[0] if len(flat) == 1 else And(flat)


def disjoin(operands: Iterable[Expression]) -> Expression:
    """The OR of at least one operand; operands that are ORs themselves are flattened."""
    flat = tuple(_flatten(operands, Or))
    return flat[0] if len(flat) == 1 else Or(flat)


def _flatten(operands: Iterable[Expression], kind: type[And] | type[Or]) -> Iterator[Expression]:
    for operand in operands:
        if isinstance(operand, kind):
            yield from operand.operands
        else:
            yield operand


def is_condition(node: Expression) -> bool:
    """Whether the node may stand for a truth value."""
    if isinstance(node, Literal):
        return node.kind == "bool"
    return not isinstance(node, Negate | Arithmetic)


def is_term(node: Expression) -> bool:
    """Whether the node may stand for a value."""
    return isinstance(node, Term)


def children(node: Expression) -> tuple[Expression, ...]:
    """The sub-expressions of a node, in the order of the text."""
    match node:
        case Literal() | Attribute():
            return ()
        case And() | Or():
            return node.operands
        case Comparison() | Arithmetic():
            return (node.left, node.right)
        case Between():
            return (node.operand, node.low, node.high)
        case _:
            return (node.operand,)


def depth(node: Expression) -> int:
    """The number of levels of the tree. Not recursive, so the tree may have any depth."""
    deepest = 0
    pending = [(node, 1)]
    while pending:
        current, level = pending.pop()
        deepest = max(deepest, level)
        pending.extend((child, level + 1) for child in children(current))
    return deepest


def attributes_of(node: Expression) -> tuple[str, ...]:
    """The names of all attributes in the tree, sorted, each once."""
    names: dict[str, None] = {}
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Attribute):
            names[current.name] = None
        pending.extend(children(current))
    return tuple(sorted(names))


def tree(node: Expression) -> list[object]:
    """The JSON form: nested lists that begin with the node's kind (see `matching.selector`)."""
    return _TREES[type(node)](node)


def _operand(node: Expression) -> list[object]:
    """`tree` of what a test compares: mostly an attribute or a literal."""
    if type(node) is Attribute:
        return ["attr", node.name]
    return ["lit", node.value] if type(node) is Literal else tree(node)


_TREES: Final[dict[type, Callable[[Any], list[object]]]] = {
    Literal: lambda node: ["lit", node.value],
    Attribute: lambda node: ["attr", node.name],
    Negate: lambda node: ["neg", tree(node.operand)],
    Arithmetic: lambda node: ["arith", node.op, tree(node.left), tree(node.right)],
    Comparison: lambda node: ["cmp", node.op, _operand(node.left), _operand(node.right)],
    Between: lambda node: [
        *("between", _operand(node.operand), _operand(node.low), _operand(node.high)),
    ],
    InList: lambda node: ["in", tree(node.operand), [choice.value for choice in node.choices]],
    Like: lambda node: ["like", tree(node.operand), node.pattern, node.escape],
    IsNull: lambda node: ["isnull", tree(node.operand)],
    Not: lambda node: ["not", tree(node.operand)],
    And: lambda node: ["and", *map(tree, node.operands)],
    Or: lambda node: ["or", *map(tree, node.operands)],
}
"""By kind of node. Each new subscription's tree is written to the trace."""
