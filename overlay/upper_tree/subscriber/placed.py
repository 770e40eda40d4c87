"""A registration of this node's, and how far it is (C9): see registrar.py."""

from __future__ import annotations

from overlay.machine import NodeId
from overlay.upper_tree.messages import Registration


class Placed:
    """A registration of ours and how far it is."""

    __slots__ = (
        "acknowledged", "again_at", "asked", "final", "redirected", "registration", "sent",
        "subscription",
    )  # fmt: skip

    def __init__(self, subscription: str, registration: Registration, final: bool = False) -> None:
        self.subscription = subscription
        self.registration = registration
        self.acknowledged = False
        self.asked: NodeId = ""  # the owner that it was sent to
        self.again_at = 0.0  # when to send it once more
        self.final = final  # an owner has named the pivot
        self.sent = 0  # how often
        self.redirected = False  # it was sent on at once to an owner that another one named
