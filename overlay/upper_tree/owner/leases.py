"""Leases (DESIGN.md, Subscribe): a registration that its subscriber does not renew ends.

One renewal per subscriber and cluster covers all its registrations there. It carries, per tree,
their number and a digest of their ids, so that a side that lost some is found out. The other way
round an owner may have what its subscriber has ended: its log is that of a cluster that was lost,
and another owner was told of the end. So a tree that renewals do not name is not renewed; and where
digests differ, the subscriber registers again what it has, and the rest ends when its next claim
is right without it (`Doubts`).
"""

from __future__ import annotations

from collections.abc import Iterable

from overlay.machine import NodeId
from overlay.upper_tree.owner.tree_log import Tree
from overlay.upper_tree.registration_digest import ids_digest


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
        self._named: dict[NodeId, tuple[float, frozenset[str]]] = {}
        """The trees that each subscriber's last renewal named, and when that came."""
        self._unnamed: dict[tuple[NodeId, str], float] = {}
        """Since which renewal one has registrations in a tree that it does not name."""

    def touch(
        self, subscriber: NodeId, incarnation: int, now: float, trees: Iterable[str] | None = None
    ) -> None:
        """A full term from now on. Older incarnations of the subscriber lapse at once.

        `trees`: all in which it has registrations, or None if it did not say."""
        terms = self._until.setdefault(subscriber, {})
        for older in [known for known in terms if known < incarnation]:
            terms[older] = now
        terms[incarnation] = now + self.term
        if trees is None:
            self._named.pop(subscriber, None)  # it may have some in another tree now
        else:
            self._named[subscriber] = now, frozenset(trees)

    def lapsed(self, tree: Tree, now: float) -> tuple[str, ...]:
        """Ids in `tree` whose lease has run out. One never heard of gets a full term first."""
        ids = []
        unnamed: dict[NodeId, bool] = {}
        for id_, registration in tree.registrations.items():
            subscriber = registration.subscriber.id
            terms = self._until.setdefault(subscriber, {})
            if subscriber not in unnamed:
                unnamed[subscriber] = self._is_unnamed(subscriber, tree.attribute)
            over = terms.setdefault(tree.incarnations[id_], now + self.term) <= now
            if over or unnamed[subscriber]:
                ids.append(id_)
        return tuple(ids)

    def _is_unnamed(self, subscriber: NodeId, attribute: str) -> bool:
        """Whether its renewals of a whole term did not name a tree in which it has something."""
        at, names = self._named.get(subscriber, (0.0, None))
        if names is None or attribute in names:
            self._unnamed.pop((subscriber, attribute), None)
            return False
        return at - self._unnamed.setdefault((subscriber, attribute), at) >= self.term

    def forget_old(self, now: float) -> None:
        """Forget who has been silent for two terms: all that it had has lapsed by now."""
        for subscriber, terms in list(self._until.items()):
            for incarnation in [i for i, until in terms.items() if until + self.term <= now]:
                del terms[incarnation]
            if not terms:
                del self._until[subscriber]
                self._named.pop(subscriber, None)
        for one in [one for one in self._unnamed if one[0] not in self._named]:
            del self._unnamed[one]

    def clear(self) -> None:
        """Forget all, when the node is no longer the primary."""
        self._until.clear()
        self._named.clear()
        self._unnamed.clear()


class Doubts:
    """Registrations of a subscriber in a tree for which it claimed another set, and which it has
    not registered again since. At most all that it has there."""

    def __init__(self) -> None:
        self._of: dict[tuple[NodeId, str], dict[str, None]] = {}

    def check(
        self, subscriber: NodeId, attribute: str, ids: tuple[str, ...], claim: tuple[int, int]
    ) -> tuple[bool, tuple[str, ...]]:
        """Whether `claim` (number and digest) is right, and which of `ids` have to end for that.

        If it is not, all `ids` are doubted until they are registered again."""
        if (len(ids), ids_digest(ids)) == claim:
            self._of.pop((subscriber, attribute), None)
            return True, ()
        doubted = self._of.pop((subscriber, attribute), {})
        sure = [id_ for id_ in ids if id_ not in doubted]
        if (len(sure), ids_digest(sure)) == claim:
            return True, tuple(id_ for id_ in ids if id_ in doubted)
        self._of[subscriber, attribute] = dict.fromkeys(ids)
        return False, ()

    def registered(self, subscriber: NodeId, attribute: str, id_: str) -> None:
        """No doubt about this one."""
        if doubted := self._of.get((subscriber, attribute)):
            doubted.pop(id_, None)

    def clear(self) -> None:
        """Forget all, when the node is no longer the primary."""
        self._of.clear()
