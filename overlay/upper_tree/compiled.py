"""Selectors of registrations, compiled: owner, hosts and subscriber each need the same few again.

A registration's text passes several machines within a moment: an owner looks for a better pivot,
takes it, a host installs it, perhaps on the same node. A predicate is immutable, so they can share
it; parsing is most of what a registration costs.
"""

from __future__ import annotations

from functools import lru_cache

from matching import Predicate, SelectorError, compile_selector
from overlay.machine import ProtocolError
from overlay.upper_tree.summary import Box, box_of

KEPT = 1_024
"""Compiled selectors that are kept: some 10 MB at most for usual ones. Wild guess."""


@lru_cache(maxsize=KEPT)
def compiled(selector: str) -> Predicate:
    """The predicate of a registration. ProtocolError if it does not compile."""
    try:
        return compile_selector(selector)
    except SelectorError as error:
        raise ProtocolError(f"a registration that does not compile: {error}") from error


def boxes_of(selector: str) -> tuple[Box, ...]:
    """What it asks for (summary.py). ProtocolError if it does not compile."""
    return tuple(map(box_of, compiled(selector).conjunctions))
