"""Selectors of registrations, compiled: owner, hosts and subscriber each need the same few again.

A registration's text passes several machines within a moment: a subscriber cuts it out of what its
client asked for, an owner looks for a better pivot, takes it, a host installs it, perhaps all on
the same node. A predicate is immutable, so they can share it: parsing is most of what a
registration costs, and a compiled predicate most of the memory that it takes. `matching` keeps what
it has compiled; here is what was cut out of a selector without being compiled.
"""

from __future__ import annotations

from typing import Final

from matching import Predicate, SelectorError, compile_selector
from overlay.bounded import BoundedDict
from overlay.machine import ProtocolError
from overlay.upper_tree.summary import Box, box_of

KEPT: Final = 1_024
"""Conjunctions of selectors that are kept: some 10 MB at most for usual ones. Not measured;
would be measured by how often a registration is compiled twice on a node."""

_kept: BoundedDict[str, Predicate] = BoundedDict(KEPT)  # by text


def keep(predicate: Predicate) -> None:
    """Let the machines of this process find a predicate by its text, so that they share it."""
    _kept[predicate.text] = predicate


def keep_at_most(count: int) -> None:
    """Keep at most `count` conjunctions from now on. Where one process runs many nodes, as in the
    simulator, they share the predicates of all registrations."""
    _kept.capacity = count


def compiled(selector: str) -> Predicate:
    """The predicate of a registration. ProtocolError if it does not compile."""
    predicate = _kept.get(selector)
    if predicate is None:
        try:
            predicate = compile_selector(selector)
        except SelectorError as error:
            raise ProtocolError(f"a registration that does not compile: {error}") from error
    return predicate


def boxes_of(selector: str) -> tuple[Box, ...]:
    """The boxes around its conjunctions (summary.py). ProtocolError if it does not compile."""
    return tuple(map(box_of, compiled(selector).conjunctions))
