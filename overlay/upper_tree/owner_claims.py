"""Knows who speaks for a tree's owner: the primary of the cluster that covers it, by the ring.

A host obeys whoever speaks of a tree under the highest epoch, and a publisher rejects answers under
lower ones than that of an `Invalidate`, since epochs are unique and grow. With keys that is not
enough: any voter could take trees away from their hosts, or have publishers believe no owner's
answer, by naming a higher epoch. So an order counts at once if its sender leads, by what is known
here, the cluster whose arc the tree's key lies in. Of another sender, perhaps one that has just
been elected or has taken the arc over, the order waits while the ring is asked who owns the key,
and its answer has to be proven (overlay/chord/ring/claims.py); if it does not name the sender the
order is dropped. A refused order raises no epoch, so it fences nobody.

A true owner of which the ring did not know in time has to hear that a host dropped its order, since
it awaits the answer as long as the link is up: `OrdersRefused` says so, and the owner gives the
host everything again. (An owner that recalls a summary waits until the publisher's copy has
expired.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from overlay.chord.events import OwnerFound, OwnerUnknown
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.chord.ring.ring import Ring
from overlay.machine import Alarm, Handlers, Key, Machine, Message, NodeId, Peer, Port, Timer
from overlay.upper_tree.messages import (
    AskCached,
    Assign,
    Install,
    Invalidate,
    OrdersRefused,
    ServingBeat,
    TreesHosted,
    Uninstall,
)

Order = Assign | Install | Uninstall | ServingBeat | TreesHosted | Invalidate | AskCached

CLAIM_AGAIN: Final = 1.0
"""Seconds after which the ring is asked again about an order whose sender is not known to serve in
the tree's cluster: a lookup takes less. Guess."""

CLAIM_WAIT: Final = 10.0
"""Seconds for which such an order waits: longer than the arc of a lost cluster has no owner."""

CLAIMS_MOST: Final = 10_000
"""Orders that wait: some megabytes of registrations."""


class ClaimsDue(Timer, frozen=True):
    """Ask the ring again about those whose orders wait."""


class RecallsDue(ClaimsDue, frozen=True):
    """As `ClaimsDue`, of a publisher."""


class OwnerClaims(Machine):
    """Lets through the orders of those who may give them."""

    def __init__(
        self,
        port: Port,
        ring: Ring,
        take: Callable[[Peer, Any], None],
        kinds: Mapping[Any, object],
        due: ClaimsDue,
        keys_of: Callable[[Any], Iterable[Key]] | None = None,
    ) -> None:
        """`take` takes permitted messages of these `kinds`. `due`: a timer type of its own for each
        machine of this kind on a node. `keys_of`: returns the keys that an order concerns; None:
        those of its trees."""
        super().__init__(port)
        self._ring = ring
        self._take = take
        self._keys_of: Callable[[Any], Iterable[Key]] = keys_of or keys_of_order
        self._kinds = tuple(kinds)
        self._waiting: dict[NodeId, deque[tuple[float, Peer, Message]]] = {}
        self._due = due
        self._again = Alarm(port, due)

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        found = dict(super().handlers())
        found[type(self._due)] = found.pop(ClaimsDue)
        return {**found, **dict.fromkeys(self._kinds, self.take)}

    def take(self, sender: Peer, message: Message) -> None:
        """Take an order, or keep it until the ring has said who owns the key."""
        waiting = self._waiting.get(sender.id)
        key = self._unknown(sender.id, message)
        if waiting is None and key is None:
            self._take(sender, message)
            return
        if sum(map(len, self._waiting.values())) >= CLAIMS_MOST:
            self._refuse(sender, [message])
            return
        self._waiting.setdefault(sender.id, deque()).append((self.port.now, sender, message))
        if key is not None:
            self._ring.find(key)
        self._again.within(CLAIM_AGAIN)

    def _unknown(self, node: NodeId, message: Message, found: Cluster | None = None) -> Key | None:
        """The first key of this order whose cluster `node` is not known to lead; None: it
        leads all of them. `found`: a cluster that the ring has just named."""
        for key in self._keys_of(message):
            is_named = found is not None and found.owns(key)
            if not self._is_known(node, found if is_named else self._ring.covering(key)):
                return key
        return None

    def _is_known(self, node: NodeId, cluster: Cluster | None) -> bool:
        return node == self.port.me.id or (cluster is not None and cluster.primary.id == node)

    def on_owner_found(self, event: OwnerFound) -> None:
        """Decide about the orders for the arc that was found."""
        for node, waiting in list(self._waiting.items()):
            left: deque[tuple[float, Peer, Message]] = deque()
            refused: list[Message] = []
            for since, sender, message in waiting:
                unknown = self._unknown(node, message, event.cluster)
                if unknown is None:
                    self._take(sender, message)
                elif event.cluster.owns(unknown):
                    refused.append(message)
                else:
                    left.append((since, sender, message))
            self._refuse(waiting[0][1], refused)  # all are of one sender
            self._keep(node, left)

    def on_claims_due(self, timer: ClaimsDue) -> None:
        """Ask again about waiting orders, and drop those that have waited too long."""
        self._again.rang()
        oldest = self.port.now - CLAIM_WAIT
        for node, waiting in list(self._waiting.items()):
            left = deque(each for each in waiting if each[0] > oldest)
            self._refuse(waiting[0][1], [each[2] for each in waiting if each[0] <= oldest])
            self._keep(node, left)
            asked = [self._unknown(node, message) for _, _, message in left]
            for key in dict.fromkeys(key for key in asked if key is not None):
                self._ring.find(key)
        if self._waiting:
            self._again.within(CLAIM_AGAIN)

    def on_owner_unknown(self, event: OwnerUnknown) -> None:
        """Do nothing: no owner answers at present, and `ClaimsDue` asks again."""

    def _refuse(self, sender: Peer, orders: Sequence[Message]) -> None:
        """Drop these orders, and say so to who gave them if it awaits that they are followed."""
        if not orders:
            return
        self.port.count("orders_refused", len(orders))
        trees = {o.attribute: None for o in orders if isinstance(o, Assign | Install | Uninstall)}
        if trees:
            self.port.send(sender, OrdersRefused(tuple(trees)))

    def _keep(self, node: NodeId, left: deque[tuple[float, Peer, Message]]) -> None:
        if left:
            self._waiting[node] = left
        else:
            self._waiting.pop(node, None)


def keys_of_order(message: Order) -> Iterator[Key]:
    """The keys whose owner gives this order."""
    match message:
        case Invalidate():
            yield from map(attribute_key, message.attributes)
        case AskCached():
            yield message.cluster.key
        case ServingBeat() | TreesHosted():
            yield message.key
        case _:
            yield attribute_key(message.attribute)
