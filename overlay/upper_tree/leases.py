"""Leases (DESIGN.md, Subscribe): a registration that its subscriber does not renew ends.

One renewal per subscriber and cluster covers all its registrations there. It carries, per tree,
their number and a digest of their ids, so that a side that lost some is found out.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from overlay.machine import NodeId
from overlay.upper_tree.state import Tree


def ids_digest(ids: Iterable[str]) -> int:
    """CRC-32 of the sorted ids: tells two sets of registrations apart, not forgery-proof."""
    return crc32("\n".join(sorted(ids)).encode())


def registrations_of(tree: Tree, subscriber: NodeId) -> tuple[str, ...]:
    """Ids of one subscriber's registrations in a tree."""
    return tuple(
        id_ for id_, known in tree.registrations.items() if known.subscriber.id == subscriber
    )


class LeaseTable:
    """When each subscriber (and incarnation of it) was last heard of. Times are the Port's."""

    def __init__(self, term: float) -> None:
        """`term` in seconds."""
        self.term = term
        self._until: dict[NodeId, dict[int, float]] = {}

    def touch(self, subscriber: NodeId, incarnation: int, now: float) -> None:
        """A full term from now on. Older incarnations of the subscriber lapse at once."""
        terms = self._until.setdefault(subscriber, {})
        for older in [known for known in terms if known < incarnation]:
            terms[older] = now
        terms[incarnation] = now + self.term

    def lapsed(self, tree: Tree, now: float) -> tuple[str, ...]:
        """Ids in `tree` whose lease has run out. One never heard of gets a full term first."""
        ids = []
        for id_, registration in tree.registrations.items():
            terms = self._until.setdefault(registration.subscriber.id, {})
            if terms.setdefault(tree.incarnations[id_], now + self.term) <= now:
                ids.append(id_)
        return tuple(ids)

    def forget_old(self, now: float) -> None:
        """Forget who has been silent for two terms: all that it had has lapsed by now."""
        for subscriber, terms in list(self._until.items()):
            for incarnation in [i for i, until in terms.items() if until + self.term <= now]:
                del terms[incarnation]
            if not terms:
                del self._until[subscriber]

    def clear(self) -> None:
        """Forget all, when the node is no longer the primary."""
        self._until.clear()
