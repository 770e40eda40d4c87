"""Selectors as Spark columns: the parsed tree becomes SQL with the selector language's semantics.

This is what makes the analysis independent: it uses neither the index nor `matching`. The subscribe
record has the selector's parsed tree as JSON, and here it is translated to expressions that Spark
evaluates over all published events. AND, OR and NOT are Spark's and three-valued; ``terms`` has the
values and their comparison.

Arithmetic uses each operand more than once, so a computed operand is bound to a variable
(`transform(array(x), v -> …)[0]` is Spark's *let*), which keeps the SQL linear in the tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from canopy.traces.analysis.constants import MAX_DEPTH
from canopy.traces.analysis.errors import AnalysisError
from canopy.traces.analysis.verdict.terms import (
    MIRRORED,
    NULL,
    Term,
    column_term,
    compare,
    computed,
    contains,
    is_null,
    like,
    literal,
    negated,
)


class TreeError(AnalysisError):
    """The tree of a subscribe record is not a selector's tree."""


def parse_tree(text: str) -> Any:
    """The tree in a subscribe record. Raises TreeError if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TreeError(f"the selector's tree is not JSON: {error}") from None


def attributes_of(tree: Any) -> Iterator[str]:
    """The names of the attributes in `tree`, with repetitions, in the order of the text."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, list) and node:
            if node[0] == "attr" and len(node) == 2 and isinstance(node[1], str):
                yield node[1]
            elif node[0] == "in":
                todo.append(node[1])  # the choices are plain values
            elif node[0] != "lit":
                todo.extend(reversed(node[1:]))


class Translator:
    """Translates trees to SQL; `column` names the struct (b, i, d, s) of an attribute."""

    def __init__(self, column: Callable[[str], str]) -> None:
        self._column = column
        self._variables = 0
        self._depth = 0

    def predicate(self, tree: Any) -> str:
        """SQL of type BOOLEAN: true, false or NULL (unknown). TreeError for an invalid tree."""
        try:
            return self._condition(tree)
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
            raise TreeError(f"not a selector's tree: {type(error).__name__} {error}") from None
        finally:
            self._depth = 0

    def _condition(self, node: Any) -> str:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TreeError(f"the selector nests deeper than {MAX_DEPTH} levels")
        try:
            return self._condition_of(node)
        finally:
            self._depth -= 1

    def _condition_of(self, node: Any) -> str:
        match node:
            case ["lit", bool(value)]:
                return "TRUE" if value else "FALSE"
            case ["lit", _]:
                return NULL
            case ["attr", str(name)]:
                return f"{self._column(name)}.b"
            case ["cmp", str(op), left, right] if op in MIRRORED:
                return self._term(left, lambda a: self._term(right, lambda b: compare(op, a, b)))
            case ["and" | "or" as word, first, *rest]:
                parts = [self._condition(part) for part in (first, *rest)]
                return f"({f' {word.upper()} '.join(parts)})"
            case ["not", inner]:
                return f"(NOT {self._condition(inner)})"
            case ["between", value, low, high]:
                return self._between(value, low, high)
            case ["in", value, [*choices]]:
                return self._term(value, lambda a: contains(a, choices))
            case ["like", value, str(pattern), escape]:
                return self._term(value, lambda a: like(a, pattern, escape))
            case ["isnull", value]:
                return self._term(value, is_null)
            case _:
                raise TreeError(f"not a condition of the selector language: {str(node)[:80]}")

    def _between(self, value: Any, low: Any, high: Any) -> str:
        def bounded(term: Term) -> str:
            above = self._term(low, lambda bound: compare(">=", term, bound))
            below = self._term(high, lambda bound: compare("<=", term, bound))
            return f"({above} AND {below})"

        return self._term(value, bounded)

    def _term(self, node: Any, body: Callable[[Term], str]) -> str:
        """SQL of `body` applied to the term, which is bound to a variable if it is computed."""
        match node:
            case ["attr", str(name)]:
                return body(column_term(self._column(name)))
            case ["lit", value]:
                return body(literal(value))
            case ["neg", ["lit", int() | float() as value]] if not isinstance(value, bool):
                return body(literal(-value))
            case ["neg", inner]:
                return self._let(self._term(inner, negated), body)
            case ["arith", "+" | "-" | "*" | "/" as op, left, right]:
                return self._let(
                    self._term(left, lambda a: self._term(right, lambda b: computed(op, a, b))),
                    body,
                )
            case _:
                # A condition in place of a value: its result is a boolean.
                return body(Term(b=self._condition(node)))

    def _let(self, struct: str, body: Callable[[Term], str]) -> str:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TreeError(f"the selector nests deeper than {MAX_DEPTH} levels")
        self._variables += 1
        name = f"v{self._variables}"
        text = body(Term(n=f"{name}.n", d=f"{name}.d"))
        self._depth -= 1
        return f"transform(array({struct}), {name} -> {text})[0]"
