"""Lets through what peers may send: between the links and the machines of a node (overlay/rights).

Where nodes have no keys it is not in the way at all: the links dispatch to the machines.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from overlay.bounded import BoundedDict
from overlay.machine import Message, NodeId, Peer, ProtocolError
from overlay.rights import Principal, Role, refusal
from overlay.settings import Settings

PRINCIPALS_MOST = 65_536
"""Authenticated nodes that are remembered: more than have links with one node. One that is
forgotten is refused until it connects again."""

NOBODY = "unauthenticated"
"""No node has this id, so that no greeting fits a connection that was not authenticated."""


class Guard:
    """Knows who was authenticated, and refuses what is beyond its rights."""

    def __init__(
        self,
        me: NodeId,
        role: Role | None,
        dispatch: Callable[[Peer, Message], None],
        count: Callable[[str], None],
        trace: Callable[..., None],
    ) -> None:
        """`role`: of this node, None where nodes have no keys; `dispatch` takes what is let
        through."""
        self.role = role
        self.dispatch = dispatch if role is None else self._check
        """To be called with each message that came over a link."""
        self._dispatch = dispatch
        self._count = count
        self._trace = trace
        self._known: BoundedDict[NodeId, Principal] = BoundedDict(PRINCIPALS_MOST)
        if role is not None:
            self._known[me] = Principal(me, role, "")

    def admit(self, principal: Principal | None) -> NodeId:
        """A connection is open. Returns the only node that may speak on it; "": any."""
        if self.role is None:
            return ""
        if principal is None:
            return NOBODY
        self._known.renew(principal.id, principal)
        return principal.id

    def takes_part(self, node: NodeId) -> bool:
        """Whether a node may be in views: not if it is known to be a leaf."""
        known = self._known.get(node)
        return known is None or known.role > Role.LEAF

    def _check(self, peer: Peer, message: Message) -> None:
        """Dispatch what `peer` may send. Raises ProtocolError for the rest, which closes its
        session, with a penalty."""
        principal = self._known.get(peer.id)
        reason = refusal(principal, message) if principal else "not authenticated"
        if reason:
            self._count("rights_refused")
            self._trace("drop", peer=peer.id, reason=reason, size=0)
            raise ProtocolError(reason)
        self._dispatch(peer, message)


def settings_for(role: Role, settings: Settings) -> Settings:
    """`settings` for a node with this role: one that may not vote is not to be recruited."""
    if role >= Role.VOTER:
        return settings
    cluster = msgspec.structs.replace(settings.cluster, serve=False)
    return msgspec.structs.replace(settings, cluster=cluster)
