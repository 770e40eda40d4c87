"""Live validation of a selector: is it one, and if not, where and why."""

from __future__ import annotations

from typing import NamedTuple

from matching import SelectorError, compile_selector


class Check(NamedTuple):
    """`position` is the character in question, -1 if the selector is good or empty."""

    good: bool
    message: str
    position: int = -1
    attributes: tuple[str, ...] = ()


def check(text: str) -> Check:
    """Compile `text`; never raises. Compiling takes well under a millisecond and is cached."""
    if not text.strip():
        return Check(False, "type a selector, for example  magnitude >= 5 AND place LIKE '%Chile%'")
    try:
        predicate = compile_selector(text)
    except SelectorError as error:
        return Check(False, error.message, error.position)
    names = ", ".join(predicate.attributes) or "no attribute: it is the same for every event"
    return Check(True, f"a good selector, on {names}", -1, predicate.attributes)
