"""By what an interested node knows that a delivery is from who serves its registrations.

Where nodes have keys a node makes a token for each of its processes and registers it with all that
it registers. So the owners of its trees have it, and their hosts, which put it into what they send;
with what delegates and relays are to pass on goes the token of each recipient. A delivery without
it is from a node that has nothing to do with the registration: nothing of it is taken, so that
nobody makes up events, or has true ones taken for duplicates, by guessing their identities. Hosts
may come and go, since the token comes with the registrations that they match.

The token of a later process is the greater one: of what a host has of one node in a tree that
counts. In another tree it may still have what a former process registered, and name that: so a
process takes the tokens of former ones as well, for a while after its start.
"""

from __future__ import annotations

from hmac import compare_digest

from overlay.links.statements import Tokens, serial_of
from overlay.machine import NodeId
from overlay.upper_tree.delivery.constants import FORMER_TOKENS_FOR
from overlay.upper_tree.messages import Registration


class OwnToken:
    """The token that this process registers, and that deliveries have to show."""

    def __init__(self, tokens: Tokens | None = None, incarnation: int = 0, now: float = 0.0):
        """`tokens`: None where nodes have no keys; then all deliveries are taken. `now`: seconds of
        the Port's clock."""
        self._tokens = tokens or Tokens(None)
        self._incarnation = incarnation
        self._former_until = now + FORMER_TOKENS_FOR
        self.token = self._of(incarnation)

    def _of(self, incarnation: int) -> bytes:
        return self._tokens.make("deliveries", serial=incarnation)

    def is_shown(self, token: bytes, now: float) -> bool:
        """Whether this is the token of this process, or for a while of a former one."""
        if token == self.token:
            return True
        serial = serial_of(token)
        if not self.token or now > self._former_until or serial >= self._incarnation:
            return not self.token
        return compare_digest(token, self._of(serial))


class DeliveryTokens:
    """The tokens of the nodes that have registrations in a tree, at its host."""

    def __init__(self) -> None:
        self._by_node: dict[NodeId, dict[bytes, int]] = {}  # with how many have it

    def add(self, registration: Registration) -> None:
        """Count the token of a registration that is installed here."""
        if registration.token:
            counts = self._by_node.setdefault(registration.subscriber.id, {})
            counts[registration.token] = counts.get(registration.token, 0) + 1

    def remove(self, registration: Registration) -> None:
        """Uncount the token of a registration that is no longer installed here."""
        counts = self._by_node.get(registration.subscriber.id)
        if counts is None or registration.token not in counts:
            return
        counts[registration.token] -= 1
        if not counts[registration.token]:
            del counts[registration.token]
        if not counts:
            del self._by_node[registration.subscriber.id]

    def of(self, node: NodeId) -> bytes:
        """The token of a node; b"" if it has none."""
        counts = self._by_node.get(node)
        if counts is None:
            return b""
        return max(counts) if len(counts) > 1 else next(iter(counts))
