"""LIKE patterns: parsed once, matched without backtracking, and covered by an interval.

``%`` stands for any run of characters and ``_`` for any single one, newlines included; the match is
case-sensitive and covers the whole string (SQL-92). After the escape character, if one is given,
any character stands for itself; a pattern that ends in its escape character matches nothing, as in
SQLite.

A pattern is split into pieces at each ``%``. The first piece is anchored at the beginning and the
last at the end; each piece between is matched at its leftmost position, which leaves the longest
rest, so no decision has to be undone: matching costs one substring search per piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from matching.values import WHOLE_TYPES, Interval, point, prefix_interval

# One character of a piece; None is `_`.
_Piece = tuple[str | None, ...]


def pieces(pattern: str, escape: str | None) -> list[_Piece] | None:
    """The pattern split at its ``%``, at least one piece; None if it can match nothing."""
    out: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                return None
            out[-1].append(escaped)
        elif character == "%":
            # A run of % is equivalent to one: no empty pieces between.
            if len(out) == 1 or out[-1]:
                out.append([])
        else:
            out[-1].append(None if character == "_" else character)
    return [tuple(piece) for piece in out]


def matcher(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """A function that returns whether a whole string matches the pattern."""
    parts = pieces(pattern, escape)
    if parts is None:
        return lambda value: False
    head, tail = _prefix_test(parts[0]), _suffix_test(parts[-1])
    first, last = len(parts[0]), len(parts[-1])
    if len(parts) == 1:
        return lambda value: len(value) == first and head(value)
    middle = [(_finder(piece), len(piece)) for piece in parts[1:-1]]

    def matches(value: str) -> bool:
        end = len(value) - last
        if first > end or not head(value) or not tail(value):
            return False
        position = first
        for find, length in middle:
            position = find(value, position, end)
            if position < 0:
                return False
            position += length
        return True

    return matches


def cover(pattern: str, escape: str | None) -> tuple[tuple[Interval, ...], bool]:
    """(intervals that contain every string that matches, whether they contain no other string)."""
    parts = pieces(pattern, escape)
    if parts is None:
        return (), True
    head = parts[0]
    prefix = ""
    for character in head:
        if character is None:
            break
        prefix += character
    plain = len(prefix) == len(head)
    if plain and len(parts) == 1:
        return (point(prefix),), True
    exact = plain and len(parts) == 2 and not parts[1]
    interval = prefix_interval(prefix) if prefix else WHOLE_TYPES[2]
    return (interval,), exact


def _literal(piece: _Piece) -> str | None:
    return None if None in piece else "".join(c for c in piece if c is not None)


def _expression(piece: _Piece) -> str:
    return "".join("." if c is None else re.escape(c) for c in piece)


def _prefix_test(piece: _Piece) -> Callable[[str], bool]:
    text = _literal(piece)
    if text is not None:
        return lambda value: value.startswith(text)
    compiled = re.compile(_expression(piece), re.DOTALL)
    return lambda value: compiled.match(value) is not None


def _suffix_test(piece: _Piece) -> Callable[[str], bool]:
    text = _literal(piece)
    if text is not None:
        return lambda value: value.endswith(text)
    compiled = re.compile(_expression(piece), re.DOTALL)
    length = len(piece)
    return lambda value: compiled.match(value, len(value) - length) is not None


def _finder(piece: _Piece) -> Callable[[str, int, int], int]:
    """A function (value, start, end): the leftmost position of the piece there, or -1."""
    text = _literal(piece)
    if text is not None:
        return lambda value, start, end: value.find(text, start, end)
    compiled = re.compile(_expression(piece), re.DOTALL)

    def find(value: str, start: int, end: int) -> int:
        found = compiled.search(value, start, end)
        return -1 if found is None else found.start()

    return find
