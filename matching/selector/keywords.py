"""The words of the language: keywords, what the lexer takes for a name, a number or a string, and
which attribute names need no quotes."""

from __future__ import annotations

import re

KEYWORDS = (
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "IN",
    "LIKE",
    "ESCAPE",
    "IS",
    "NULL",
    "TRUE",
    "FALSE",
)
_KEYWORD_SET = frozenset(KEYWORDS)

# What the lexer takes for one name. Beyond ASCII that is anything but space, so that
# `wrong_character` can point at the character in question ('“' for instance).
_BEYOND_ASCII = r"[^\x00-\x7f\s]"
_INSIDE = rf"(?:[A-Za-z0-9_$]|{_BEYOND_ASCII})"
NAME_PATTERN = rf"(?:[A-Za-z_]|{_BEYOND_ASCII})(?:\.?{_INSIDE})*"
_NAME = re.compile(NAME_PATTERN)

NUMBER_PATTERN = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.])"
STRING_PATTERN = r"'(?:[^']|'')*'"
QUOTED_NAME_PATTERN = r'"(?:[^"]|"")*"'


def keyword(word: str) -> str | None:
    """The keyword that `word` spells, in upper or lower case; None if it is no keyword."""
    # Only ASCII: the dotless i (U+0131) becomes I in upper case, too, but no keyword contains it.
    upper = word.upper() if word.isascii() else ""
    return upper if upper in _KEYWORD_SET else None


def wrong_character(name: str) -> int | None:
    """The index of the first character that an unquoted name cannot contain; None if there is none.

    A name is a Unicode identifier (UAX 31: XID) that may also contain ``$``, and dots between
    parts; the parts after a dot may begin with a digit (``disk.0.used``).
    """
    start = True
    for index, character in enumerate(name):
        if character in ".$" and not start:
            continue
        if not (character if start else "_" + character).isidentifier():
            return index
        start = False
    return None


def is_plain_name(name: str) -> bool:
    """Whether a selector may contain the name without quotes."""
    return (
        _NAME.fullmatch(name) is not None
        and keyword(name) is None
        and wrong_character(name) is None
    )
