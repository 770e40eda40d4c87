"""Values of the selector language in Spark's SQL: one expression per type, and their operations.

Spark's own rules are not the language's (it would compare '10' with 9 by a cast), so every term is
translated into one expression *per type*, of which at most one is not NULL for an event:

    b BOOLEAN · i BIGINT (an integer of the event) · n DECIMAL(38,0) (an integer that was
    computed) · d DOUBLE · s STRING

A comparison compares only what has one type, so that everything else is NULL, which is SQL's
*unknown*. Integers meet doubles exactly, by comparing with the double's floor or ceiling. Strings
compare by their UTF-8 bytes, which is the order of code points. LIKE becomes a regular expression
of atomic groups, without default escape, that cannot backtrack exponentially.

Exact, with one bound: an integer that is *computed* has at most 38 digits (beyond: NULL).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

NULL: Final = "CAST(NULL AS BOOLEAN)"
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
LARGEST: Final = "1.7976931348623157E308D"  # IEEE 754: the largest finite double


@dataclass(frozen=True)
class Term:
    """A value in SQL: per type an expression that is NULL unless the value has that type."""

    b: str | None = None
    i: str | None = None
    n: str | None = None
    d: str | None = None
    s: str | None = None
    literal: int | float | None = None  # set for numeric literals of the selector

    def integer(self) -> str | None:
        """The value as an exact DECIMAL(38,0) if it is an integer."""
        parts = [f"CAST({self.i} AS DECIMAL(38,0))"] if self.i else []
        return first_value([*parts, *([self.n] if self.n else [])])

    def number(self) -> str | None:
        """The value as a DOUBLE if it is a number."""
        whole = self.integer()
        parts = [self.d] if self.d else []
        return first_value([*parts, *([f"CAST({whole} AS DOUBLE)"] if whole else [])])


def first_value(parts: list[str]) -> str | None:
    """The first of these expressions that is not NULL."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else f"COALESCE({', '.join(parts)})"


def column_term(column: str) -> Term:
    """The term of an attribute, whose values are in the struct `column` (b, i, d, s)."""
    return Term(b=f"{column}.b", i=f"{column}.i", d=f"{column}.d", s=f"{column}.s")


def text_literal(text: str) -> str:
    """A SQL string literal. Whatever is no ASCII letter or digit is written as a code point."""
    parts = []
    for character in text:
        code = ord(character)
        if character.isascii() and (character.isalnum() or character == " "):
            parts.append(character)
        else:
            parts.append(f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}")
    return f"'{''.join(parts)}'"


def _long(value: int) -> str:
    return f"{value}L"


def _double(value: float) -> str:
    return f"{value + 0.0!r}D"  # adding zero turns -0.0 into 0.0


def literal(value: object) -> Term:
    """The term of a literal; an empty term for anything that is not a value of the language."""
    match value:
        case bool():
            return Term(b="TRUE" if value else "FALSE")
        case int() if INT_MIN <= value <= INT_MAX:
            return Term(i=_long(value), literal=value)
        case int():
            wide = f"CAST({value}BD AS DECIMAL(38,0))" if abs(value) < 10**38 else None
            return Term(n=wide, literal=value if wide else None)
        case float() if math.isfinite(value):
            return Term(d=_double(value), literal=value)
        case str():
            return Term(s=text_literal(value))
        case _:
            return Term()


def negated(term: Term) -> str:
    """SQL struct (n, d) of the number with the other sign."""
    whole, real = term.integer(), term.d
    return _numbers(f"-({whole})" if whole else None, f"-({real})" if real else None)


def computed(op: str, left: Term, right: Term) -> str:
    """SQL struct (n, d) of ``left op right``: exact between integers, else finite doubles."""
    a, b = left.integer(), right.integer()
    whole = None
    if a and b:
        whole = f"({a}) {op} ({b})"
        if op == "/":  # the remainder has the dividend's sign, so this cuts toward zero
            whole = f"(({a}) - (({a}) % ({b}))) / ({b})"
    x, y = left.number(), right.number()
    real = None
    if x and y and (left.d or right.d):
        both = f"({x}) {op} ({y})"
        mixed = f"(({a}) IS NULL OR ({b}) IS NULL) AND " if a and b else ""
        real = f"CASE WHEN {mixed}abs({both}) <= {LARGEST} THEN {both} END"
    return _numbers(whole, real)


def _numbers(whole: str | None, real: str | None) -> str:
    return (
        f"named_struct('n', CAST({whole or 'NULL'} AS DECIMAL(38,0)), "
        f"'d', CAST({real or 'NULL'} AS DOUBLE))"
    )


def compare(op: str, left: Term, right: Term) -> str:
    """SQL: ``left op right``, NULL (unknown) with NULL and between types."""
    if left.literal is not None and right.literal is None:
        return compare(MIRRORED[op], right, left)
    parts = [f"({a} {op} {b})" for a, b in ((left.b, right.b), (left.s, right.s)) if a and b]
    for a in (left.i, left.n):
        parts += [f"({a} {op} {b})" for b in (right.i, right.n) if a and b]
    if left.d and right.d:
        parts.append(f"({left.d} {op} {right.d})")
    for a in (left.i, left.n):
        if a and right.d:
            parts.append(_whole_with_real(op, a, right.d, right.literal, a == left.n))
    for b in (right.i, right.n):
        if left.d and b:
            parts.append(_real_with_whole(op, left.d, b, right.literal, b == right.n))
    return first_value(parts) or NULL


def _whole_with_real(op: str, whole: str, real: str, value: float | None, computed: bool) -> str:
    """SQL: integer op double, exactly."""
    if value is not None and INT_MIN <= value <= INT_MAX - 1024:
        # The usual case, decided here: a number of the selector with a fraction, or 5.0.
        if value == int(value):
            return f"({whole} {op} {_long(int(value))})"
        if op in ("=", "<>"):
            return f"CASE WHEN {whole} IS NOT NULL THEN {'TRUE' if op == '<>' else 'FALSE'} END"
        bound = math.floor(value) if op in ("<=", ">") else math.ceil(value)
        return f"({whole} {op} {_long(bound)})"
    above = "TRUE" if op in ("<", "<=", "<>") else "FALSE"
    below = "TRUE" if op in (">", ">=", "<>") else "FALSE"
    if op in ("=", "<>"):
        within = f"({real} = floor({real}) AND {whole} = floor({real}))"
        within = within if op == "=" else f"(NOT {within})"
    else:
        within = f"({whole} {op} {'floor' if op in ('<=', '>') else 'ceil'}({real}))"
    wide = f"WHEN abs({whole}) > {INT_MAX}BD THEN {_wide(op, whole, real)} " if computed else ""
    return (
        f"CASE WHEN {whole} IS NULL OR {real} IS NULL THEN NULL {wide}"
        f"WHEN {real} >= 9.223372036854775808E18D THEN {above} "
        f"WHEN {real} < -9.223372036854775808E18D THEN {below} ELSE {within} END"
    )


def _wide(op: str, whole: str, real: str) -> str:
    """SQL: an integer beyond 64 bits op double, exactly.

    A double from 2^63 up is a multiple of 2048, so that high * 2^64 + low * 2048 is its value as
    a decimal, without Spark's own cast, which goes through the double's shortest text. Elsewhere
    the two numbers are too far apart for the rounding of the integer to matter.
    """
    high = f"floor({real} / 1.8446744073709551616E19D)"
    low = f"({real} - CAST({high} AS DOUBLE) * 1.8446744073709551616E19D) / 2048.0D"
    value = f"{high} * 18446744073709551616BD + CAST({low} AS BIGINT) * 2048BD"
    return (
        f"CASE WHEN abs({real}) BETWEEN 9.223372036854775808E18D AND 1.0E38D "
        f"THEN {whole} {op} CAST({value} AS DECIMAL(38,0)) "
        f"ELSE CAST({whole} AS DOUBLE) {op} {real} END"
    )


def _real_with_whole(op: str, real: str, whole: str, value: float | None, computed: bool) -> str:
    """SQL: double op integer, exactly."""
    if value is not None and float(value) == value:
        return f"({real} {op} {_double(float(value))})"
    return _whole_with_real(MIRRORED[op], whole, real, None, computed)


def contains(term: Term, choices: list[Any]) -> str:
    """SQL: ``term IN (choices)``, which is ``term = a OR term = b …``."""
    flags = [value for value in choices if isinstance(value, bool)]
    texts = [value for value in choices if isinstance(value, str)]
    numbers = [v for v in choices if isinstance(v, int | float) and not isinstance(v, bool)]
    tests: list[str] = []
    if flags and term.b:
        tests.append(
            f"({term.b} IN ({', '.join('TRUE' if value else 'FALSE' for value in flags)}))"
        )
    if texts and term.s:
        tests.append(f"({term.s} IN ({', '.join(map(text_literal, texts))}))")
    if numbers:
        whole = [_long(int(v)) for v in numbers if v == int(v) and INT_MIN <= v <= INT_MAX]
        real = [_double(float(v)) for v in numbers if float(v) == v]
        tests += [_one_of(column, whole) for column in (term.i, term.n) if column]
        if term.d:
            tests.append(_one_of(f"({term.d} + 0.0D)", real))
    found = first_value(tests)
    if found is None:
        return NULL
    if bool(flags) + bool(texts) + bool(numbers) == 1 and len(choices) == len(
        flags + texts + numbers
    ):
        return found
    # Choices of two types: some comparison is always unknown, so that a miss is never false.
    return f"CASE WHEN {found} THEN TRUE END"


def _one_of(column: str, values: list[str]) -> str:
    if not values:
        return f"CASE WHEN {column} IS NOT NULL THEN FALSE END"
    return f"({column} IN ({', '.join(values)}))"


def is_null(term: Term) -> str:
    """SQL: the term has no value."""
    parts = [f"{part} IS NULL" for part in (term.b, term.i, term.n, term.d, term.s) if part]
    return f"({' AND '.join(parts)})" if parts else "TRUE"


def like(term: Term, pattern: str, escape: object) -> str:
    """SQL: the string matches; unknown for other types."""
    if not term.s:
        return NULL
    expression = like_expression(pattern, escape if isinstance(escape, str) else None)
    if expression is None:
        return f"CASE WHEN {term.s} IS NOT NULL THEN FALSE END"
    return f"({term.s} RLIKE {text_literal(expression)})"


def like_expression(pattern: str, escape: str | None) -> str | None:
    """The Java regular expression of a LIKE pattern; None if it can match nothing.

    Every piece between two ``%`` is taken at its leftmost place for good (an atomic group), which
    leaves the most for the rest, so that the search never goes back over earlier choices.
    """
    pieces = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literally = next(characters, None)
            if literally is None:
                return None  # a pattern that ends in its escape, as in SQLite
            pieces[-1] += f"\\x{{{ord(literally):X}}}"
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else f"\\x{{{ord(character):X}}}"
    if len(pieces) == 1:
        return f"(?s)\\A{pieces[0]}\\z"
    middle = "".join(f"(?>.*?{piece})" for piece in pieces[1:-1] if piece)
    return f"(?s)\\A{pieces[0]}{middle}.*{pieces[-1]}\\z"
