"""Tree to canonical text, which compiles to an equal tree.

Parentheses are written only where the grammar needs them, and after NOT for legibility. Numbers
are written by `repr` or, where that is shorter, with an exponent; quotes in strings are doubled;
names are quoted only where the language would read something else.
"""

from __future__ import annotations

from matching.selector import expression as nodes
from matching.selector.expression import Expression
from matching.selector.keywords import is_plain_name

# Precedence of each form in the grammar, loosest first.
_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)


def unparse(node: Expression) -> str:
    """The canonical text of a tree."""
    return _write(node)[0]


def quote_name(name: str) -> str:
    """An attribute's name as it is written in a selector, quoted if necessary."""
    return name if is_plain_name(name) else '"' + name.replace('"', '""') + '"'


def quote_value(value: object) -> str:
    """A value as it is written in a selector; NULL for None."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        return _float(value)
    return repr(value)


def _float(value: float) -> str:
    written = repr(value)
    if written.endswith(".0"):
        # 1000000000000000.0 is longer than 1e15, and canonical text should not exceed the limit on
        # length where its source did not. From four zeros on an exponent is also easier to read.
        digits = written[:-2].rstrip("0")
        zeros = len(written) - 2 - len(digits)
        return f"{digits}e{zeros}" if zeros >= 4 else written
    return written.replace("e+", "e")


def _write(node: Expression) -> tuple[str, int]:
    """(text, precedence) of a node."""
    match node:
        case nodes.Literal(value=value):
            written = quote_value(value)
            return written, _SIGN if written.startswith("-") else _ATOM
        case nodes.Attribute(name=name):
            return quote_name(name), _ATOM
        case nodes.Negate(operand=operand):
            return _negation(operand), _SIGN
        case nodes.Arithmetic(op=op, left=left, right=right):
            level = _SUM if op in "+-" else _PRODUCT
            return f"{_at(left, level)} {op} {_at(right, level + 1)}", level
        case nodes.Comparison(op=op, left=left, right=right):
            return f"{_at(left, _SUM)} {op} {_at(right, _SUM)}", _TEST
        case nodes.Not(operand=operand):
            return _not(operand)
        case nodes.And(operands=operands):
            return " AND ".join(_at(operand, _NOT) for operand in operands), _AND
        case nodes.Or(operands=operands):
            return " OR ".join(_at(operand, _AND) for operand in operands), _OR
        case _:
            return _test(node, ""), _TEST


def _test(node: nodes.Between | nodes.InList | nodes.Like | nodes.IsNull, negation: str) -> str:
    """``x [NOT] BETWEEN …`` and the other tests that have their NOT inside."""
    operand = _at(node.operand, _SUM)
    match node:
        case nodes.Between(low=low, high=high):
            return f"{operand} {negation}BETWEEN {_at(low, _SUM)} AND {_at(high, _SUM)}"
        case nodes.InList(choices=choices):
            listed = ", ".join(quote_value(choice.value) for choice in choices)
            return f"{operand} {negation}IN ({listed})"
        case nodes.Like(pattern=pattern, escape=escape):
            tail = "" if escape is None else f" ESCAPE {quote_value(escape)}"
            return f"{operand} {negation}LIKE {quote_value(pattern)}{tail}"
        case nodes.IsNull():
            return f"{operand} IS {negation}NULL"


def _not(operand: Expression) -> tuple[str, int]:
    match operand:
        case nodes.Between() | nodes.InList() | nodes.Like() | nodes.IsNull():
            return _test(operand, "NOT "), _TEST
        case nodes.Literal() | nodes.Attribute() | nodes.Not():
            return f"NOT {_at(operand, _NOT)}", _NOT
        case _:
            return f"NOT ({unparse(operand)})", _NOT


def _negation(operand: Expression) -> str:
    # "- -x", since "--" begins a comment in SQL. A number after the sign would be read as part of
    # one literal, but `negate` never makes such a node.
    written = _at(operand, _SIGN)
    return f"- {written}" if written.startswith("-") else f"-{written}"


def _at(node: Expression, level: int) -> str:
    """The text of a node where the grammar asks for this precedence: in parentheses if needed."""
    written, own = _write(node)
    return written if own >= level else f"({written})"
