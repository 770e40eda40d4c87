"""What an owner takes from one leaf (docs/design/security.md#quotas).

The guard bounds how many registrations come from a leaf in a while (overlay/tenants/quotas.py).
What it has is bounded here, and so are the trees that are planted for it, each of which costs as
much as some 32 registrations. An honest leaf's node looks at its share before it registers
(overlay/lower_random/policies.py), so that its program hears of it at once; it is refused here only
if it asks for new trees faster than an owner plants them for one leaf, and asks again then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.bounded import BoundedDict
from overlay.machine import NodeId
from overlay.tenants.bucket import Bucket
from overlay.tenants.leaf_share import (
    FORMER,
    LEAF_REGISTRATIONS,
    LEAF_TREES,
    PLANTED_AT_ONCE,
    PLANTED_RATE,
)
from overlay.tenants.policy import Confinement
from overlay.upper_tree.messages import Registration
from overlay.upper_tree.owner.leaf_holdings import LeafHoldings

LEAVES_MOST: Final = 65_536
"""Leaves of which it is remembered how many trees were planted for them."""

SHARE_AGAIN: Final = 5.0
"""Seconds after which a leaf is to ask again for what is beyond its share: programs end
subscriptions, and trees may be planted."""


class LeafQuota:
    """Whether one more registration of a leaf is taken."""

    def __init__(
        self,
        is_leaf: Callable[[NodeId], bool],
        confinement: Callable[[], Confinement],
        now: Callable[[], float],
    ) -> None:
        """`is_leaf`: whether a node is known to be one, by its certificate."""
        self._is_leaf = is_leaf
        self._confinement = confinement
        self._now = now
        self._planted: BoundedDict[NodeId, Bucket] = BoundedDict(LEAVES_MOST)

    def takes(
        self, registration: Registration, held: LeafHoldings, fresh: int, plants: bool
    ) -> bool:
        """Whether there is room for it beside what its subscriber has, and `fresh` more that are
        not counted there yet (in trees that are not either: a turn takes few). `plants`: its tree
        is not there; then it is counted as planted."""
        confined, node = registration.confined, registration.subscriber.id
        if confined is None or not self._is_leaf(node):
            return True
        tenant = confined.tenant
        most = self._confinement().of(tenant).quota.subscriptions if tenant else 0
        registrations, trees = held.of(node)
        if registrations + fresh >= FORMER * (most or LEAF_REGISTRATIONS):
            return False
        is_new = not held.has(node, registration.attribute)
        if is_new and trees >= FORMER * LEAF_TREES:
            return False
        return not plants or self._plants(node)

    def _plants(self, node: NodeId) -> bool:
        bucket = self._planted.get(node)
        if bucket is None:
            bucket = self._planted[node] = Bucket()
        else:
            self._planted.move_to_end(node)
        return bucket.take(1.0, PLANTED_RATE, PLANTED_AT_ONCE, self._now())
