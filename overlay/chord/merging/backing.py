"""How many voters say that they serve in a ring, where nodes have keys.

That another ring is there, and its id, is the word of whoever founded it: any voter can found one,
under the smallest id there can be. So a ring that is heard of counts for as many as serve in it by
their own word, each over a link that shows its certificate; more than `BACKERS_MOST` are no more
than that, so that of two rings with whole clusters the smaller id decides as ever. A voter alone,
whatever ids it claims, is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from overlay.bounded import BoundedDict
from overlay.chord.constants import (
    BACKERS_MOST,
    BACKING_AGAIN,
    BACKING_HOLDS,
    CONTRADICTIONS_MOST,
    RINGS_MOST,
)
from overlay.chord.messages import Cluster, Contact
from overlay.machine import NodeId, Peer, Port


class Backing:
    """What nodes have said of themselves lately."""

    def __init__(self, port: Port, votes: Callable[[NodeId], bool | None]) -> None:
        """`votes`: whether a node may lead clusters, by its certificate; None: it is not known."""
        self._port = port
        self._votes = votes
        self._asked: BoundedDict[NodeId, float] = BoundedDict(CONTRADICTIONS_MOST)
        self._since: BoundedDict[str, float] = BoundedDict(RINGS_MOST)  # when asking began
        self._heard: BoundedDict[str, dict[NodeId, float]] = BoundedDict(RINGS_MOST)

    def ask(self, ring: str, nodes: Iterable[Peer]) -> None:
        """Ask these nodes what they serve in; each once in a while."""
        now = self._port.now
        self._since.setdefault(ring, now)
        for peer in nodes:
            asked = now - self._asked.get(peer.id, float("-inf")) < BACKING_AGAIN
            if peer.id != self._port.me.id and not asked:
                self._asked.renew(peer.id, now)
                self._port.send(peer, Contact(self._port.me.id))

    def asked_for(self, ring: str) -> float:
        """For how many seconds has it been asked who serves in a ring? 0.0: not at all."""
        since = self._since.get(ring)
        return 0.0 if since is None else self._port.now - since

    def forget(self, ring: str) -> None:
        """Ask anew the next time."""
        self._since.pop(ring, None)
        self._heard.pop(ring, None)

    def heard(self, sender: Peer, cluster: Cluster) -> None:
        """A node has answered: it counts for the ring in which it serves, and no other."""
        for nodes in self._heard.values():
            nodes.pop(sender.id, None)
        if cluster.has_member(sender.id) and self._votes(sender.id) is True:
            self._heard.setdefault(cluster.ring, {})[sender.id] = self._port.now

    def backers(self, ring: str) -> int:
        """How many serve in a ring by their own word, at most `BACKERS_MOST`."""
        since = self._port.now - BACKING_HOLDS
        heard = self._heard.get(ring, {})
        return min(sum(at >= since for at in heard.values()), BACKERS_MOST)
