"""How much each host serves, kept as trees change: who plants a tree asks for it each time (C6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from overlay.machine import NodeId


class HostLoads:
    """Per host the registrations in its virtual nodes, plus one for each virtual node. What a tree
    adds is counted anew only after it has changed."""

    def __init__(self) -> None:
        self._total: dict[NodeId, int] = {}
        self._by_tree: dict[str, dict[NodeId, int]] = {}  # as counted last
        self._changed: dict[str, None] = {}

    def changed(self, attribute: str) -> None:
        """The tree's map or its registrations are others now, or it came or went."""
        self._changed[attribute] = None

    def take_changed(self) -> list[str]:
        """The trees that have changed since; each is to be counted by `count`."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def count(self, attribute: str, shares: Iterable[tuple[NodeId, int]]) -> None:
        """The tree adds this to the hosts' loads from now on; nothing if it is gone."""
        for host, load in self._by_tree.pop(attribute, {}).items():
            self._total[host] -= load
            if not self._total[host]:
                del self._total[host]
        mine: dict[NodeId, int] = {}
        for host, load in shares:
            mine[host] = mine.get(host, 0) + load
        for host, load in mine.items():
            self._total[host] = self._total.get(host, 0) + load
        if mine:
            self._by_tree[attribute] = mine

    def clear(self) -> None:
        """Forget what all trees put on hosts, as at the end of a primary's term."""
        self._total.clear()
        self._by_tree.clear()
        self._changed.clear()

    @property
    def total(self) -> Mapping[NodeId, int]:
        """Registrations in the virtual nodes of all owned trees that each host serves, by node."""
        return self._total
