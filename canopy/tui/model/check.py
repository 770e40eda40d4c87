"""Validation of a selector while it is typed: whether it is valid, and if not, where and why."""

from __future__ import annotations

from typing import NamedTuple

from matching import Predicate, SelectorError, compile_selector


class Check(NamedTuple):
    """The result: `position` is that of the error, -1 if the selector is valid or empty."""

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
