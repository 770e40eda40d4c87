"""Messages for text that the grammar refuses: what was expected, and after which token.

lark reports which tokens would have been accepted, which is no help to a person. The last accepted
token usually determines what is missing: after an operator a value, after a value a comparison.
"""

from __future__ import annotations

import re

from lark import Token
from lark.exceptions import UnexpectedInput, UnexpectedToken

from matching.selector.errors import SelectorError
from matching.selector.keywords import KEYWORDS

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
    """What would have been right instead of `token`; `accepts` are the types that lark allows."""
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
