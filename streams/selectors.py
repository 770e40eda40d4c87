"""Selectors of durable consumers and of groups: which of them say the same."""

from __future__ import annotations

from matching import SelectorError, compile_selector


def same_selector(one: str, other: str) -> bool:
    """Whether two selectors say the same, as far as that is to be seen from their trees."""
    if one == other or not one or not other:
        return one == other
    try:
        return compile_selector(one) == compile_selector(other)
    except SelectorError:
        return False
