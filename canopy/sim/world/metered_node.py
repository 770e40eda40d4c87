"""The Node as it is, with a meter at its output: what it hands to its links is counted by kind.

Nothing else differs from the Node of a process; what a node sends to itself costs nothing and is
not counted, as in `Node.send`.
"""

from __future__ import annotations

from typing import Any

from node import Node
from overlay.machine import Message, Peer


class MeteredNode(Node):
    """`node.Node` in a world; `driver` is a `canopy.sim.world.driver.SimDriver`."""

    driver: Any

    def send(self, peer: Peer, message: Message) -> None:
        """Count the message by its kind and send it."""
        if peer.id != self.me.id:
            self.driver.sent(message)
        super().send(peer, message)
