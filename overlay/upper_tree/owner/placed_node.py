"""A virtual node as it is to be placed, and what a host's share of the load is (C6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matching import Interval
from overlay.machine import NodeId
from overlay.upper_tree.owner.constants import SHARDS_IDLE, TARGET


class PlacedNode(NamedTuple):
    """A virtual node where it is or is going to be, with its number of registrations."""

    attribute: str
    interval: Interval
    hosts: tuple[NodeId, ...]
    registrations: int
    busy: float = 0.0
    """Share of a host's time that its events ask for, of late …"""
    alone: float = 0.0
    """… and of that for events that visit nothing else where they meet it."""


def is_hot_shard(node: PlacedNode) -> bool:
    """Whether a virtual node is a shard of a value with events."""
    return node.interval.is_shard() and node.busy > SHARDS_IDLE


def fair_share(nodes: Sequence[PlacedNode], hosts: int, elsewhere: float = 0.0) -> float:
    """The share of its time that a host is to be asked for: `TARGET`, or more where `hosts` of them
    are too few."""
    total = sum([node.busy for node in nodes]) + elsewhere
    return max(TARGET, total / max(1, hosts))
