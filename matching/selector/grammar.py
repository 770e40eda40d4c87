"""The grammar of the selector language and its tables (SQL-92's search condition, JMS's core).

One grammar for conditions and terms: what may stand where is checked when the node is built
(`parser`), since ``(`` can open either and LALR(1) has to decide before it knows; and the errors
are better. Binding, loosest first: OR, AND, NOT, tests (comparison, BETWEEN, IN, LIKE, IS; they do
not chain), + -, * /, sign.

Keywords are names to the lexer and are told apart by a callback, so that they need no priorities
and no lookahead, and any case will do.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

from lark import Lark, Token

from matching.selector.errors import SelectorError
from matching.selector.keywords import KEYWORDS, NAME_PATTERN, keyword, wrong_character

# Terminals that begin with _ leave no trace in the tree; the others carry positions.
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
NUMBER: /(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])/
STRING: /'(?:[^']|'')*'/
QUOTED_NAME: /"(?:[^"]|"")*"/
NAME: /{NAME_PATTERN}/
SPACE: /\s+/
%ignore SPACE
%declare {" ".join(KEYWORDS)}
"""


def _name(token: Token) -> Token:
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
def parser(builder: Any) -> Lark:
    """The LALR parser that builds its nodes with `builder`'s methods, without a tree between."""
    return Lark(
        GRAMMAR,
        parser="lalr",
        # The basic lexer tries every terminal everywhere, so a keyword in the wrong place is
        # reported as that keyword; the contextual one would call it an unexpected letter.
        lexer="basic",
        transformer=builder,
        lexer_callbacks={"NAME": _name},
        maybe_placeholders=False,
    )
