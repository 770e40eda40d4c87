"""What a machine that delivers needs beside its Port: holding, with relays and notices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overlay.machine import NodeId, Peer, Port
from overlay.settings import Settings
from overlay.upper_tree.delivery.delegation import Delegation
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.delivery.gap_notices import GapNotices
from overlay.upper_tree.delivery.hold import Holding, RegisteredNodes
from overlay.upper_tree.delivery.relays import Relays


class AllRegistered:
    """Every node is registered for ever."""

    def has_registrations(self, node: NodeId) -> bool:
        return True

    def life_of(self, node: NodeId) -> int:
        return 0


def make_holding(
    port: Port,
    chosen: Settings | None = None,
    others: Callable[[], Sequence[Peer]] = tuple,
    registered: RegisteredNodes | None = None,
) -> Holding:
    """Of a node whose relays are `others`."""
    chosen = chosen or Settings()
    return Holding(
        port, chosen, Relays(port, others), GapNotices(port), registered or AllRegistered()
    )


def make_delegation(
    port: Port, chosen: Settings | None = None, others: Callable[[], Sequence[Peer]] = tuple
) -> Delegation:
    """Of a node that is no host."""
    chosen = chosen or Settings()
    return Delegation(port, CopyBudget(chosen.tree.fan_out), make_holding(port, chosen, others))
