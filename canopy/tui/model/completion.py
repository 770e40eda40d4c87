"""Completions of a selector: attribute names, keywords, operators, recent values.

The grammar is not parsed: the candidates depend on the last complete token before the cursor.
`compile_selector` decides whether a selector is valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from canopy.tui.constants import CANDIDATES
from matching import Predicate, SelectorError, Value, compile_selector
from matching.selector.keywords import KEYWORDS
from matching.selector.unparse import quote_name, quote_value

_TOKEN = re.compile(
    r"""(?P<string>'(?:[^']|'')*'?)
      | (?P<quoted>"(?:[^"]|"")*"?)
      | (?P<number>\.?\d(?:[eE][+-]|[\w.])*)
      | (?P<word>[^\W\d](?:[\w$]|\.(?=[\w$])|\.$)*)
      | (?P<operator><>|<=|>=|!=|[=<>+\-*/(),])
      | (?P<space>\s+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "!=")
AFTER_NAME = (
    "=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "BETWEEN",
    "IN (",
    "LIKE '",
    "IS NULL",
    "IS NOT NULL",
    "NOT IN (",
    "NOT LIKE '",
    "NOT BETWEEN",
)
AFTER_CONDITION = ("AND", "OR")

ValuesOf = Callable[[str], Sequence[Value]]
"""Recent values of an attribute."""


class TextToken(NamedTuple):
    """A token of the text, and where it starts."""

    kind: str  # string, quoted, number, word, operator, other
    text: str
    start: int

    @property
    def keyword(self) -> str:
        """The keyword in upper case; "" if the token is not one."""
        upper = self.text.upper()
        return upper if self.kind == "word" and upper in KEYWORDS else ""

    @property
    def is_name(self) -> bool:
        """Whether the token is an attribute's name."""
        return self.kind == "quoted" or (self.kind == "word" and not self.keyword)


class Completion(NamedTuple):
    """Candidates to replace the text from `start` up to the cursor."""

    start: int
    candidates: tuple[str, ...]


def tokens(text: str) -> list[TextToken]:
    """Return the tokens of `text`, without white space."""
    found = _TOKEN.finditer(text)
    return [
        TextToken(m.lastgroup or "", m.group(), m.start()) for m in found if m.lastgroup != "space"
    ]


def complete(text: str, names: Sequence[str], values_of: ValuesOf) -> Completion:
    """Return the candidates for the end of `text` (the selector up to the cursor)."""
    read = tokens(text)
    start, prefix = len(text), ""
    if read and not text[-1:].isspace() and read[-1].kind not in ("operator", "other"):
        last = read[-1]
        closed = last.kind in ("string", "quoted") and len(last.text) > 1
        if closed and last.text.endswith(last.text[0]):
            return Completion(start, ())  # a complete string has no completions
        start, prefix = last.start, last.text
        read.pop()
    proposals = _proposals(read, names, values_of)
    found = [p for p in proposals if _fits(p, prefix) and p.rstrip("( '") != prefix]
    return Completion(start, tuple(found[:CANDIDATES]))


def _fits(proposal: str, prefix: str) -> bool:
    return proposal.casefold().startswith(prefix.casefold()) or (
        # cpu finds "host.cpu", but a single letter would find everything
        len(prefix) > 1 and prefix.isidentifier() and prefix.casefold() in proposal.casefold()
    )


def _proposals(read: list[TextToken], names: Sequence[str], values_of: ValuesOf) -> list[str]:
    last = read[-1] if read else None
    written = [quote_name(name) for name in names]
    if last is None or last.keyword in ("AND", "OR", "NOT") or last.text == "(":
        subject = _subject(read) if last is not None and last.text == "(" else ""
        if subject and len(read) > 1 and read[-2].keyword == "IN":
            return _values(subject, values_of)
        not_there = last is not None and last.keyword == "NOT"
        if not_there and len(read) > 1 and read[-2].is_name:
            return ["IN (", "LIKE '", "BETWEEN"]
        return written if not_there else [*written, "NOT"]
    if last.is_name:
        return list(AFTER_NAME)
    if last.text in _COMPARISONS or last.keyword in ("LIKE", "BETWEEN") or last.text == ",":
        return [*_values(_subject(read), values_of), *written]
    if last.keyword == "IS":
        return ["NULL", "NOT NULL"]
    if last.text in ("+", "-", "*", "/"):
        return written
    if len(read) > 1 and read[-2].keyword == "BETWEEN":
        return ["AND"]
    return list(AFTER_CONDITION)


def _subject(read: list[TextToken]) -> str:
    """Return the attribute of the comparison at the end of `read`; "" if there is none."""
    for token in reversed(read):
        if token.is_name:
            quoted = token.kind == "quoted"
            return token.text.strip('"').replace('""', '"') if quoted else token.text
        if token.keyword in ("AND", "OR"):
            break
    return ""


def _values(name: str, values_of: ValuesOf) -> list[str]:
    return [quote_value(value) for value in values_of(name)] if name else []


# Validation of a selector while it is typed: whether it is valid, and if not, where and why.


class Check(NamedTuple):
    """The result of a check. `position`: that of the error; -1 if the selector is valid or
    empty."""

    good: bool
    message: str
    position: int = -1
    attributes: tuple[str, ...] = ()
    predicate: Predicate | None = None  # None unless good


def check(text: str) -> Check:
    """Compile `text`; never raises. Compiling takes well under a millisecond and is cached."""
    if not text.strip():
        return Check(False, "type a selector, for example  magnitude >= 5 AND place LIKE '%Chile%'")
    try:
        predicate = compile_selector(text)
    except SelectorError as error:
        return Check(False, error.message, error.position)
    names = ", ".join(predicate.attributes) or "no attribute: true or false for every event alike"
    return Check(True, f"a valid selector on {names}", -1, predicate.attributes, predicate)
