"""The grammar of the selector language for lark: the search condition of SQL-92, as in JMS.

Conditions and terms share one set of rules; `parser` checks which of them may stand where when it
builds a node. An LALR(1) grammar cannot distinguish them, since ``(`` opens both, and the messages
are better. Precedence, loosest first: OR, AND, NOT, tests (comparison, BETWEEN, IN, LIKE, IS; they
do not chain), + -, * /, sign.

The lexer reads keywords as names, and a callback changes their type: this needs neither priorities
nor lookahead, and makes keywords case-insensitive.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

from lark import Lark, Token

from matching.selector.errors import SelectorError
from matching.selector.keywords import (
    KEYWORDS,
    NAME_PATTERN,
    NUMBER_PATTERN,
    QUOTED_NAME_PATTERN,
    STRING_PATTERN,
    keyword,
    wrong_character,
)

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
