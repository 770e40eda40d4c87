"""The tree of a selector's text, by a parser that is independent of the product's.

A subscribe record has the selector's text and its tree, and the analysis judges by the tree. That
the two say the same is checked here: the text is parsed once more, by recursive descent, into the
tree that docs/reference/selectors.md defines for it. Chains of AND and of OR are one node, a
negated number is a literal, and an integer beyond 64 bits is the nearest double.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from canopy.traces.analysis.constants import MAX_DEPTH
from canopy.traces.analysis.selection.trees import INT_MAX, TreeError, parse_tree

TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<sign><>|!=|<=|>=|[-+*/=<>(),])
    | (?P<word>(?:[a-z_]|[^\x00-\x7f\s])(?:[a-z0-9_$.]|[^\x00-\x7f\s])*)
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
KEYWORDS: Final = frozenset(
    ["AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"]
)
COMPARISONS: Final = {op: op for op in ("=", "<>", "<", "<=", ">", ">=")} | {"!=": "<>"}

# How tightly an operand binds at least, loosest first.
ANY, CONJUNCTION, NEGATION, TEST, SUM, PRODUCT = range(6)

Token = tuple[str, str]  # its kind (a keyword or sign is its own kind), its text


class TextError(ValueError):
    """The text is not a selector."""


def is_tree_of(selector: str, tree: str) -> bool:
    """Whether `tree` (JSON) is the tree of the text `selector`.

    The kinds of values count: ``1``, ``1.0`` and ``true`` are different, and so are ``0.0`` and
    ``-0.0``. A text that is not a selector has no tree.
    """
    try:
        return json.dumps(tree_of(selector)) == json.dumps(parse_tree(tree))
    except (TextError, TreeError):
        return False


def tree_of(selector: str) -> Any:
    """The tree of a selector's text. Raises TextError."""
    parser = _Parser(_tokens(selector))
    try:
        tree = parser.expression(ANY)
    except RecursionError:
        raise TextError(f"nested deeper than {MAX_DEPTH} levels") from None
    parser.expect("end")
    return tree


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while not found or found[-1][0] != "end":
        match = TOKEN.match(text, at)
        if match is None:
            raise TextError(f"unexpected character at {at}: {text[at : at + 20]!r}")
        at = match.end()
        kind = match.lastgroup or ""
        word = match[kind]
        if kind == "sign":
            kind = word
        elif kind == "word" and word.isascii() and word.upper() in KEYWORDS:
            kind = word.upper()
        found.append((kind, word))
    return found


def _number(text: str, negative: bool = False) -> list[Any]:
    """The literal of a numeral: -2**63 fits in 64 bits, 2**63 does not."""
    if not text.isdigit() or len(text.lstrip("0")) > 19:  # int() refuses thousands of digits
        return ["lit", -float(text) if negative else float(text)]
    return _integer(-int(text) if negative else int(text))


def _integer(value: int) -> list[Any]:
    return ["lit", value if -INT_MAX - 1 <= value <= INT_MAX else float(value)]


def _negated(tree: list[Any]) -> list[Any]:
    if tree[0] != "lit" or type(tree[1]) not in (int, float):
        return ["neg", tree]
    return _integer(-tree[1]) if type(tree[1]) is int else ["lit", -tree[1]]


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])


class _Parser:
    """A parser of one text. Each method parses the construct that it is named after, and advances
    past it."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def expect(self, kind: str) -> str:
        """Read a token of this kind. Returns its text."""
        found, text = self._tokens[self._at]
        if found != kind:
            raise TextError(f"expected {kind}, not {text!r}")
        self._at += 1
        return text

    def _next(self) -> str:
        return self._tokens[self._at][0]

    def _take(self, *kinds: str) -> str | None:
        """Read the next token if it is of one of these kinds; else None."""
        kind = self._next()
        return self.expect(kind) if kind in kinds else None

    def expression(self, level: int) -> list[Any]:
        """An expression whose operators bind at least as tightly as `level`."""
        if level <= NEGATION and self._take("NOT"):
            left = ["not", self.expression(NEGATION)]
        else:
            left = self._signed()
            while level <= PRODUCT and (op := self._take("*", "/")):
                left = ["arith", op, left, self._signed()]
            while level <= SUM and (op := self._take("+", "-")):
                left = ["arith", op, left, self.expression(PRODUCT)]
            if level <= TEST:
                left = self._test(left)
        if level <= CONJUNCTION:
            left = self._chain("AND", left, NEGATION)
        return self._chain("OR", left, CONJUNCTION) if level == ANY else left

    def _chain(self, joiner: str, first: list[Any], level: int) -> list[Any]:
        parts = [first]
        while self._take(joiner):
            parts.append(self.expression(level))
        if len(parts) == 1:
            return first
        kind = joiner.lower()
        chain: list[Any] = [kind]
        for part in parts:
            chain.extend(part[1:] if part[0] == kind else [part])
        return chain

    def _test(self, left: list[Any]) -> list[Any]:
        """The test of `left` that follows; `left` itself if none does."""
        op = self._take(*COMPARISONS)
        if op:
            return ["cmp", COMPARISONS[op], left, self.expression(SUM)]
        if self._take("IS"):
            negative = self._take("NOT")
            self.expect("NULL")
            tree: list[Any] = ["isnull", left]
        else:
            negative = self._take("NOT")
            if self._take("BETWEEN"):
                low = self.expression(SUM)
                self.expect("AND")
                tree = ["between", left, low, self.expression(SUM)]
            elif self._take("IN"):
                tree = ["in", left, self._choices()]
            elif self._take("LIKE"):
                pattern = _unquoted(self.expect("string"))
                escape = _unquoted(self.expect("string")) if self._take("ESCAPE") else None
                tree = ["like", left, pattern, escape]
            elif negative:
                raise TextError("expected BETWEEN, IN or LIKE after NOT")
            else:
                return left
        return ["not", tree] if negative else tree

    def _choices(self) -> list[Any]:
        self.expect("(")
        choices = [self._choice()]
        while self._take(","):
            choices.append(self._choice())
        self.expect(")")
        return choices

    def _choice(self) -> Any:
        if sign := self._take("+", "-"):
            return _number(self.expect("number"), sign == "-")[1]
        if self._next() in ("number", "string", "TRUE", "FALSE"):
            return self._atom()[1]
        raise TextError("expected a literal in the list")

    def _signed(self) -> list[Any]:
        sign = self._take("+", "-")
        if sign is None:
            return self._atom()
        if sign == "-" and self._next() == "number":
            return _number(self.expect("number"), True)
        inner = self._signed()
        return _negated(inner) if sign == "-" else inner

    def _atom(self) -> list[Any]:
        kind = self._next()
        if kind == "(":
            self.expect("(")
            inner = self.expression(ANY)
            self.expect(")")
            return inner
        if kind not in ("number", "string", "TRUE", "FALSE", "word", "quoted"):
            raise TextError(f"expected a value, not {kind}")
        text = self.expect(kind)
        if kind == "number":
            return _number(text)
        if kind == "string":
            return ["lit", _unquoted(text)]
        if kind in ("TRUE", "FALSE"):
            return ["lit", kind == "TRUE"]
        return ["attr", text if kind == "word" else _unquoted(text)]
