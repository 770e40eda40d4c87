"""Acceptances of hosts that the tree's owner has not named (yet).

An access point is hearsay: whoever answers a walk may name itself, accept what visits it, and drop
it. So where nodes have keys (`walk.confirm`) an acceptance counts once the owner has named that
host; until then the event stays pending. It is asked once for each tree, while the event is on its
way, so that nothing is delivered later than without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from overlay.machine import NodeId
from overlay.upper_tree.publisher.constants import DOUBTED_MOST, HOSTS_DOUBTED_MOST
from overlay.upper_tree.publisher.location_cache import LocationCache

Taken = tuple[tuple[str, ...], tuple[int, ...]]
"""Attributes of trees that have taken events, and the sequence numbers of these."""


class Doubts:
    """Keeps acceptances from hosts that a tree's owner has not named yet, until the owner answers.
    For each tree it keeps at most `HOSTS_DOUBTED_MOST` hosts with `DOUBTED_MOST` events each. It
    ignores further acceptances, and their events are sent to another host after a while."""

    def __init__(
        self,
        me: NodeId,
        locations: LocationCache,
        is_sent: Callable[[str, tuple[int, ...]], bool],
    ) -> None:
        """`is_sent`: whether some of these events were sent to a host of this tree, of which
        nothing may be known any more."""
        self._is_sent = is_sent
        self._me = me
        self._locations = locations
        self._by_tree: dict[str, dict[NodeId, dict[int, None]]] = {}

    def believed(self, host: NodeId, taken: Iterable[Taken]) -> list[Taken]:
        """The part of this that counts at once; the rest is kept until its trees' owners have
        answered."""
        found: list[Taken] = []
        for attributes, sequences in taken:
            certain = tuple([name for name in attributes if self.is_certain(name, host)])
            if certain:
                found.append((certain, sequences))
            for name in attributes:
                if name not in certain and (
                    self._locations.knows(name) or self._is_sent(name, sequences)
                ):
                    self._doubt(name, host, sequences)
        return found

    def trees(self) -> tuple[str, ...]:
        """The trees whose owners are to be asked."""
        return tuple(self._by_tree)

    def _doubt(self, attribute: str, host: NodeId, sequences: tuple[int, ...]) -> None:
        hosts = self._by_tree.setdefault(attribute, {})
        self._locations.doubt(attribute)
        if host not in hosts and len(hosts) >= HOSTS_DOUBTED_MOST:
            return
        doubted = hosts.setdefault(host, {})
        doubted.update(dict.fromkeys(sequences[: DOUBTED_MOST - len(doubted)]))

    def settle(self, attribute: str) -> list[tuple[NodeId, tuple[int, ...], bool]]:
        """Remove and return the doubted acceptances of a tree whose owner has answered, or has said
        that there are no subscribers. Each entry has the node that sent the acceptance, the
        sequence numbers of the events, and whether the node is a host of the tree. Hosts come
        first, because an event that a host has accepted need not be sent again on account of
        another node."""
        self._locations.settle(attribute)
        found = [
            (host, tuple(sequences), self._locations.is_confirmed(attribute, host))
            for host, sequences in self._by_tree.pop(attribute, {}).items()
        ]
        return sorted(found, key=lambda one: not one[2])

    def is_certain(self, attribute: str, host: NodeId) -> bool:
        """Whether the tree's owner has named this host."""
        return host == self._me or self._locations.is_confirmed(attribute, host)
