"""How an event enters another region: once, at an access node there (M1).

    host ──► d (near) ──► …
    ├──► a in eu ──► e1, e2 …
    └──► b in us ──► u1 ──► …

A node groups the recipients of an event by the border that the event has to cross on its way to
them (overlay/regions.py). One node behind each border, the *access node*, gets the event with all
the others there as its share, as a delegate does. It may have borders of its own to cross, into the
parts of its region.

The access node is one of the highest tier among the recipients there, or one of a still higher tier
of which this node has heard, interested or not. Among equals it is the first by rendezvous hashing:
for one sender the same as long as it is among them, so that few links cross the border, and another
one for another sender. Nodes whose link is silent or lost are passed over. While links to nodes
behind a border are silent more access nodes are taken, one for each of these: where a whole region
is cut off the sender finds that out in some steps instead of one node after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b

from overlay.bounded import BoundedDict
from overlay.machine import NodeId, Peer, Port
from overlay.regions import entered
from overlay.upper_tree.delivery.constants import WEIGHED_MOST
from overlay.upper_tree.delivery.fan_out import Part
from overlay.upper_tree.delivery.recipients import Recipient
from overlay.upper_tree.delivery.relays import Relays


class AccessNodes:
    """One node's choice of access nodes."""

    def __init__(self, port: Port, relays: Relays) -> None:
        """`relays`: which nodes are out of reach, and which have a tier."""
        self._port = port
        self._relays = relays
        self._weights: BoundedDict[NodeId, bytes] = BoundedDict(WEIGHED_MOST)

    def joins(self, peers: Iterable[Peer]) -> bool:
        """Whether an event for all of these would cross some border for two of them."""
        mine = self._port.me.region
        crossed = [region for each in peers if (region := entered(mine, each.region))]
        return len(crossed) > len(dict.fromkeys(crossed))

    def divide(
        self, recipients: Sequence[Recipient]
    ) -> tuple[list[Recipient], list[Part[Recipient]]]:
        """The recipients that no border divides from this node; and of the others, for each border,
        an access node with the rest as its share."""
        mine = self._port.me.region
        near: list[Recipient] = []
        behind: dict[str, list[Recipient]] = {}
        for each in recipients:
            region = entered(mine, each.peer.region)
            (behind.setdefault(region, []) if region else near).append(each)
        far: list[Part[Recipient]] = []
        for region, some in behind.items():
            far += [(some[0], ())] if len(some) == 1 else self._enter(region, some)
        return near, far

    def _enter(self, region: str, recipients: list[Recipient]) -> list[Part[Recipient]]:
        """Access nodes for these recipients, all of whom are in `region`."""
        chosen = sorted([*recipients, *self._others(region, recipients)], key=self._rank)
        chosen = chosen[: 1 + sum(map(partial(self._is_in, region), self._relays.suspected()))]
        ids = {each.peer.id for each in chosen}
        rest = [each for each in recipients if each.peer.id not in ids]
        return [(each, tuple(rest[n :: len(chosen)])) for n, each in enumerate(chosen)]

    def _others(self, region: str, recipients: Sequence[Recipient]) -> list[Recipient]:
        """Nodes in `region` with a higher tier than any of these recipients."""
        highest, first = max(each.peer.tier for each in recipients), recipients[0]
        return [
            Recipient(peer, first.attribute, first.interval)
            for peer in self._relays.tiered()
            if peer.tier > highest
            and self._is_in(region, peer)
            and not self._relays.is_silent(peer.id)
        ]

    def _is_in(self, region: str, peer: Peer) -> bool:
        return entered(self._port.me.region, peer.region) == region

    def _rank(self, recipient: Recipient) -> tuple[bool, bool, int, bytes]:
        peer, relays = recipient.peer, self._relays
        lacks = not relays.has_standing(peer.id)
        return relays.is_silent(peer.id), lacks, -peer.tier, self._weight(peer.id)

    def _weight(self, node: NodeId) -> bytes:
        """Of rendezvous hashing for this sender."""
        weight = self._weights.get(node)
        if weight is None:
            weight = blake2b(f"{self._port.me.id} {node}".encode(), digest_size=8).digest()
            self._weights[node] = weight
        return weight
