"""Which ids are the only ones of their key and of their place, as one node has seen it.

A key has one id at a time, and of an issuer that may sign so many ids each has a place of its own
(`restrictions`). An issuer that keeps to neither is found out by every node that meets two such
ids: it believes one of them. So at one node there are never more ids of an issuer than its
certificate says, without a word between nodes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from canopy.wire.keys.chains import Vouched
from overlay.bounded import BoundedDict
from overlay.machine import NodeId

REMEMBERED: Final = 65_536
"""Keys and places; of one that is forgotten another id is believed."""


class LiveIds:
    """What was seen of keys and of places."""

    def __init__(self) -> None:
        self._generations: BoundedDict[bytes, int] = BoundedDict(REMEMBERED)
        self._places: BoundedDict[tuple[NodeId, int], Vouched] = BoundedDict(REMEMBERED)

    def refusal(self, found: Vouched, now: float, revoked: Collection[NodeId]) -> str:
        """Why another id holds instead of this one, whose chain is valid; empty: it is the one."""
        node = found.node
        generation = node.holder.generation
        if generation < self._generations.get(node.key, 0):
            return "its key has become another node"
        if node.holder.place:
            place = (found.issuers[0], node.holder.place)
            other = self._places.get(place, found)
            if (
                other.node.key != node.key
                and other.ends > now
                and (other.node.principal.id not in revoked)
            ):
                return f"its issuer has signed another node in its place {node.holder.place}"
            self._places.renew(place, found)
        self._generations.renew(node.key, generation)
        return ""
