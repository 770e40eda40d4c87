"""Selectors that differ in their constants only share the tree of the first of them.

A program that registers ten thousand selectors has mostly one line of code that makes them:
``sensor = 's017' AND value > 20.5``. A text without its numbers and strings is its *shape*. The
lexer finds the same tokens in two texts of one shape, but for what stands in these, and the grammar
does not look into them: so both have the same tree with other literals in it. The tree of each
shape is parsed once, with a *probe* in the place of each constant, by which it is found again in
the tree; every further text is a copy of it with literals of its own, which takes a twentieth of
the time of parsing it.

A conjunction of terms has as many shapes as its terms can be combined: with twenty attributes, of
which each selector names three, some thousands. So the shape of a text that is plainly such a
conjunction is looked up term by term, and only the terms are parsed.

Whatever is not certain to go that way is parsed: long texts, numbers beyond 18 digits, ESCAPE
(which has to have one character), and everything that the parser refuses, for its messages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from matching.selector import expression as nodes
from matching.selector.expression import Expression, Literal, SelectorError
from matching.selector.keywords import (
    NAME_PATTERN,
    NUMBER_PATTERN,
    QUOTED_NAME_PATTERN,
    STRING_PATTERN,
    keyword,
)
from matching.selector.parser import parse as parse_text
from matching.selector.parser import parse_in_steps as parse_text_in_steps
from matching.values import Value, is_utf8

SHAPES: Final = 1_024
"""Shapes whose trees are kept, some kilobytes each. Not measured; would be measured by the shapes
that the programs of one node use."""

LATEST: Final = 4
"""Shapes of plain conjunctions that a text is compared with before its constants are looked for: a
program mostly makes its selectors in a loop, of one shape or of a few by turns. Not measured with
others; to compare with one that differs takes a fiftieth of the other way."""

LONGEST: Final = 2_048
"""Characters of a text that is looked up by its shape. A longer one is mostly one of a kind."""

DIGITS: Final = 18
"""Digits of an integer that fits in 64 bits whatever they are, with a sign or without."""

PROBE: Final = 7 * 10**15
"""The first number that stands for a number; the others follow. Any that no text has as a constant
of its own would do, and none has: all are taken out."""

MARK: Final = "\x02"
"""Begins the strings that stand for strings."""

_CONSTANT: Final = re.compile(
    # A number begins where no name can have begun before it: after a space or an operator.
    rf"({STRING_PATTERN}|{QUOTED_NAME_PATTERN}|(?<![^\s()<>=!,+\-*/]){NUMBER_PATTERN})"
)

_WORD: Final = re.compile(rf"(?<![\w$.]){NAME_PATTERN}|[()]")

_Maker: TypeAlias = Callable[[Sequence[Literal]], Expression]
"""A node with these literals in it."""

PlainTerm: TypeAlias = tuple[str, str, Value, Value | None]
"""An attribute, an operator, and the constant that it is compared with, or the two of BETWEEN."""

Plan: TypeAlias = tuple[tuple[str, str, int, int], ...]
"""For each term its attribute and operator, and the places of its constants (-1: no second one)."""

Shape: TypeAlias = tuple[str, ...]
"""A text in pieces, of which every second one is the place of a constant, or a quoted name."""


def parse(text: str) -> Expression:
    """As `parser.parse`: the tree of a selector's text. Raises SelectorError for any other."""
    found = _by_shape(text) if isinstance(text, str) and len(text) <= LONGEST else None
    return parse_text(text) if found is None else found


def parse_in_steps(text: str) -> Generator[None, None, Expression]:
    """The same, with pauses as in `parser.parse_in_steps` where it is long."""
    if isinstance(text, str) and len(text) <= LONGEST:
        return parse(text)
    return (yield from parse_text_in_steps(text))


def read(text: str) -> Expression | list[PlainTerm]:
    """The terms of a text that is a plain conjunction, else its tree, as `parse`."""
    if not isinstance(text, str) or len(text) > LONGEST:
        return parse_text(text)
    for latest in _latest:
        terms = latest.terms(text)
        if terms is not None:
            return terms
    found = _cut(text)
    if found is None:
        return parse_text(text)
    shape, values = found
    plan = _plan_of(shape)
    if plan is not None:
        _keep_latest(shape, plan)
        return _terms_of(plan, values)
    make = _maker_of(shape)
    return parse_text(text) if make is None else make(_literals(values))


class _PlainShape:
    """A shape of plain conjunctions as one pattern: it finds the constants of a further text in a
    fifth of the time that looking for them takes."""

    def __init__(self, shape: Shape, plan: Plan) -> None:
        self._plan = plan
        self._is_text = [piece == "'" for piece in shape[1::2] if piece in ("'", "0")]
        pattern = "".join([_pattern_of(piece, at) for at, piece in enumerate(shape)])
        self._match = re.compile(pattern).fullmatch

    def terms(self, text: str) -> list[PlainTerm] | None:
        """The terms of a text; None if it has another shape, or needs a closer look."""
        found = self._match(text)
        if found is None or not is_utf8(text):
            return None
        values: list[Value] = []
        for is_text, piece in zip(self._is_text, found.groups(), strict=True):
            value = piece[1:-1].replace("''", "'") if is_text else _number(piece)
            if value is None:
                return None
            values.append(value)
        return _terms_of(self._plan, values)


def _pattern_of(piece: str, at: int) -> str:
    """The pattern of a piece of a shape. The parser takes texts of a plain shape, so a constant
    begins nowhere else; it ends as `_CONSTANT` has it end: nothing is tried again."""
    if at % 2 == 0 or piece not in ("'", "0"):
        return re.escape(piece)
    pattern = STRING_PATTERN if piece == "'" else NUMBER_PATTERN
    return f"((?>{pattern}))"


_latest: tuple[_PlainShape, ...] = ()


def _keep_latest(shape: Shape, plan: Plan) -> None:
    """Look for this shape first from now on."""
    global _latest
    _latest = (_PlainShape(shape, plan), *_latest[: LATEST - 1])


def _terms_of(plan: Plan, values: Sequence[Value]) -> list[PlainTerm]:
    return [
        (name, op, values[first], None if last < 0 else values[last])
        for name, op, first, last in plan
    ]


def _by_shape(text: str) -> Expression | None:
    """The tree, None if the text has to be parsed."""
    found = _cut(text)
    if found is None:
        return None
    shape, values = found
    make = _maker_of(shape)
    return None if make is None else make(_literals(values))


def _cut(text: str) -> tuple[Shape, list[Value]] | None:
    """The shape of a text, and its constants; None if the text has to be parsed."""
    if not is_utf8(text):
        return None
    pieces = _CONSTANT.split(text)
    values: list[Value] = []
    for at in range(1, len(pieces), 2):
        piece = pieces[at]
        if piece[0] == "'":
            values.append(piece[1:-1].replace("''", "'"))
            pieces[at] = "'"
        elif piece[0] != '"':
            number = _number(piece)
            if number is None:
                return None
            values.append(number)
            pieces[at] = "0"
    return tuple(pieces), values


def _number(digits: str) -> int | float | None:
    """The value of a numeral; None if it needs a closer look."""
    if digits.isdigit():
        return int(digits) if len(digits) <= DIGITS else None
    value = float(digits)
    return value if math.isfinite(value) else None


def _literals(values: Sequence[Value]) -> list[Literal]:
    return [Literal(value, nodes.KINDS[type(value)]) for value in values]


@lru_cache(maxsize=SHAPES)
def _plan_of(shape: Shape) -> Plan | None:
    """Return the plan of a conjunction of terms that compare an attribute with constants: for each
    term its attribute, its operator, and the numbers of its constants (-1: there is no second one).
    None for any other shape."""
    plan: list[tuple[str, str, int, int]] = []
    begin = 0
    for term in _terms(shape):
        probed = _probed(term)
        match None if probed is None else probed[0]:
            case nodes.Comparison(op=op, left=nodes.Attribute(name=name), right=Literal() as low):
                slots = _plain_slots(low)
            case nodes.Between(
                operand=nodes.Attribute(name=name), low=Literal() as low, high=Literal() as high
            ):
                op, slots = "BETWEEN", _plain_slots(low, high)
            case _:
                return None
        if probed is None or not slots or slots != list(range(probed[1])):
            return None
        plan.append((name, op, begin, begin + 1 if len(slots) > 1 else -1))
        begin += len(slots)
    return tuple(plan)


def _plain_slots(*operands: Literal) -> list[int]:
    """The slots of probes without a sign; those of none, if some operand is anything else."""
    slots: list[int] = []
    for node in operands:
        value = node.value
        if type(value) is int and value >= PROBE:
            slots.append(value - PROBE)
        elif type(value) is str and value.startswith(MARK):
            slots.append(_slot_of(value))
        else:
            return []
    return slots


@lru_cache(maxsize=SHAPES)
def _maker_of(shape: Shape) -> _Maker | None:
    """Return a function that makes the tree of a text of this shape from its literals; None if such
    texts have to be parsed."""
    terms = _terms(shape)
    if len(terms) < 2:
        return _whole(shape)
    makers: list[tuple[_Maker, int, int]] = []
    end = 0
    for term in terms:
        begin, end = end, end + sum(piece in ("'", "0") for piece in term[1::2])
        make = _whole(term)
        if make is None:
            return None
        makers.append((make, begin, end))

    def conjoined(got: Sequence[Literal]) -> Expression:
        parts = [make(got[begin:end]) for make, begin, end in makers]
        if nodes.And in [type(part) for part in parts]:  # from parentheses
            return nodes.conjoin(parts)
        return nodes.And(tuple(parts))

    return conjoined


def _terms(shape: Shape) -> list[Shape]:
    """The shapes of the terms that AND joins, where nothing binds looser; else the one shape."""
    terms: list[Shape] = []
    term: list[str] = []
    depth = awaited = 0  # parentheses that are open, and BETWEENs whose AND has not come
    for at, piece in enumerate(shape):
        begin = 0
        for found in _WORD.finditer(piece) if at % 2 == 0 else ():
            word = found[0] if found[0] in "()" else keyword(found[0])
            if word in ("(", ")"):
                depth += 1 if word == "(" else -1
            elif depth or word is None:
                continue
            elif word == "OR":
                return [shape]
            elif word == "BETWEEN":
                awaited += 1
            elif word == "AND" and awaited:
                awaited -= 1
            elif word == "AND":
                last = piece[begin : found.start()].rstrip()
                terms.append((*term, last) if term else (last.lstrip(),))
                term, begin = [], found.end()
        term.append(piece[begin:] if term else piece[begin:].lstrip())
    return [*terms, tuple(term)]


@lru_cache(maxsize=SHAPES)
def _whole(shape: Shape) -> _Maker | None:
    """Return what builds the tree of a text of this shape from its constants; None if the shape
    does not determine the tree."""
    probed = _probed(shape)
    if probed is None:
        return None
    tree, slots = probed
    found: list[int] = []
    try:
        make = _maker(tree, found)
    except _UnshapedError:
        return None
    return make if sorted(found) == list(range(slots)) else None


def _probed(shape: Shape) -> tuple[Expression, int] | None:
    """The tree of this shape with probes in the places of the constants, and how many these are;
    None if the shape is no selector's."""
    slots = 0
    probe = list(shape)
    for at in range(1, len(shape), 2):
        if shape[at] == "'":
            probe[at] = f"'{MARK}{slots}'"
        elif shape[at] == "0":
            probe[at] = str(PROBE + slots)
        else:
            continue
        slots += 1
    try:
        return parse_text("".join(probe)), slots
    except SelectorError:
        return None


class _UnshapedError(Exception):
    """A tree that does not depend on its literals only by having them in their places."""


def _maker(node: Expression, found: list[int]) -> _Maker:
    """Return a function that makes a copy of `node` with literals in the places of the probes;
    their slots are added to `found`."""
    before = len(found)
    make = _copier(node, found)
    return make if len(found) > before else lambda literals: node


def _copier(node: Expression, found: list[int]) -> _Maker:
    match node:
        case nodes.Literal():
            return _slot(node, found)
        case nodes.Comparison(op=op, left=left, right=right):
            make_left, make_right = _maker(left, found), _maker(right, found)
            return lambda got: nodes.Comparison(op, make_left(got), make_right(got))
        case nodes.Between(operand=operand, low=low, high=high):
            makers = [_maker(part, found) for part in (operand, low, high)]
            return lambda got: nodes.Between(*[make(got) for make in makers])
        case nodes.And(operands=operands):
            makers = [_maker(part, found) for part in operands]
            return lambda got: nodes.And(tuple([make(got) for make in makers]))
        case nodes.Or(operands=operands):
            makers = [_maker(part, found) for part in operands]
            return lambda got: nodes.Or(tuple([make(got) for make in makers]))
        case nodes.InList(operand=operand, choices=choices):
            make_operand, makers = _maker(operand, found), [_maker(one, found) for one in choices]
            return lambda got: nodes.InList(
                make_operand(got),
                tuple([make(got) for make in makers]),  # type: ignore[misc]  # literals
            )
        case nodes.Like(operand=operand, pattern=pattern, escape=None):
            make_operand = _maker(operand, found)
            slot = _slot_of(pattern)
            found.append(slot)
            return lambda got: nodes.Like(make_operand(got), str(got[slot].value), None)
        case nodes.Like():
            raise _UnshapedError
        case nodes.Arithmetic(op=op, left=left, right=right):
            make_left, make_right = _maker(left, found), _maker(right, found)
            return lambda got: nodes.Arithmetic(op, make_left(got), make_right(got))
        case nodes.Not() | nodes.IsNull() | nodes.Negate():
            kind, make_operand = type(node), _maker(node.operand, found)
            return lambda got: kind(make_operand(got))
        case nodes.Attribute():
            return lambda got: node


def _slot(node: Literal, found: list[int]) -> _Maker:
    """The literal in the place of a probe, with the probe's sign; another literal (TRUE) stays."""
    value = node.value
    if isinstance(value, bool):
        return lambda got: node
    if isinstance(value, str):
        slot, sign = _slot_of(value), 1
    elif isinstance(value, int):
        slot, sign = abs(value) - PROBE, 1 if value > 0 else -1
    else:
        raise _UnshapedError
    found.append(slot)
    if sign > 0:
        return lambda got: got[slot]
    return lambda got: nodes.negate(got[slot])


def _slot_of(value: str) -> int:
    if not value.startswith(MARK):
        raise _UnshapedError
    return int(value[1:])
