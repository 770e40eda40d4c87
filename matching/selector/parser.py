"""Text to tree: checks the limits, builds the nodes, and checks which node may stand where.

The parser is lark's LALR (0.12 ms for a usual selector, and no recursion whatever the text); it
calls a method of `_Builder` for each rule. The messages for what the grammar itself refuses are
those of `syntax_errors`.
"""

from __future__ import annotations

from collections.abc import Generator
from sys import intern
from typing import Any, NamedTuple, TypeAlias

from lark import Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput

from matching.selector import expression as nodes
from matching.selector.errors import SelectorError
from matching.selector.expression import MAX_DEPTH, MAX_TEXT, Expression, Literal
from matching.selector.grammar import build_parser
from matching.selector.syntax_errors import shorten, unexpected_character, unexpected_token
from matching.selector.unparse import unparse
from matching.values import is_utf8


class _Part(NamedTuple):
    """A node with its position in the text, and its numeral if it is nothing but a number."""

    node: Expression
    start: int
    end: int
    numeral: Token | None = None


_Children: TypeAlias = list["_Part | Token"]


COMMENTS = {
    "--": "-- begins a comment in SQL, and a selector has none: leave it out, or write - -x for "
    "the negation of a negation",
    "/*": "/* begins a comment in SQL, and a selector has none: leave it out",
}

STEP = 256
"""Tokens of one step: 4 ms (measured)."""


def parse(text: str) -> Expression:
    """The tree of a selector's text. Raises SelectorError, and nothing else, for any string."""
    steps = parse_in_steps(text)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            tree: Expression = end.value
            return tree


def parse_in_steps(text: str) -> Generator[None, None, Expression]:
    """The same with a pause after every `STEP` tokens; returns the tree."""
    if not isinstance(text, str):
        raise TypeError(f"a selector is a str, not {type(text).__name__}")
    if not is_utf8(text):
        raise SelectorError("the text has a lone surrogate", text, _first_surrogate(text))
    if len(text) > MAX_TEXT or len(text.encode()) > MAX_TEXT:
        raise SelectorError(
            f"the selector is longer than {MAX_TEXT} bytes: use IN (…) for lists of values, or "
            "split it into several subscriptions",
            text,
            MAX_TEXT,
        )
    if not text.strip():
        raise SelectorError("the selector is empty: write a condition such as mag >= 3", text)
    _check_outside_quotes(text)
    parser = build_parser(_BUILDER).parse_interactive(text)
    last: Token | None = None
    try:
        for number, token in enumerate(parser.iter_parse(), 1):
            last = token
            if number % STEP == 0:
                yield
        node: Expression = parser.feed_eof(last)  # type: ignore[no-untyped-call]
    except SelectorError as error:
        raise SelectorError(error.message, text, error.position) from None
    except UnexpectedCharacters as error:
        raise unexpected_character(text, error.pos_in_stream or 0) from None
    except UnexpectedInput as error:
        error.interactive_parser = parser  # which knows what it would have accepted
        raise unexpected_token(text, error, _tokens_before(text, error)) from None
    if nodes.depth(node) > MAX_DEPTH:
        raise SelectorError(
            f"the selector is nested more than {MAX_DEPTH} levels deep: remove needless NOTs and "
            "parentheses",
            text,
        )
    return node


def prepare() -> None:
    """Build the parser, which the first selector otherwise does."""
    build_parser(_BUILDER)


def _tokens_before(text: str, error: UnexpectedInput) -> list[Token]:
    """The tokens before the one that was refused."""
    token = getattr(error, "token", None)
    if token is not None and token.type != "$END":
        text = text[: token.start_pos]
    return list(build_parser(_BUILDER).lex(text))


def _first_surrogate(text: str) -> int:
    return next(i for i, c in enumerate(text) if 0xD800 <= ord(c) <= 0xDFFF)


def _check_outside_quotes(text: str) -> None:
    """Refuse text with too deeply nested parentheses: they make no node, so `depth` cannot. And
    what begins a comment in SQL-92 (`--`) and in SQL:1999 (`/*`), of which JMS has none: `n > 1 --
    note` would be a difference of two attributes."""
    level = 0
    quote = ""
    for index, character in enumerate(text):
        if quote:
            if character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character == "(":
            level += 1
            if level > MAX_DEPTH:
                raise SelectorError(
                    f"parentheses are nested more than {MAX_DEPTH} levels deep", text, index
                )
        elif character == ")":
            level -= 1
        elif character in "-/" and text[index : index + 2] in COMMENTS:
            raise SelectorError(COMMENTS[text[index : index + 2]], text, index)


def _span(children: _Children) -> tuple[int, int]:
    return _start(children[0]), _end(children[-1])


def _start(item: _Part | Token) -> int:
    return item.start if isinstance(item, _Part) else item.start_pos or 0


def _end(item: _Part | Token) -> int:
    return item.end if isinstance(item, _Part) else item.end_pos or 0


def _parts(children: _Children) -> list[_Part]:
    return [child for child in children if isinstance(child, _Part)]


def _has(children: _Children, kind: str) -> bool:
    return any(isinstance(child, Token) and child.type == kind for child in children)


def _condition(part: _Part) -> Expression:
    if not nodes.is_condition(part.node):
        raise SelectorError(
            f"expected a comparison after {shorten(unparse(part.node))}", position=part.end
        )
    return part.node


def _term(part: _Part) -> Expression:
    if not nodes.is_term(part.node):
        raise SelectorError(
            "expected a value here, but this is a condition: conditions are joined by AND and OR, "
            "not compared or calculated with",
            position=part.start,
        )
    return part.node


def _unquote(token: Token) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


def _number(token: Token, sign: int = 1) -> Literal:
    """The literal of a numeral with its sign: -2**63 fits in 64 bits, 2**63 does not."""
    position = token.start_pos or 0
    digits = token.lstrip("0") or "0"
    try:
        # Python refuses to parse integers of more than 4,300 digits; beyond 64 bits the nearest
        # float is used anyway.
        exact = token.isdigit() and len(digits) < 20
        return nodes.literal(sign * (int(digits) if exact else float(token)))
    except SelectorError:
        raise SelectorError(
            "the number is too large: infinities are no values", position=position
        ) from None


class _Builder(Transformer[Token, _Part]):
    """One method per rule of the grammar."""

    def start(self, children: list[_Part]) -> Expression:
        return _condition(children[0])

    def disjoin(self, children: _Children) -> _Part:
        return _Part(nodes.disjoin(map(_condition, _parts(children))), *_span(children))

    def conjoin(self, children: _Children) -> _Part:
        return _Part(nodes.conjoin(map(_condition, _parts(children))), *_span(children))

    def invert(self, children: _Children) -> _Part:
        return _Part(nodes.Not(_condition(_parts(children)[0])), *_span(children))

    def compare(self, children: _Children) -> _Part:
        left, right = _parts(children)
        written = intern(str(children[1]))  # selectors are many: one string for all of them
        op = "<>" if written == "!=" else written
        return _Part(nodes.Comparison(op, _term(left), _term(right)), *_span(children))

    def between(self, children: _Children) -> _Part:
        operand, low, high = map(_term, _parts(children))
        return _with_not(nodes.Between(operand, low, high), children)

    def in_list(self, children: list[Any]) -> _Part:
        # The rule ends in LPAR choices RPAR; `choices` below has made a tuple of them.
        node = nodes.InList(_term(children[0]), children[-2])
        return _with_not(node, children)

    def choices(self, children: list[Literal | Token]) -> tuple[Literal, ...]:
        return tuple(child for child in children if isinstance(child, Literal))

    def choice(self, children: list[Token]) -> Literal:
        token = children[-1]
        if token.type == "NUMBER":
            return _number(token, -1 if children[0] == "-" else 1)
        if token.type == "STRING":
            return nodes.literal(_unquote(token))
        return nodes.TRUE if token.type == "TRUE" else nodes.FALSE

    def like(self, children: _Children) -> _Part:
        operand = _term(_parts(children)[0])
        strings = [c for c in children if isinstance(c, Token) and c.type == "STRING"]
        escape = None
        if len(strings) == 2:
            escape = _unquote(strings[1])
            if len(escape) != 1:
                raise SelectorError(
                    "the ESCAPE character must be exactly one character",
                    position=_start(strings[1]),
                )
        return _with_not(nodes.Like(operand, _unquote(strings[0]), escape), children)

    def is_null(self, children: _Children) -> _Part:
        return _with_not(nodes.IsNull(_term(_parts(children)[0])), children)

    def arithmetic(self, children: _Children) -> _Part:
        left, right = _parts(children)
        node = nodes.Arithmetic(str(children[1]), _term(left), _term(right))
        return _Part(node, *_span(children))

    def sign(self, children: _Children) -> _Part:
        part = _parts(children)[0]
        operand = _term(part)
        if children[0] == "-":
            operand = _number(part.numeral, -1) if part.numeral else nodes.negate(operand)
        return _Part(operand, *_span(children))

    def group(self, children: _Children) -> _Part:
        return _Part(_parts(children)[0].node, *_span(children))

    def number(self, children: list[Token]) -> _Part:
        return _Part(_number(children[0]), *_span([*children]), numeral=children[0])

    def string(self, children: list[Token]) -> _Part:
        return _Part(nodes.literal(_unquote(children[0])), *_span([*children]))

    def boolean(self, children: list[Token]) -> _Part:
        node = nodes.TRUE if children[0].type == "TRUE" else nodes.FALSE
        return _Part(node, *_span([*children]))

    def name(self, children: list[Token]) -> _Part:
        return _named(str(children[0]), children[0])

    def quoted_name(self, children: list[Token]) -> _Part:
        return _named(_unquote(children[0]), children[0])


def _with_not(node: Expression, children: _Children) -> _Part:
    return _Part(nodes.Not(node) if _has(children, "NOT") else node, *_span(children))


def _named(name: str, token: Token) -> _Part:
    try:
        node = nodes.attribute(name)
    except SelectorError as error:
        raise SelectorError(error.message, position=token.start_pos or 0) from None
    return _Part(node, *_span([token]))


_BUILDER = _Builder()
