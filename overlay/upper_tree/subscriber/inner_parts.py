"""Which values of a part of a tree concern only subscriptions that lie wholly in that part.

An event that came through a part of a tree need not wait for what visits the tree elsewhere, unless
it matches a subscription that reaches beyond the part (publication_order.py). To match each event
in order to know that took a subscriber as long again as to check the event. Mostly the value tells:
subscriptions reach beyond a part where it ends, and what is further from its ends than they are
wide matches none of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from matching import Cut, Interval
from overlay.bounded import BoundedDict
from overlay.upper_tree.subscriber.constants import PARTS_MOST

TreePart = tuple[str, Interval]
"""A tree and a part of its value space."""


class InnerParts:
    """By part of a tree, from where to where its values concern only subscriptions within it.

    Bounded. What is known shrinks with each subscription that comes, and is forgotten when as many
    have gone as there were: so it may be less than there is, and never more."""

    def __init__(self) -> None:
        self._inner: BoundedDict[TreePart, tuple[Cut, Cut]] = BoundedDict(PARTS_MOST)
        self._gone = 0

    def find(self, tree: str, part: Interval, hulls: Iterable[Interval]) -> tuple[Cut, Cut]:
        """Where the inner values of a part begin and end; they are none if it ends first. `hulls`:
        what the subscriptions that are registered in this tree alone need of it, read if the part
        is not known."""
        found = self._inner.get((tree, part))
        if found is None:
            found = (part.lo, part.hi)
            for hull in hulls:
                found = _without(found, part, hull)
            self._inner[tree, part] = found
        return found

    def came(self, tree: str, hull: Interval) -> None:
        """A subscription is registered in this tree alone, and needs that of it."""
        for (name, part), found in self._inner.items():
            if name == tree:
                self._inner[name, part] = _without(found, part, hull)

    def gone(self, left: int) -> None:
        """A subscription has ended; so many are left."""
        self._gone += 1
        if self._gone > left:
            self._inner.clear()
            self._gone = 0


def _without(inner: tuple[Cut, Cut], part: Interval, hull: Interval) -> tuple[Cut, Cut]:
    """The inner values without those of a subscription that reaches beyond the part."""
    lo, hi = inner
    if hull.lo < part.lo:
        lo = max(lo, hull.hi)
    if hull.hi > part.hi:
        hi = min(hi, hull.lo)
    return lo, hi
