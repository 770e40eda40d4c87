"""A subscription of a program of this node."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from matching import Predicate


class LocalSubscription(msgspec.Struct):
    """A subscription of one client of this node."""

    id: str
    client: int
    request: int
    name: str
    predicate: Predicate
    gathers: bool  # its client gets events once for all its subscriptions
    trees: tuple[tuple[str, ...], ...] = ()  # per conjunction, those it is registered in
    order: int = 0  # number of the change of this node's subscriptions by which it came …
    until: int | None = None  # … and by which it went
    acknowledged: bool = False
    level: int = 0  # latency level
    marks: bool = False  # its client wants to know up to when deliveries are complete
    since: float = 0.0  # the last such mark of another node or process; 0: it is new
    unread_for: float = 0.0  # when it ended: seconds for which no program was there to read
    missing_since: float | None = None  # it has lapsed; a time of the Port
    delivered: int = 0  # where it does not gather

    @property
    def pivots(self) -> tuple[str, ...]:
        """The trees that it is registered in, by conjunction."""
        return tuple(tree for trees in self.trees for tree in trees)

    def may_miss(self, attributes: Collection[str]) -> bool:
        """Whether an event may be meant for it that has no other attributes than these; or one that
        was to be matched in the tree of one of these. A conjunction needs all attributes that it
        may be registered under, so one is enough; whether it uses one at all is quicker to say."""
        if any(name in attributes for name in self.predicate.attributes):
            return True
        return not all(each.pivots() for each in self.predicate.conjunctions)
