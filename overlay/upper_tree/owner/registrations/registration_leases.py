"""Leases of registrations: one that its subscriber does not renew ends (P1).

One renewal per subscriber and cluster covers all its registrations there. It has, per tree, their
number and a digest of their ids, so that a side that lost some is found out. The other way round,
an owner may have what its subscriber has ended: its log is that of a cluster that was lost, and
the end was sent to another owner. So a tree that renewals do not name is not renewed; and where
digests differ, the subscriber registers again what it has, and the rest ends when its next claim is
right without it (`ClaimChecks`).
"""

from __future__ import annotations

from collections.abc import Iterable

from overlay.machine import NodeId
from overlay.upper_tree.messages import ids_digest
from overlay.upper_tree.owner.tree_log import Tree


def registrations_of(tree: Tree, subscriber: NodeId) -> tuple[str, ...]:
    """Ids of one subscriber's registrations in a tree."""
    return tuple(
        id_ for id_, known in tree.registrations.items() if known.subscriber.id == subscriber
    )


class RegistrationLeases:
    """When each subscriber (and incarnation of it) was last heard of. Times are the Port's."""

    def __init__(self, term: float) -> None:
        """`term`: seconds for which a lease runs after each renewal."""
        self.term = term
        self._until: dict[NodeId, dict[int, float]] = {}
        self._named: dict[NodeId, tuple[float, frozenset[str]]] = {}
        """The trees that each subscriber's last renewal named, and when that came."""
        self._unnamed: dict[tuple[NodeId, str], float] = {}
        """Since which renewal one has registrations in a tree that it does not name."""

    def renew(
        self, subscriber: NodeId, incarnation: int, now: float, trees: Iterable[str] | None = None
    ) -> None:
        """The subscriber was heard: its leases run for a full term from `now`, those of its older
        incarnations lapse at once. `trees`: all in which it says that it has registrations; None if
        it did not say."""
        terms = self._until.setdefault(subscriber, {})
        for older in [known for known in terms if known < incarnation]:
            terms[older] = now
        terms[incarnation] = now + self.term
        if trees is None:
            self._named.pop(subscriber, None)  # it may have some in another tree now
        else:
            self._named[subscriber] = now, frozenset(trees)

    def lapsed(self, tree: Tree, now: float) -> tuple[str, ...]:
        """Ids in `tree` whose lease has lapsed. A subscriber that was never heard gets a full term
        first."""
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

    def is_silent(self, subscriber: NodeId, now: float) -> bool:
        """Whether no process of this node has renewed within a term."""
        return all(until <= now for until in self._until.get(subscriber, {}).values())

    def _is_unnamed(self, subscriber: NodeId, attribute: str) -> bool:
        """Whether its renewals of a whole term did not name a tree in which it has something."""
        at, names = self._named.get(subscriber, (0.0, None))
        if names is None or attribute in names:
            self._unnamed.pop((subscriber, attribute), None)
            return False
        return at - self._unnamed.setdefault((subscriber, attribute), at) >= self.term

    def expire(self, now: float) -> None:
        """Forget subscribers that were silent for two terms: all that they had has lapsed by
        now."""
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


class ClaimChecks:
    """Compares what a subscriber says that it has in a tree with what the owner has. Remembers,
    where they differ, which registrations have not been registered again since: at most all that
    the subscriber has there."""

    def __init__(self) -> None:
        self._unconfirmed: dict[tuple[NodeId, str], dict[str, None]] = {}

    def check(
        self, subscriber: NodeId, attribute: str, ids: tuple[str, ...], claim: tuple[int, int]
    ) -> tuple[bool, tuple[str, ...]]:
        """Whether `claim` (number and digest) is right for the registrations `ids`, and which of
        them have to end for that. If it is not, all are unconfirmed until they are registered
        again."""
        if (len(ids), ids_digest(ids)) == claim:
            self._unconfirmed.pop((subscriber, attribute), None)
            return True, ()
        unconfirmed = self._unconfirmed.pop((subscriber, attribute), {})
        confirmed = [id_ for id_ in ids if id_ not in unconfirmed]
        if (len(confirmed), ids_digest(confirmed)) == claim:
            return True, tuple(id_ for id_ in ids if id_ in unconfirmed)
        self._unconfirmed[subscriber, attribute] = dict.fromkeys(ids)
        return False, ()

    @property
    def is_any_unconfirmed(self) -> bool:
        """Whether `registered` has to be told anything."""
        return bool(self._unconfirmed)

    def registered(self, subscriber: NodeId, attribute: str, id_: str) -> None:
        """Note that the subscriber has registered this one again: it is not unconfirmed any
        more."""
        if unconfirmed := self._unconfirmed.get((subscriber, attribute)):
            unconfirmed.pop(id_, None)

    def clear(self) -> None:
        """Forget all, when the node is no longer the primary."""
        self._unconfirmed.clear()
