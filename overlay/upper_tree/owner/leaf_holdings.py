"""How much each leaf and tenant has registered in the trees of a cluster."""

from __future__ import annotations

from overlay.machine import NodeId
from overlay.upper_tree.messages import Registration


class LeafHoldings:
    """By subscriber and tree the registrations that are marked as a leaf's or a tenant's; nothing
    is kept of a subscriber that has none. Written by the cluster's state (tree_log.py)."""

    def __init__(self) -> None:
        self._total: dict[NodeId, int] = {}
        self._trees: dict[NodeId, dict[str, int]] = {}

    def of(self, subscriber: NodeId) -> tuple[int, int]:
        """Its registrations, and in how many trees they are."""
        return self._total.get(subscriber, 0), len(self._trees.get(subscriber, ()))

    def has(self, subscriber: NodeId, attribute: str) -> bool:
        """Whether it has registrations in this tree."""
        return attribute in self._trees.get(subscriber, ())

    def added(self, registration: Registration) -> None:
        """A tree has one more."""
        if registration.confined is None:
            return
        node, attribute = registration.subscriber.id, registration.attribute
        trees = self._trees.setdefault(node, {})
        trees[attribute] = trees.get(attribute, 0) + 1
        self._total[node] = self._total.get(node, 0) + 1

    def removed(self, registration: Registration) -> None:
        """A tree has one less, which was `added`."""
        if registration.confined is None:
            return
        node, attribute = registration.subscriber.id, registration.attribute
        trees = self._trees[node]
        trees[attribute] -= 1
        if not trees[attribute]:
            del trees[attribute]
        self._total[node] -= 1
        if not trees:
            del self._trees[node], self._total[node]
