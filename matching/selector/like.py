"""LIKE patterns: parsed once, matched without backtracking, and bounded by an interval.

``%`` stands for any run of characters and ``_`` for any one, newlines included; the match is
case-sensitive and covers the whole string (SQL-92). After the escape character, if one is named,
any character stands for itself; a pattern that ends in its escape character matches nothing, as in
SQLite.

A pattern is a list of pieces between the ``%``. The first is anchored at the beginning and the last
at the end; each piece between is taken at its leftmost place, which leaves the most for the rest,
so no choice is ever taken back: time is that of a substring search, whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from matching.values import WHOLE_TYPES, Interval, point, prefix_interval

# One character of a piece; None is `_`.
_Piece = tuple[str | None, ...]


def pieces(pattern: str, escape: str | None) -> list[_Piece] | None:
    """The pattern cut at its ``%``: always at least one piece; None if it can match nothing."""
    out: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                return None
            out[-1].append(escaped)
        elif character == "%":
            # A run of % is one %: no empty piece between.
            if len(out) == 1 or out[-1]:
                out.append([])
        else:
            out[-1].append(None if character == "_" else character)
    return [tuple(piece) for piece in out]


def matcher(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """A function that tells whether a string is of the pattern."""
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
    """Intervals that hold every string of the pattern, and whether they hold nothing else."""
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
    """The leftmost place of the piece within value[start:end], or -1."""
    text = _literal(piece)
    if text is not None:
        return lambda value, start, end: value.find(text, start, end)
    compiled = re.compile(_expression(piece), re.DOTALL)

    def find(value: str, start: int, end: int) -> int:
        found = compiled.search(value, start, end)
        return -1 if found is None else found.start()

    return find
