"""Nodes that this one does not reach, and who may relay deliveries to them (P3).

A link can be broken while both its ends live. What it does not carry is sent through a *relay*, any
other node, which gives back what it cannot deliver either. That must come to an end where the node
is really gone: deliveries for it would go round for ever, and faster the sooner each attempt fails.

A link may also be silent for a while before it counts as lost (it is *suspected*). What waits on it
is sent through a relay, too, and stays on the link: `copied` names it, so that it is not sent a
third time when the link is lost, unless the relay has given it back. Where a relay gives back while
the link is suspected, it is the node that stands still and not the link, and nothing more is
copied.

So it is remembered since when a node's link is lost, and which relays gave something back for it
lately. They are passed over, and after `RELAYS_MOST` of them no more are tried for a while. What no
relay brings is held (hold.py). One that brought something is used as long as it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.machine import NodeId, Peer, Port, Region
from overlay.regions import distance
from overlay.upper_tree.delivery.constants import (
    COPIED_MOST,
    LOST_PEERS_MOST,
    RELAY_FAILED_FOR,
    RELAYS_MOST,
    RETRY_FOR,
)
from overlay.upper_tree.messages import Deliver, Undelivered

DeliveryKey = tuple[str, int, int, str, NodeId]
"""One delivery: an event's (publisher, incarnation, sequence), the tree, and the host whose
delegate delivers it ("": the host itself). Two hosts may be each other's relays for one event."""


PASSED = ">"
"""Before the host in the key of what a relay passes on."""


def delivery_keys(events: Sequence[Event], attribute: str, host: NodeId) -> list[DeliveryKey]:
    """The keys of these events' deliveries through one tree."""
    return [(e.publisher, e.incarnation, e.sequence, attribute, host) for e in events]


def keys_of(message: Deliver) -> list[DeliveryKey]:
    """The keys of a message whose events all came through one tree. What the receiver only passes
    on is another delivery than the same event for itself."""
    host = "" if message.host is None else message.host.id
    host = PASSED + host if message.passing else host
    return delivery_keys(message.events, message.attribute, host)


def take_copied(copied: Counter[DeliveryKey], keys: Sequence[DeliveryKey]) -> bool:
    """Whether all of these deliveries were copied to a relay. If so, each is removed once from
    `copied`: a delivery that was returned and sent again may wait twice on a link."""
    if not all(copied[key] > 0 for key in keys):
        return False
    copied.subtract(keys)
    return True


class UnreachableNode(msgspec.Struct):
    """A node whose link was lost and has not come up since."""

    since: float
    failed: dict[NodeId, float] = {}  # relays that gave back, and when
    reached_by: NodeId = ""  # a relay that brought something


class SuspectedNode(msgspec.Struct):
    """A node whose link is silent just now."""

    peer: Peer
    copied: Counter[DeliveryKey] = msgspec.field(default_factory=Counter)
    """Deliveries that a relay has as well, with the number of copies."""
    is_stalled: bool = False  # a relay cannot reach the node either


class Relays:
    """Bounded: `LOST_PEERS_MOST` nodes, with some relays each; suspected are those with a
    session."""

    def __init__(
        self,
        port: Port,
        others: Callable[[], Sequence[Peer]],
        tiered: Callable[[], Sequence[Peer]] = tuple,
        passes_on: Callable[[NodeId], bool] = lambda node: True,
        has_standing: Callable[[NodeId], bool] = lambda node: True,
    ) -> None:
        """`others`: nodes that may relay; `tiered`: nodes with a tier, of all regions; `passes_on`:
        whether a node does anything for others (a leaf does not); `has_standing`: whether it may be
        asked to (`tree.delegates`)."""
        self.passes_on = passes_on
        self.has_standing = has_standing
        self.port = port
        self.others = others
        self.tiered = tiered
        self._unreachable: BoundedDict[NodeId, UnreachableNode] = BoundedDict(LOST_PEERS_MOST)
        self._suspected: dict[NodeId, SuspectedNode] = {}

    # --- suspected links ---

    def copy(self, peer: Peer, message: Deliver) -> bool:
        """Return whether to relay a message that waits on a node's suspected link; if so, note it
        as copied."""
        suspected = self._suspected.setdefault(peer.id, SuspectedNode(peer))
        if suspected.is_stalled or len(suspected.copied) + len(message.events) > COPIED_MOST:
            return False
        suspected.copied.update(keys_of(message))
        return True

    def link_recovered(self, node: NodeId) -> None:
        """Forget that the node was suspected, because its link is no longer silent."""
        self._suspected.pop(node, None)

    def copied(self, node: NodeId) -> Counter[DeliveryKey]:
        """Return the deliveries that wait on the node's suspected link and that a relay also
        has."""
        suspected = self._suspected.get(node)
        return Counter() if suspected is None else suspected.copied

    def take_back(self, message: Undelivered) -> list[Event]:
        """A relay or delegate gave this back. Returns the events that wait on no link of this
        node."""
        suspected = self._suspected.get(message.peer.id)
        if suspected is None:
            return list(message.events)
        suspected.is_stalled = True
        keys = delivery_keys(message.events, message.attribute, "")
        waits = [take_copied(suspected.copied, (key,)) for key in keys]
        return [event for event, is_here in zip(message.events, waits, strict=True) if not is_here]

    def suspected(self) -> list[Peer]:
        """The nodes whose links are silent now while something waits there."""
        return [each.peer for each in self._suspected.values()]

    def is_silent(self, node: NodeId) -> bool:
        """Whether the node's link is silent, or lost."""
        return node in self._suspected or node in self._unreachable

    # --- lost links ---

    def link_lost(self, node: NodeId) -> None:
        """Note that the link to the node is lost, with the messages that waited there."""
        self._suspected.pop(node, None)
        if node not in self._unreachable:
            self._unreachable[node] = UnreachableNode(self.port.now)

    def forget(self, node: NodeId) -> None:
        """Forget all suspicions of a node whose link came up, or whose process ended."""
        self._unreachable.pop(node, None)
        self._suspected.pop(node, None)

    def gave_back(self, node: NodeId, relay: NodeId) -> None:
        """Note that a relay could not reach the node, so that it is not chosen again at once."""
        lost = self._unreachable.get(node)
        if lost is not None:
            lost.failed[relay] = self.port.now
            if lost.reached_by == relay:
                lost.reached_by = ""

    def relay_reaches(self, node: NodeId, relay: NodeId) -> None:
        """Note that a relay reaches the node, so that it is chosen again."""
        lost = self._unreachable.get(node)
        if lost is not None:
            lost.reached_by = relay

    def is_lost(self, node: NodeId) -> bool:
        """Whether the link to the node is lost and has not come up since."""
        return node in self._unreachable

    def lost_since(self, node: NodeId) -> float:
        """Return when the link to the node was lost; the present time if it is not lost."""
        lost = self._unreachable.get(node)
        return self.port.now if lost is None else lost.since

    def is_stalled(self, node: NodeId) -> bool:
        """Whether the node's link is suspected and a relay could not reach the node either."""
        suspected = self._suspected.get(node)
        return suspected is not None and suspected.is_stalled

    def is_worth_retrying(self, node: NodeId) -> bool:
        """Whether the node's link is not lost, or was lost less than `RETRY_FOR` ago."""
        lost = self._unreachable.get(node)
        return lost is None or self.port.now - lost.since < RETRY_FOR

    def relay(self, node: NodeId, region: Region = "") -> Peer | None:
        """Another node whose link is neither lost nor suspected, and that did not fail to reach the
        node, which is in `region`, lately: one that brought something, else one of those with the
        fewest borders on the way over it (M1), or after a failure of any, chosen at random. None
        after several have failed."""
        lost = self._unreachable.get(node)
        if lost is not None:
            self._forget_failures(lost)
        failed = {} if lost is None else lost.failed
        if len(failed) >= RELAYS_MOST:
            return None
        fit = [peer for peer in self._sound(node) if peer.id not in failed]
        for peer in fit:
            if lost is not None and peer.id == lost.reached_by:
                return peer
        if region and fit and not failed:  # else links between the regions may be broken
            borders = [self._borders(peer.region, region) for peer in fit]
            least = min(borders)
            fit = [peer for peer, count in zip(fit, borders, strict=True) if count == least]
        return self.port.rng.choice(fit) if fit else None

    def stand_in(self, peer: Peer) -> Peer | None:
        """Return a node that may take over deliveries to `peer` from this one: `relay`, or else
        any node whose link is neither lost nor suspected, even if it did not reach the node
        recently."""
        relay = self.relay(peer.id, peer.region)
        if relay is not None:
            return relay
        fit = self._sound(peer.id)
        return self.port.rng.choice(fit) if fit else None

    def _sound(self, node: NodeId) -> list[Peer]:
        """The other nodes whose links are neither lost nor suspected."""
        return [
            peer
            for peer in self.others()
            if peer.id not in (node, self.port.me.id)
            and peer.id not in self._unreachable
            and peer.id not in self._suspected
        ]

    def is_nearer(self, one: Peer, other: Peer, to: Peer) -> bool:
        """Whether there are fewer borders on the way over one node than over the other."""
        return self._borders(one.region, to.region) < self._borders(other.region, to.region)

    def _borders(self, over: Region, to: Region) -> int:
        """Return how many borders there are on the way over a region to another one."""
        return distance(self.port.me.region, over) + distance(over, to)

    def _forget_failures(self, lost: UnreachableNode) -> None:
        now = self.port.now
        lost.failed = {n: at for n, at in lost.failed.items() if now - at < RELAY_FAILED_FOR}
