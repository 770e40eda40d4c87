"""Who may order this host about: members of the cluster that covers the tree, by the ring.

A host obeys whoever speaks of a tree under the highest epoch, since epochs are unique and grow.
With keys that is not enough: any voter could take trees away from their hosts by naming a higher
epoch. So an order counts at once if its sender serves, by what is known here, in the cluster whose
arc the tree's key lies in. Of another sender, perhaps the primary of a cluster that has just taken
the arc over, the order waits while the ring is asked who owns the key; if it does not name the
sender the order is dropped. A refused order raises no epoch, so it fences nobody.

A member that lies can still claim a higher epoch of its own cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from overlay.chord.events import OwnerFound, OwnerUnknown
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.chord.ring.ring import Ring
from overlay.machine import Alarm, Handlers, Key, Machine, Message, NodeId, Peer, Port, Timer
from overlay.upper_tree.host.constants import CLAIM_AGAIN, CLAIM_WAIT, CLAIMS_MOST
from overlay.upper_tree.messages import Assign, Install, ServingBeat, TreesHosted, Uninstall

Order = Assign | Install | Uninstall | ServingBeat | TreesHosted


class ClaimsDue(Timer, frozen=True):
    """Ask the ring again about those whose orders wait."""


class OwnerClaims(Machine):
    """Lets through the orders of those who may give them."""

    def __init__(
        self,
        port: Port,
        ring: Ring,
        take: Callable[[Peer, Message], None],
        kinds: Mapping[type[Message], object],
    ) -> None:
        """`take` takes what is let through, of these `kinds` of messages."""
        super().__init__(port)
        self._ring = ring
        self._take = take
        self._kinds = tuple(kinds)
        self._waiting: dict[NodeId, deque[tuple[float, Peer, Order]]] = {}
        self._again = Alarm(port, ClaimsDue())

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {**super().handlers(), **dict.fromkeys(self._kinds, self.take)}

    def take(self, sender: Peer, message: Order) -> None:
        """Take an order, or keep it until the ring has said who owns the key."""
        key = key_of_order(message)
        waiting = self._waiting.get(sender.id)
        if waiting is None and self._is_known(sender.id, self._ring.covering(key)):
            self._take(sender, message)
            return
        if waiting is None:
            waiting = self._waiting[sender.id] = deque()
        if sum(map(len, self._waiting.values())) >= CLAIMS_MOST:
            self.port.count("orders_refused")
            return
        waiting.append((self.port.now, sender, message))
        self._ring.find(key)
        self._again.within(CLAIM_AGAIN)

    def _is_known(self, node: NodeId, cluster: Cluster | None) -> bool:
        return node == self.port.me.id or (cluster is not None and cluster.has_member(node))

    def on_owner_found(self, event: OwnerFound) -> None:
        """Decide about the orders for the arc that was found."""
        for node, waiting in list(self._waiting.items()):
            left: deque[tuple[float, Peer, Order]] = deque()
            for since, sender, message in waiting:
                if not event.cluster.owns(key_of_order(message)):
                    left.append((since, sender, message))
                elif self._is_known(node, event.cluster):
                    self._take(sender, message)
                else:
                    self.port.count("orders_refused")
            self._keep(node, left)

    def on_claims_due(self, timer: ClaimsDue) -> None:
        """Ask again about what waits, and drop what has waited for too long."""
        self._again.rang()
        oldest = self.port.now - CLAIM_WAIT
        for node, waiting in list(self._waiting.items()):
            left = deque(each for each in waiting if each[0] > oldest)
            self.port.count("orders_refused", len(waiting) - len(left))
            self._keep(node, left)
            for key in dict.fromkeys(key_of_order(message) for _, _, message in left):
                self._ring.find(key)
        if self._waiting:
            self._again.within(CLAIM_AGAIN)

    def on_owner_unknown(self, event: OwnerUnknown) -> None:
        """Nobody answers just now: `ClaimsDue` asks again."""

    def _keep(self, node: NodeId, left: deque[tuple[float, Peer, Order]]) -> None:
        if left:
            self._waiting[node] = left
        else:
            self._waiting.pop(node, None)


def key_of_order(message: Order) -> Key:
    """The key whose owner gives this order."""
    if isinstance(message, ServingBeat | TreesHosted):
        return message.key
    return attribute_key(message.attribute)
