"""A compiled selector: one tree as text, as JSON, as a function, and as its conjunctions.

The limits (length, depth, conjunctions) are checked once, when a selector is compiled or a
predicate is built, so no later user (a node that receives the text, the index, Spark) can meet a
predicate that is too deep or too large.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from matching.conjunction import Conjunction
from matching.constraint import Constraint, comparing
from matching.normal_form import (
    MAX_CONJUNCTIONS,
    count_products,
    negation_normal_form,
    plain_products,
    products,
)
from matching.selector.evaluate import ConditionFunction, Verdict, condition
from matching.selector.explain import Explanation, explain
from matching.selector.expression import (
    MAX_DEPTH,
    MAX_TEXT,
    Expression,
    Not,
    SelectorError,
    attributes_of,
    conjoin,
    depth,
    disjoin,
    tree,
)
from matching.selector.truth import Truth, is_true, truth_of, truth_of_all
from matching.selector.unparse import unparse
from matching.values import Attributes

if TYPE_CHECKING:
    from matching.selector.shapes import PlainTerm


# Compiled selectors that are cached by text, the oldest dropped first. A node compiles a selector
# when it is entered, registered and rechecked. Not measured; would be measured by the number of
# distinct selectors that a busy node compiles within a lease.
CACHED_SELECTORS = 1024

JSON: Final = msgspec.json.Encoder().encode

_cached: OrderedDict[str, Predicate] = OrderedDict()  # in the order in which they were compiled


class Predicate:
    """A condition over the attributes of an event. Immutable; equal if the trees are equal.

    Made by `compile_selector`, by comparing an `attr`, or from others by ``&``, ``|`` and ``~``.
    """

    __slots__ = (
        *("_attributes", "_conjunctions", "_expression", "_function", "_tests", "_text", "_truth"),
    )

    def __init__(
        self,
        expression: Expression | None,
        text: str | None = None,
        conjunctions: tuple[Conjunction, ...] | None = None,
        tests: tuple[Constraint, ...] = (),
    ) -> None:
        """For this package only: the caller guarantees that the tree is within the limits.

        Arguments that are not given are derived: `text` and `conjunctions` from the tree, and the
        tree from the text when it is first used. In the latter case the condition has to be an AND
        of `tests`.
        """
        self._expression = expression
        self._text = text
        self._attributes: tuple[str, ...] | None = None
        self._conjunctions = conjunctions
        self._function: ConditionFunction | None = None
        self._truth: Truth | None = None
        self._tests = tests

    @classmethod
    def of(cls, part: Conjunction | Constraint) -> Predicate:
        """The predicate that one conjunction or constraint of another predicate is by itself.

        Its text is canonical and compiles to an equal predicate. A conjunction given is the only
        one of the result, the same object.
        """
        return cls(part.expression, None, (part,) if isinstance(part, Conjunction) else None)

    @property
    def text(self) -> str:
        """The selector as it was written; canonical text for a predicate built without text."""
        if self._text is None:
            self._text = unparse(self.expression)
        return self._text

    @property
    def expression(self) -> Expression:
        """The selector's parsed tree, before it is brought into normal form."""
        if self._expression is None:
            self._expression = _parse(self.text)
        return self._expression

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes used, sorted."""
        if self._attributes is None:
            self._attributes = attributes_of(self.expression)
        return self._attributes

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """The disjunctive normal form: the predicate is true exactly when one of these is.

        At most `MAX_CONJUNCTIONS`; empty for a predicate that can never be true.
        """
        if self._conjunctions is None:
            found = plain_products(self.expression)
            if found is None:
                found = products(negation_normal_form(self.expression))
            self._conjunctions = tuple(Conjunction(*product) for product in found)
        return self._conjunctions

    def tree(self) -> list[object]:
        """The tree as nested lists that JSON can carry; `matching.selector` lists the forms."""
        trees = [test.tree() for test in self._tests]
        if not trees:
            return tree(self.expression)
        return trees[0] if len(trees) == 1 else ["and", *trees]

    def tree_text(self) -> str:
        """`tree` as JSON text."""
        return JSON(self.tree()).decode()

    def evaluate(self, attributes: Attributes) -> Verdict:
        """The verdict on an event: True, False, or None for unknown."""
        if self._function is None:
            self._function = condition(self.expression)
        return self._function(attributes)

    @property
    def truth(self) -> Truth:
        """The predicate as the tables of `is_true`, for who looks at very many."""
        if self._truth is None:
            plain = [one for test in self._tests for one in test.compared()]
            self._truth = truth_of_all(plain) if plain else truth_of(self.expression)
        return self._truth

    def matches(self, attributes: Attributes) -> bool:
        """Whether the predicate is true; unknown does not match."""
        return is_true(self._truth or self.truth, attributes)

    def explain(self, attributes: Attributes) -> Explanation:
        """The verdict on every part of the predicate, with the event's values."""
        return explain(self.expression, attributes)

    def __and__(self, other: Predicate) -> Predicate:
        if not isinstance(other, Predicate):
            return NotImplemented
        return built(conjoin((self.expression, other.expression)))

    def __or__(self, other: Predicate) -> Predicate:
        if not isinstance(other, Predicate):
            return NotImplemented
        return built(disjoin((self.expression, other.expression)))

    def __invert__(self) -> Predicate:
        return built(Not(self.expression))

    def __bool__(self) -> bool:
        raise TypeError("a predicate is not true or false by itself: use & | ~, or matches()")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predicate) and self.expression == other.expression

    def __hash__(self) -> int:
        return hash(self.expression)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Predicate({self.text!r})"


def built(expression: Expression) -> Predicate:
    """The predicate of a tree that was built without text. SelectorError beyond the limits."""
    if depth(expression) > MAX_DEPTH:
        raise SelectorError(f"the predicate is nested more than {MAX_DEPTH} levels deep")
    text = unparse(expression)
    if len(text.encode()) > MAX_TEXT:
        raise SelectorError(f"the predicate's text is longer than {MAX_TEXT} bytes")
    _check_normal_form(expression, text)
    return Predicate(expression, text)


def compile_selector(text: str) -> Predicate:
    """The predicate of a selector's text.

    Raises SelectorError (message, text, position, `caret()`) for text that is no selector, longer
    than 16 KiB (`MAX_TEXT`), nested deeper than 128 levels (`MAX_DEPTH`), or an OR of more than
    1,024 conjunctions (`MAX_CONJUNCTIONS`). The results for the last 1,024 texts are cached.
    """
    found = _cached.get(text)
    if found is None:
        from matching.selector.shapes import read  # with the grammar: 0.1 s to load

        what = read(text)
        if not isinstance(what, list):
            found = _predicate(what, text)
        else:
            found = _plain(what, text)
            if found is None:
                found = _predicate(_parse(text), text)
        _keep(found)
    return found


def same_selector(one: str, other: str) -> bool:
    """Whether two texts are the same selector, as far as their trees show it; "" matches all."""
    if one == other or not one or not other:
        return one == other
    try:
        return compile_selector(one) == compile_selector(other)
    except SelectorError:
        return False


def _parse(text: str) -> Expression:
    from matching.selector.shapes import parse

    return parse(text)


def _plain(terms: list[PlainTerm], text: str) -> Predicate | None:
    """The predicate of a text that is an AND of these; None if it can never be true."""
    tests = [test for term in terms if (test := comparing(*term)) is not None]
    if len(tests) < len(terms):
        return None
    constraints = {test.attribute: test for test in tests}
    if len(constraints) < len(tests):
        constraints.clear()
        for test in {id(test): test for test in tests}.values():  # those of equal terms are shared
            before = constraints.get(test.attribute)
            constraint = test if before is None else before.meet(test)
            if constraint is None:
                return None
            constraints[test.attribute] = constraint
    return Predicate(None, text, (Conjunction(constraints),), tuple(tests))


def compile_in_steps(text: str) -> Generator[None, None, None]:
    """Compile a selector, its conjunctions included, with a pause after every few milliseconds;
    then `compile_selector` has it in its cache. For a program that must not stand still meanwhile:
    a text of 16 KiB takes a tenth of a second. Raises as `compile_selector` does."""
    if text not in _cached:
        from matching.selector.shapes import parse_in_steps

        expression = yield from parse_in_steps(text)
        yield
        predicate = _predicate(expression, text)
        yield
        _ = predicate.conjunctions
        _keep(predicate)


def _predicate(expression: Expression, text: str) -> Predicate:
    """The predicate of a text with this tree. SelectorError beyond the limits."""
    found = plain_products(expression) if len(text) <= MAX_TEXT // 8 else None
    if found is not None:  # no larger than its text, give or take spaces and the form of numbers
        return Predicate(expression, text, tuple(Conjunction(*product) for product in found))
    _check_normal_form(expression, text)
    return Predicate(expression, text)


def _keep(predicate: Predicate) -> Predicate:
    """Put a predicate with text into the cache, and return it."""
    _cached[predicate.text] = predicate
    if len(_cached) > CACHED_SELECTORS:
        _cached.popitem(last=False)
    return predicate


def _check_normal_form(expression: Expression, text: str) -> None:
    """Raise SelectorError for a tree with too many conjunctions, or with some that are too long or
    too deep to be sent as text, however short the tree's own text is."""
    normal = negation_normal_form(expression)
    conjunctions = count_products(normal)
    if conjunctions > MAX_CONJUNCTIONS:
        many = f"{conjunctions:,}" if conjunctions < 10**12 else "more than a million million"
        raise SelectorError(
            f"the selector is an OR of {many} conjunctions, and {MAX_CONJUNCTIONS:,} are allowed "
            "(ORs that are joined by AND multiply): use IN (…) instead of OR between values of one "
            "attribute, or split it into several subscriptions",
            text,
        )
    # A conjunction has each atom of the normal form at most once, so this bounds all of them: each
    # can be sent as text and compiled again.
    if len(unparse(normal).encode()) > MAX_TEXT or depth(normal) > MAX_DEPTH:
        raise SelectorError(
            "the selector is too large when written out in normal form: shorten it, or split it "
            "into several subscriptions",
            text,
        )


# --- one predicate on a batch of events: each distinct value of an attribute is tested once ---
#
# An index finds which of many predicates are true of an event. Where there is one predicate, and
# many events whose values repeat, this is quicker.

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
