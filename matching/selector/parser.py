"""Text to tree: checks the limits, builds the nodes, and checks which node may stand where.

The parser is lark's LALR (0.12 ms for a usual selector, and no recursion whatever the text); it
calls a method of `_Builder` for each rule. The messages for what the grammar itself refuses are
those of `syntax_errors`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Generator
from functools import cache
from sys import intern
from typing import Any, NamedTuple, TypeAlias

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from matching.selector import expression as nodes
from matching.selector.expression import MAX_DEPTH, MAX_TEXT, Expression, Literal, SelectorError
from matching.selector.keywords import (
    KEYWORDS,
    NAME_PATTERN,
    NUMBER_PATTERN,
    QUOTED_NAME_PATTERN,
    STRING_PATTERN,
    keyword,
    wrong_character,
)
from matching.selector.unparse import unparse
from matching.values import is_utf8

# --- messages for text that the grammar refuses: what was expected, and after which token ---
#
# lark reports which tokens would have been accepted, which is no help to a person. The last
# accepted token usually determines what is missing: after an operator a value, after a value a
# comparison.

_VALUE = "a value (a number, a 'string', TRUE, FALSE or an attribute)"
_CONDITION = "a condition such as mag >= 3"

# What is expected after a token, by its type. For types that are not listed it depends on more than
# the last token (`_expected`).
_AFTER = {
    "COMPARISON": _VALUE,
    "SIGN": _VALUE,
    "TIMES": _VALUE,
    "BETWEEN": _VALUE,
    "AND": _CONDITION,
    "OR": _CONDITION,
    "LIKE": "a pattern in 'single quotes'",
    "ESCAPE": "the escape character in 'single quotes'",
    "IN": "a list in parentheses, such as IN ('a', 'b')",
    "COMMA": "a number, a 'string', TRUE or FALSE",
    "IS": "NULL or NOT NULL",
    "NULL": "AND, OR or the end",
}
_VALUES = ("NUMBER", "STRING", "TRUE", "FALSE", "NAME", "QUOTED_NAME")
_OPERANDS = (*_VALUES, "RPAR")


def unexpected_character(text: str, position: int) -> SelectorError:
    """The error for a position where no token begins."""
    character = text[position]
    following = text[position : position + 2]
    if character == "'":
        message = "the string that begins here is not closed: a ' is missing"
    elif character == '"':
        message = 'the quoted name that begins here is not closed: a " is missing'
    elif character in "0123456789." and re.match(r"\.?[0-9]", text[position:]):
        message = "this is no number: a number is written as 12, 1.5 or 2e6, with a space after it"
    elif character == "$":
        message = "a name can not begin with $: such names are reserved"
    elif following in ("&&", "||"):
        message = f"write {'AND' if character == '&' else 'OR'} instead of {following}"
    elif character == "!":
        message = "write NOT for negation and <> for 'not equal'"
    elif character in "{}[];":
        message = f"unexpected character '{character}': only parentheses group"
    else:
        message = f"unexpected character {character!r}"
    return SelectorError(message, text, position)


def unexpected_token(text: str, error: UnexpectedInput, before: list[Token]) -> SelectorError:
    """The error for a token, or an end of the text, that the grammar does not allow there.

    `before` are the tokens that precede it.
    """
    assert isinstance(error, UnexpectedToken), f"lark raised {type(error).__name__}"
    token: Token = error.token
    at_end = token.type == "$END"
    position = len(text.rstrip()) if at_end else token.start_pos or 0
    last = before[-1] if before else None
    hint = _hint(last, token, before)
    if hint is not None:
        return SelectorError(hint, text, position)
    unclosed = _unclosed(before)
    message = f"expected {_expected(error.accepts or set(), token, before)}"
    if last is not None:
        message += f" after {_described(last)}"
    if at_end and unclosed is not None and "RPAR" in error.accepts:
        message += f"; the ( at character {(unclosed.start_pos or 0) + 1} is not closed"
    elif not at_end:
        message += f", not {_described(token)}"
    return SelectorError(message, text, position)


def _expected(accepts: set[str], token: Token, before: list[Token]) -> str:
    """Describe what would be valid in place of `token`; `accepts` are the types that lark
    allows."""
    last = before[-1].type if before else ""
    previous = before[-2].type if len(before) > 1 else ""
    if last == "NOT":
        if previous == "IS":
            return "NULL"
        return "BETWEEN, IN or LIKE" if previous in _OPERANDS else _CONDITION
    if last == "LPAR" and previous == "IN":
        return _AFTER["COMMA"]
    if last in ("", "LPAR"):
        return _CONDITION
    if last in _AFTER:
        return _AFTER[last]
    if "COMMA" in accepts:
        return "a comma or )"
    if "OR" not in accepts and "AND" in accepts:
        return "AND and the upper bound of BETWEEN"
    if "COMPARISON" in accepts and (token.type in _VALUES or "OR" not in accepts):
        return "a comparison"
    ending = ")" if _unclosed(before) is not None else "the end"
    return f"AND, OR or {ending}"


def _hint(last: Token | None, token: Token, before: list[Token]) -> str | None:
    """A message for mistakes that are usual because other languages allow them; else None."""
    kind = token.type
    after = last.type if last is not None else ""
    if after == kind == "COMPARISON":
        if last == token == "=":
            return "write = for equality, not =="
        return f"write one of = <> < <= > >=, not {last}{token}"
    if kind == "COMPARISON" and _in_comparison(before):
        return "comparisons do not chain: write a < b AND b < c"
    if kind == "NULL" and after == "COMPARISON":
        return "nothing compares with NULL: write IS NULL or IS NOT NULL"
    if kind == "QUOTED_NAME" and after in ("LIKE", "ESCAPE"):
        return "a pattern is written in 'single quotes'; \"double quotes\" are for names"
    if kind == "RPAR" and _unclosed(before) is None:
        return "this ) closes nothing"
    return None


def _in_comparison(before: list[Token]) -> bool:
    """Whether the same condition has a comparison before."""
    for token in reversed(before):
        if token.type == "COMPARISON":
            return True
        if token.type not in _OPERANDS or token.type == "RPAR":
            return False
    return False


def _unclosed(before: list[Token]) -> Token | None:
    """The innermost ( that is still open."""
    opened: list[Token] = []
    for token in before:
        if token.type == "LPAR":
            opened.append(token)
        elif token.type == "RPAR" and opened:
            opened.pop()
    return opened[-1] if opened else None


def shorten(written: str) -> str:
    """At most 40 characters of a text, so that a message fits one line."""
    return written if len(written) <= 40 else written[:39] + "…"


def _described(token: Token) -> str:
    """A token as a message refers to it."""
    written = shorten(str(token))
    if token.type == "NAME":
        return f"the attribute '{written}'"
    if token.type == "QUOTED_NAME":
        return f"the attribute {written}"
    if token.type == "STRING":
        return f"the string {written}"
    if token.type == "NUMBER":
        return f"the number {written}"
    if token.type in KEYWORDS:
        return token.type
    return written


# --- the grammar of the selector language for lark: the search condition of SQL-92, as in JMS ---
#
# Conditions and terms share one set of rules; `parser` checks which of them may stand where when it
# builds a node. An LALR(1) grammar cannot distinguish them, since ``(`` opens both, and the
# messages are better. Precedence, loosest first: OR, AND, NOT, tests (comparison, BETWEEN, IN,
# LIKE, IS; they do not chain), + -, * /, sign.
#
# The lexer reads keywords as names, and a callback changes their type: this needs neither
# priorities nor lookahead, and makes keywords case-insensitive.

GRAMMAR = rf"""
start: expression

?expression: conjunction
    | conjunction (OR conjunction)+         -> disjoin
?conjunction: negation
    | negation (AND negation)+              -> conjoin
?negation: test
    | NOT negation                          -> invert
?test: sum
    | sum COMPARISON sum                    -> compare
    | sum NOT? BETWEEN sum AND sum          -> between
    | sum NOT? IN LPAR choices RPAR         -> in_list
    | sum NOT? LIKE STRING (ESCAPE STRING)? -> like
    | sum IS NOT? NULL                      -> is_null
choices: choice (COMMA choice)*
choice: SIGN? NUMBER | STRING | TRUE | FALSE
?sum: product
    | sum SIGN product                      -> arithmetic
?product: signed
    | product TIMES signed                  -> arithmetic
?signed: atom
    | SIGN signed                           -> sign
?atom: LPAR expression RPAR                 -> group
    | NUMBER                                -> number
    | STRING                                -> string
    | (TRUE | FALSE)                        -> boolean
    | NAME                                  -> name
    | QUOTED_NAME                           -> quoted_name

COMPARISON: "=" | "<>" | "!=" | "<=" | ">=" | "<" | ">"
SIGN: "+" | "-"
TIMES: "*" | "/"
LPAR: "("
RPAR: ")"
COMMA: ","
NUMBER: /{NUMBER_PATTERN}/
STRING: /{STRING_PATTERN}/
QUOTED_NAME: /{QUOTED_NAME_PATTERN}/
NAME: /{NAME_PATTERN}/
SPACE: /\s+/
%ignore SPACE
%declare {" ".join(KEYWORDS)}
"""


def _name_or_keyword(token: Token) -> Token:
    """The token with its keyword's type if it is one; SelectorError if it is no valid name."""
    word = keyword(token)
    if word is not None:
        return token.update(type=word)
    index = wrong_character(token)
    if index is not None:
        character = token[index]
        hint = (
            "strings are written in 'single quotes'"
            if unicodedata.category(character) in ("Pi", "Pf", "Ps")
            else 'a name with such characters is written in "double quotes"'
        )
        position = (token.start_pos or 0) + index
        raise SelectorError(f"unexpected character '{character}': {hint}", position=position)
    return token


@cache
def build_parser(builder: Any) -> Lark:
    """The LALR parser that calls `builder`'s method for each rule, without a parse tree between."""
    return Lark(
        GRAMMAR,
        parser="lalr",
        # The basic lexer tries every terminal everywhere, so a keyword in the wrong place is
        # reported as that keyword; the contextual one would call it an unexpected letter.
        lexer="basic",
        transformer=builder,
        lexer_callbacks={"NAME": _name_or_keyword},
        maybe_placeholders=False,
    )


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
    """Refuse text with too deeply nested parentheses, which `depth` cannot count because they make
    no node. Refuse the beginnings of comments in SQL-92 (`--`) and in SQL:1999 (`/*`) as well,
    since JMS has no comments: `n > 1 -- note` would be a difference of two attributes."""
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
