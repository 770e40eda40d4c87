"""A compiled selector: the same tree as text, as JSON, as a function, and as its conjunctions.

What exists is within all limits: they are checked once, when a selector is compiled or a predicate
is built, so that nothing that comes later (a node that receives the text, the index, Spark) can
meet one that is too deep or too large.
"""

from __future__ import annotations

from functools import lru_cache

from matching.conjunction import Conjunction
from matching.errors import SelectorError
from matching.evaluate import ConditionFunction, Verdict, condition
from matching.explain import Explanation, explain
from matching.expression import (
    MAX_DEPTH,
    Expression,
    Not,
    attributes_of,
    conjoin,
    depth,
    disjoin,
    tree,
)
from matching.normal import MAX_CONJUNCTIONS, count, drafts, negation_normal
from matching.parser import MAX_TEXT, parse
from matching.unparse import unparse
from matching.values import Attributes

# Compiled selectors kept by text. A node compiles a selector when it is typed, registered and
# rechecked; a thousand different ones in a short time is already a busy node. Wild guess.
CACHED_SELECTORS = 1024


class Predicate:
    """A condition over the attributes of an event; immutable, equal by its tree.

    Made by `compile_selector`, by `attr`, or from others by ``&``, ``|`` and ``~``.
    """

    __slots__ = ("_attributes", "_conjunctions", "_expression", "_function", "_text")

    def __init__(
        self,
        expression: Expression,
        text: str | None = None,
        conjunctions: tuple[Conjunction, ...] | None = None,
    ) -> None:
        """For this package: wraps a tree that is known to be within the limits."""
        self._expression = expression
        self._text = text
        self._attributes: tuple[str, ...] | None = None
        self._conjunctions = conjunctions
        self._function: ConditionFunction | None = None

    @property
    def text(self) -> str:
        """The selector as it was written; canonical text if it was not."""
        if self._text is None:
            self._text = unparse(self._expression)
        return self._text

    @property
    def expression(self) -> Expression:
        """The parsed tree."""
        return self._expression

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes used, sorted."""
        if self._attributes is None:
            self._attributes = attributes_of(self._expression)
        return self._attributes

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """The disjunctive normal form: is true exactly when one of them is.

        At most 1,024; empty for a predicate that can never be true.
        """
        if self._conjunctions is None:
            normal = negation_normal(self._expression)
            self._conjunctions = tuple(Conjunction(draft) for draft in drafts(normal))
        return self._conjunctions

    def tree(self) -> list[object]:
        """The tree as nested lists that JSON can carry (the forms are in `matching`'s manual)."""
        return tree(self._expression)

    def evaluate(self, attributes: Attributes) -> Verdict:
        """True, False, or None for unknown."""
        if self._function is None:
            self._function = condition(self._expression)
        return self._function(attributes)

    def matches(self, attributes: Attributes) -> bool:
        """Whether the predicate is true; unknown does not match."""
        return self.evaluate(attributes) is True

    def explain(self, attributes: Attributes) -> Explanation:
        """The verdict on every part, with the values seen."""
        return explain(self._expression, attributes)

    def __and__(self, other: Predicate) -> Predicate:
        if not isinstance(other, Predicate):
            return NotImplemented
        return built(conjoin((self._expression, other._expression)))

    def __or__(self, other: Predicate) -> Predicate:
        if not isinstance(other, Predicate):
            return NotImplemented
        return built(disjoin((self._expression, other._expression)))

    def __invert__(self) -> Predicate:
        return built(Not(self._expression))

    def __bool__(self) -> bool:
        raise TypeError("a predicate is not true or false by itself: use & | ~, or matches()")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predicate) and self._expression == other._expression

    def __hash__(self) -> int:
        return hash(self._expression)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Predicate({self.text!r})"


def built(expression: Expression) -> Predicate:
    """A predicate from a tree without text. Raises SelectorError beyond the limits."""
    if depth(expression) > MAX_DEPTH:
        raise SelectorError(f"the predicate is nested more than {MAX_DEPTH} levels deep")
    text = unparse(expression)
    if len(text.encode()) > MAX_TEXT:
        raise SelectorError(f"the predicate's text is longer than {MAX_TEXT} bytes")
    _check_normal_form(expression, text)
    return Predicate(expression, text)


@lru_cache(maxsize=CACHED_SELECTORS)
def compile_selector(text: str) -> Predicate:
    """The predicate of a selector's text.

    Raises SelectorError (message, text, position, `caret()`) for text that is no selector, longer
    than 16 KiB, nested deeper than 128 levels, or an OR of more than 1,024 conjunctions. The last
    1,024 results are kept.
    """
    expression = parse(text)
    _check_normal_form(expression, text)
    return Predicate(expression, text)


def _check_normal_form(expression: Expression, text: str) -> None:
    """Refuse what is small as text but large, or not to be sent, as conjunctions."""
    normal = negation_normal(expression)
    conjunctions = count(normal)
    if conjunctions > MAX_CONJUNCTIONS:
        many = f"{conjunctions:,}" if conjunctions < 10**12 else "more than a million million"
        raise SelectorError(
            f"the selector is an OR of {many} conjunctions, and {MAX_CONJUNCTIONS:,} are allowed "
            "(ORs that are joined by AND multiply): use IN (…) instead of OR between values of one "
            "attribute, or split it into several subscriptions",
            text,
        )
    # Each conjunction has every atom at most once, so this bounds all of them: any of them can be
    # sent as text and compiled again.
    if len(unparse(normal).encode()) > MAX_TEXT or depth(normal) > MAX_DEPTH:
        raise SelectorError(
            "the selector is too large when written out in normal form: shorten it, or split it "
            "into several subscriptions",
            text,
        )
