"""What Hypothesis draws for the tests of matching: events, trees and texts; and a second opinion.

Two families. *Typed* selectors keep each comparison within one type and their numbers small, so
that SQLite's answer is the language's answer. *Wild* ones mix types at will; for them there is
`verdict`, a naive evaluator of the JSON form, which shares no code with the product (Spark's
analysis reads the same form).
"""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from matching.selector import expression as nodes
from matching.selector.expression import Expression

# No test may depend on how busy the machine is.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NUMBERS = ("i", "j", "f", "or")  # the last one needs quotes
STRINGS = ("s", "t")
FLAGS = ("b", "c")
BIG = "k"  # integers of 64 bits, compared but not calculated with
COLUMNS = (*NUMBERS, *STRINGS, *FLAGS, BIG)

OPS = st.sampled_from(list(nodes.INVERSE))
ints = st.integers(-9, 9)
# Eighths are exact in both worlds: SQLite does not round every decimal correctly.
floats = st.integers(-40, 40).map(lambda n: n / 8)
big_ints = st.sampled_from(
    [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**53) - 1, 0, 9007199254740993]
)
strings = st.text(alphabet="ab%_\\'é\n\U0001f333", max_size=4)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


events = st.fixed_dictionaries(
    {
        "i": maybe(ints),
        "j": maybe(ints),
        "f": maybe(floats),
        "or": maybe(st.one_of(ints, floats)),
        "s": maybe(strings),
        "t": maybe(strings),
        "b": maybe(st.booleans()),
        "c": maybe(st.booleans()),
        BIG: maybe(big_ints),
    }
)

any_value = st.one_of(ints, floats, strings, st.booleans(), big_ints)
wild_events = st.dictionaries(st.sampled_from(COLUMNS), maybe(any_value), max_size=9)


# Trees.


def attribute(names: tuple[str, ...]) -> st.SearchStrategy[Expression]:
    return st.sampled_from(names).map(nodes.attribute)


def literal(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return values.map(nodes.literal)


def calculated(leaves: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Leaves, and at most two levels of arithmetic on them (more would overflow SQLite)."""

    def level(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        return st.one_of(
            st.builds(nodes.Arithmetic, st.sampled_from("+-*/"), inner, inner),
            inner.map(nodes.negate),
        )

    once = level(leaves)
    return st.one_of(leaves, leaves, once, level(st.one_of(leaves, once)))


@st.composite
def tests_of(
    draw: st.DrawFn, term: st.SearchStrategy[Expression], values: st.SearchStrategy[Any]
) -> Expression:
    """A comparison, BETWEEN or IN over terms."""
    kind = draw(st.integers(0, 4))
    if kind <= 1:
        return nodes.Comparison(draw(OPS), draw(term), draw(term))
    if kind == 2:
        return nodes.Between(draw(term), draw(term), draw(term))
    if kind == 3:
        return nodes.IsNull(draw(term))
    choices = draw(st.lists(literal(values), min_size=1, max_size=4))
    return nodes.InList(draw(term), tuple(choices))


likes = st.builds(
    nodes.Like,
    attribute(STRINGS),
    strings,
    st.sampled_from([None, None, "\\", "%", "_", "a"]),
)


def conditions(atoms: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """AND, OR and NOT over atoms."""

    def combined(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        several = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            several.map(nodes.conjoin), several.map(nodes.disjoin), inner.map(nodes.Not)
        )

    return st.recursive(atoms, combined, max_leaves=7)


_numeric = st.one_of(attribute(NUMBERS), attribute(NUMBERS), literal(ints), literal(floats))
_texts = st.one_of(attribute(STRINGS), literal(strings))
_flags = st.one_of(attribute(FLAGS), attribute(FLAGS), literal(st.booleans()))
_bigs = st.one_of(st.just(nodes.attribute(BIG)), literal(big_ints), literal(floats))

typed = conditions(
    st.one_of(
        tests_of(calculated(_numeric), st.one_of(ints, floats)),
        tests_of(st.one_of(attribute(NUMBERS), literal(ints)), ints),
        tests_of(_texts, strings),
        tests_of(_flags, st.booleans()),
        tests_of(_bigs, big_ints),
        likes,
        attribute(FLAGS),
    )
)

_leaf = st.one_of(attribute(COLUMNS), attribute(COLUMNS), literal(any_value))
wild = conditions(
    st.one_of(
        tests_of(_leaf, any_value),
        tests_of(_leaf, any_value),
        tests_of(calculated(_leaf), any_value),
        st.builds(nodes.Like, _leaf, strings, st.sampled_from([None, "\\"])),
        attribute(COLUMNS),
        literal(st.booleans()),
    )
)


# Texts, not by way of a tree: precedence is the reader's business.


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A typed selector as people might write it: few parentheses, any case, odd spaces."""
    return " ".join(draw(_words(draw(st.integers(0, 3)))))


def _keyword(draw: st.DrawFn, word: str) -> str:
    return draw(st.sampled_from([word, word.lower(), word.capitalize()]))


@st.composite
def _words(draw: st.DrawFn, depth: int) -> list[str]:
    if depth == 0:
        return [draw(_atom_text())]
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return [_keyword(draw, "NOT"), *draw(_words(depth - 1))]
    if kind == 1:
        return ["(", *draw(_words(depth - 1)), ")"]
    joiner = _keyword(draw, draw(st.sampled_from(["AND", "OR"])))
    return [*draw(_words(depth - 1)), joiner, *draw(_words(depth - 1))]


_number_texts = st.sampled_from(
    ["i", "j", "f", '"or"', "1", "-2", "0", ".5", "2.", "1e1", "2.5E-1"]
)
_string_texts = st.sampled_from(["s", "t", "'a'", "''", "'b''%'", "'é'", '"s"'])


@st.composite
def _sum_text(draw: st.DrawFn) -> str:
    parts = draw(st.lists(_number_texts, min_size=1, max_size=4))
    text = parts[0]
    for part in parts[1:]:
        text += draw(st.sampled_from(["+", " - ", "*", " / "])) + part
    # In SQLite two signs without a space begin a comment.
    return text.replace("--", "- -")


@st.composite
def _atom_text(draw: st.DrawFn) -> str:
    operand = draw(st.one_of(_sum_text(), _sum_text(), _string_texts))
    numeric = operand not in ("s", "t", "'a'", "''", "'b''%'", "'é'", '"s"')
    side = _sum_text() if numeric else _string_texts
    negation = draw(st.sampled_from(["", "NOT ", "not "]))
    kind = draw(st.integers(0, 5))
    if kind <= 1:
        op = draw(st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]))
        return f"{operand}{op}{draw(side)}".replace("--", "- -")
    if kind == 2:
        return f"{operand} {negation}BETWEEN {draw(side)} AND {draw(side)}"
    if kind == 3:
        listed = "1, -2,.5" if numeric else "'a','''b',  'é'"
        return f"{operand} {negation}IN({listed})"
    if kind == 4 and not numeric:
        pattern = draw(st.sampled_from(["'a%'", "'%_'", "'\\_%' ESCAPE '\\'", "''", "'%b%'"]))
        return f"{operand} {negation}LIKE {pattern}"
    if kind == 5:
        return draw(st.sampled_from(["b", "c", "b = TRUE", "c <> false", "TRUE", "b<c"]))
    return f"{operand} IS {negation}NULL"


# The second opinion.


def verdict(tree: list[Any], event: dict[str, Any]) -> bool | None:
    """Naive three-valued evaluation of the JSON form."""
    kind, *rest = tree
    if kind in ("attr", "lit"):
        value = _value(tree, event)
        return value if isinstance(value, bool) else None
    if kind == "not":
        inner = verdict(rest[0], event)
        return None if inner is None else not inner
    if kind in ("and", "or"):
        parts = [verdict(part, event) for part in rest]
        decisive = kind == "or"
        return decisive if decisive in parts else None if None in parts else not decisive
    if kind == "cmp":
        return _compare(rest[0], _value(rest[1], event), _value(rest[2], event))
    if kind == "between":
        x, low, high = rest
        return verdict(["and", ["cmp", ">=", x, low], ["cmp", "<=", x, high]], event)
    if kind == "in":
        return verdict(["or", *(["cmp", "=", rest[0], ["lit", v]] for v in rest[1])], event)
    if kind == "isnull":
        return _value(rest[0], event) is None
    assert kind == "like"
    value = _value(rest[0], event)
    return like(value, rest[1], rest[2]) if isinstance(value, str) else None


def _type(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "str" if isinstance(value, str) else "number"


def _compare(op: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None or _type(left) != _type(right):
        return None
    less, equal = bool(left < right), bool(left == right)
    return {
        "=": equal,
        "<>": not equal,
        "<": less,
        "<=": less or equal,
        ">": not less and not equal,
        ">=": not less,
    }[op]


def _value(tree: list[Any], event: dict[str, Any]) -> Any:
    kind, *rest = tree
    if kind == "attr":
        return event.get(rest[0])
    if kind == "lit":
        return rest[0]
    operands = [_value(part, event) for part in rest if isinstance(part, list)]
    if any(value is None or _type(value) != "number" for value in operands):
        return None
    if kind == "neg":
        return -operands[0]
    left, right = operands
    try:
        if rest[0] == "/" and isinstance(left, int) and isinstance(right, int):
            sign = -1 if (left < 0) != (right < 0) else 1
            return sign * (abs(left) // abs(right))
        result = {
            "+": lambda: left + right,
            "-": lambda: left - right,
            "*": lambda: left * right,
            "/": lambda: left / right,
        }[rest[0]]()
    except (ZeroDivisionError, OverflowError):
        return None
    return None if isinstance(result, float) and not math.isfinite(result) else result


def like(value: str, pattern: str, escape: str | None) -> bool:
    """By recursion on both, one character at a time."""
    if not pattern:
        return not value
    first, rest = pattern[0], pattern[1:]
    if first == escape:
        return bool(rest) and value[:1] == rest[0] and like(value[1:], rest[1:], escape)
    if first == "%":
        return any(like(value[i:], rest, escape) for i in range(len(value) + 1))
    return bool(value) and first in ("_", value[0]) and like(value[1:], rest, escape)
