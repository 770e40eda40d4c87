"""Predicates built without text: ``attr("mag") >= 3`` reads as it would in a selector.

Arithmetic on an `Operand` gives an `Operand`, a test gives a `Predicate`. Whatever the language can
express can be built, and nothing else, since predicates are sent as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from matching.predicate import Predicate, built
from matching.selector import expression as nodes
from matching.selector.expression import Expression, SelectorError
from matching.values import Value

_Side: TypeAlias = "Operand | Value"


def attr(name: str) -> Operand:
    """The attribute of this name, to be compared, used in arithmetic, or taken as a condition.

    Raises SelectorError for an empty name and for a reserved one, which begins with ``$``.
    """
    return Operand(nodes.attribute(name))


def _comparison(op: str) -> Callable[[Operand, _Side], Predicate]:
    """The method that compares an operand by `op`."""
    return lambda self, other: built(nodes.Comparison(op, _node(self), _node(other)))


_Method: TypeAlias = "Callable[[Operand, _Side], Operand]"


def _arithmetic(op: str) -> tuple[_Method, _Method]:
    """The methods of ``operand op other`` and ``other op operand``."""

    def computed(left: _Side, right: _Side) -> Operand:
        return Operand(nodes.Arithmetic(op, _node(left), _node(right)))

    return computed, lambda self, other: computed(other, self)


class Operand:
    """An attribute, or arithmetic on some. Comparing it gives a Predicate.

    All tests and arithmetic raise SelectorError for a value that `check_value` refuses, and for a
    result beyond the limits of a selector.
    """

    __slots__ = ("_node",)
    __hash__ = None  # type: ignore[assignment]  # == builds a predicate

    def __init__(self, node: Expression) -> None:
        self._node = node

    def predicate(self) -> Predicate:
        """A boolean attribute as a condition: true only if its value is TRUE.

        Raises SelectorError for arithmetic.
        """
        if not nodes.is_condition(self._node):
            raise SelectorError("arithmetic is no condition: compare it with something")
        return built(self._node)

    def __repr__(self) -> str:
        return f"Operand({nodes.tree(self._node)!r})"

    def __bool__(self) -> bool:
        raise TypeError("an attribute is not true or false by itself: use & | ~")

    # Tests.

    def __eq__(self, other: _Side) -> Predicate:  # type: ignore[override]
        return self._compare("=", other)

    def __ne__(self, other: _Side) -> Predicate:  # type: ignore[override]
        return self._compare("<>", other)

    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")

    def _compare(self, op: str, other: _Side) -> Predicate:
        return built(nodes.Comparison(op, self._node, _node(other)))

    def between(self, low: _Side, high: _Side) -> Predicate:
        """``BETWEEN low AND high``, bounds included."""
        return built(nodes.Between(self._node, _node(low), _node(high)))

    def isin(self, choices: Iterable[Value]) -> Predicate:
        """``IN (…)``. Raises SelectorError without any value."""
        listed = tuple(nodes.literal(choice) for choice in choices)
        if not listed:
            raise SelectorError("IN needs at least one value")
        return built(nodes.InList(self._node, listed))

    def like(self, pattern: str, escape: str | None = None) -> Predicate:
        """``LIKE pattern``: % is any run of characters, _ any single one.

        `escape` is the escape character; SelectorError if it is not exactly one character.
        """
        for text in (pattern, "" if escape is None else escape):
            nodes.literal(text)
        if not isinstance(pattern, str) or (escape is not None and len(escape) != 1):
            raise SelectorError("LIKE needs a string, and ESCAPE exactly one character")
        return built(nodes.Like(self._node, pattern, escape))

    def is_null(self) -> Predicate:
        """``IS NULL``: the attribute is absent or NULL."""
        return built(nodes.IsNull(self._node))

    def is_not_null(self) -> Predicate:
        """``IS NOT NULL``: the attribute has a value."""
        return built(nodes.Not(nodes.IsNull(self._node)))

    # A boolean attribute as a condition.

    def __and__(self, other: Predicate | Operand) -> Predicate:
        return self.predicate() & _predicate(other)

    def __rand__(self, other: Predicate) -> Predicate:
        return other & self.predicate()

    def __or__(self, other: Predicate | Operand) -> Predicate:
        return self.predicate() | _predicate(other)

    def __ror__(self, other: Predicate) -> Predicate:
        return other | self.predicate()

    def __invert__(self) -> Predicate:
        return ~self.predicate()

    # Arithmetic.

    __add__, __radd__ = _arithmetic("+")
    __sub__, __rsub__ = _arithmetic("-")
    __mul__, __rmul__ = _arithmetic("*")
    __truediv__, __rtruediv__ = _arithmetic("/")

    def __neg__(self) -> Operand:
        return Operand(nodes.negate(self._node))


def _node(side: _Side) -> Expression:
    return side._node if isinstance(side, Operand) else nodes.literal(side)


def _predicate(side: Predicate | Operand) -> Predicate:
    return side.predicate() if isinstance(side, Operand) else side
