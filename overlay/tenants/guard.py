"""Lets through what peers may send: between the links and the machines of a node (overlay/rights,
and for tenants overlay/tenants/confinement).

Where nodes have no keys it is not in the way at all: the links dispatch to the machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from overlay.bounded import BoundedDict
from overlay.machine import Message, NodeId, Peer, Port, ProtocolError
from overlay.rights import Principal, Role, refusal
from overlay.settings import Settings
from overlay.tenants.confinement import Rule, Ruling, outcome
from overlay.tenants.policy import PolicySource
from overlay.tenants.quotas import Quotas
from overlay.upper_tree.messages import Confined, Register

PRINCIPALS_MOST = 65_536
"""Authenticated nodes that are remembered: more than have links with one node. One that is
forgotten has to connect again."""

NOBODY = "unauthenticated"
"""No node has this id, so that no greeting fits a connection that was not authenticated."""


class NotAuthenticatedError(ProtocolError):
    """A node whose authenticated identity this node has forgotten has sent a message. It connects
    again."""

    is_fault = False


class Guard:
    """Knows the authenticated nodes, and refuses messages that exceed their rights."""

    def __init__(
        self,
        port: Port,
        role: Role | None,
        tenant: str,
        rules: Mapping[type[Message], Rule],
        policies: PolicySource,
        dispatch: Callable[[Peer, Message], None],
    ) -> None:
        """`role` and `tenant`: of this node, None and "" where nodes have no keys. `rules` and
        `policies`: how messages of tenants are handled. `dispatch` takes permitted messages."""
        me = port.me.id
        self.role = role
        self.is_leaf = role is Role.LEAF
        self.dispatch = dispatch if role is None else self._check
        """The function to call with each message that came over a link."""
        self._dispatch = dispatch
        self._port = port
        self._known: BoundedDict[NodeId, Principal] = BoundedDict(PRINCIPALS_MOST)
        if role is not None:
            self._known[me] = Principal(me, role, tenant)
        self._self = Principal(me, role, tenant) if role is not None and tenant else None
        self._bound = None
        if role is not None and role < Role.VOTER:
            self._bound = Principal(me, role, tenant)
        self.may_withhold = self._bound is not None
        """Whether there is anything that this node may not say (`withholds`)."""
        self._rules = rules
        self._policies = policies
        self._quotas = Quotas(port, policies)

    @property
    def is_keyed(self) -> bool:
        """Whether nodes have keys."""
        return self.role is not None

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

    def votes(self, node: NodeId) -> bool | None:
        """Whether a node may lead clusters, by its role. None: it is not known, since this node had
        no connection with it. Without keys any node may."""
        if self.role is None:
            return True
        known = self._known.get(node)
        return None if known is None else known.role >= Role.VOTER

    def _check(self, peer: Peer, message: Message) -> None:
        """Dispatch what `peer` may send. Raises ProtocolError for the rest, if there is much of it:
        that closes its session, with a penalty."""
        principal = self._known.get(peer.id)
        if principal is None:
            raise NotAuthenticatedError("not authenticated")
        reason = refusal(principal, message)
        if reason:
            self._port.count("rights_refused")
            self._port.trace("drop", peer=peer.id, reason=reason, size=0)
            if not self._quotas.pardons(principal):
                raise ProtocolError(reason)
            return
        if principal.tenant or principal.role is Role.LEAF:
            self._confine(peer, principal, message)
        else:
            self._dispatch(peer, _without_claims(message))

    def withholds(self, message: Message) -> bool:
        """Return whether this node must not send the message, since its role does not permit it.
        Others can provoke messages: a leaf that is asked for knowledge of voters would otherwise
        refuse in a message that only voters may send."""
        if self._bound is None or not refusal(self._bound, message):
            return False
        self._port.count("rights_withheld")
        return True

    def _confine(self, peer: Peer, principal: Principal, message: Message) -> None:
        """Dispatch what a leaf has a quota for, and a tenant may say and see."""
        over = self._quotas.outcome(principal, message) if principal.role is Role.LEAF else None
        if over is not None:
            self._port.count("quota_refused", over.refused)
            reason = f"quota: {type(message).__name__}"
            self._port.trace("drop", peer=principal.id, reason=reason, size=0)
        elif principal.role is Role.LEAF:
            left, cut = self._quotas.shortened(principal, message)
            if cut:
                self._port.count("quota_refused", cut)
                reason = "quota: long selectors"
                self._port.trace("drop", peer=principal.id, reason=reason, size=0)
            if left is None:
                return
            message = left
        found = over or self._outcome(principal, message)
        if found.message is not None:
            self._dispatch(peer, found.message)
        for answer in found.answers:
            self._port.send(peer, answer)

    def _outcome(self, principal: Principal, message: Message) -> Ruling:
        if not principal.tenant:
            return Ruling(_marked(message))
        found = outcome(self._rules, self._policies.confinement, principal, message)
        if found.refused:
            self._port.count("policy_refused", found.refused)
            reason = f"policy: {type(message).__name__}"
            self._port.trace("drop", peer=principal.id, reason=reason, size=0)
        return found

    def own(self, message: Message) -> tuple[Message, ...]:
        """Return the messages that this node handles in place of a message to itself: its own
        tenant is confined like any other."""
        if self._self is None or type(message) not in self._rules:
            return (message,)
        found = self._outcome(self._self, message)
        return found.answers if found.message is None else (found.message, *found.answers)


def _without_claims(message: Message) -> Message:
    """A registration of the operators' own nodes is not of a tenant, whatever it says."""
    if type(message) is not Register or all(one.confined is None for one in message.registrations):
        return message
    return msgspec.structs.replace(
        message,
        registrations=tuple(
            [msgspec.structs.replace(one, confined=None) for one in message.registrations]
        ),
    )


def _marked(message: Message) -> Message:
    """A registration of a leaf without a tenant: hosts hear that it passes nothing on."""
    if type(message) is not Register:
        return message
    return msgspec.structs.replace(
        message,
        registrations=tuple(
            [
                msgspec.structs.replace(one, confined=Confined("", one.selector))
                for one in message.registrations
            ]
        ),
    )


def settings_for(role: Role, settings: Settings) -> Settings:
    """`settings` for a node with this role: one that may not vote is not to be recruited, and what
    *auto* leaves to keys is on."""
    if settings.view.sampling == "auto":
        view = msgspec.structs.replace(settings.view, sampling="ranked")
        settings = msgspec.structs.replace(settings, view=view)
    if settings.walk.confirm == "auto":
        walk = msgspec.structs.replace(settings.walk, confirm="always")
        settings = msgspec.structs.replace(settings, walk=walk)
    if settings.cluster.commit == "auto":
        cluster = msgspec.structs.replace(settings.cluster, commit="more")
        settings = msgspec.structs.replace(settings, cluster=cluster)
    if settings.tree.delegates == "auto":
        tree = msgspec.structs.replace(settings.tree, delegates="voters")
        settings = msgspec.structs.replace(settings, tree=tree)
    if role >= Role.VOTER:
        return settings
    cluster = msgspec.structs.replace(settings.cluster, serve=False)
    return msgspec.structs.replace(settings, cluster=cluster)
