"""The context that all parts of the links share: this node's identity, and its way to speak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from overlay.hybrid_clock import HybridClock
from overlay.links.messages import ProcessName
from overlay.machine import LocalEvent, Peer
from overlay.settings import LinkSettings


@dataclass(frozen=True, slots=True)
class LinkContext:
    """The node, its settings, clock and generator, and the functions by which a part of the links
    emits events (overlay/links/events.py), counts and traces. Handed to each part at
    construction."""

    me: Peer
    process: ProcessName  # grows with each start of the process
    overlay: str  # nodes of two overlays never link
    settings: LinkSettings
    rng: Random
    clock: Callable[[], float]  # monotonic seconds
    hybrid: HybridClock  # whose time frames carry from node to node
    emit: Callable[[LocalEvent], None]
    count: Callable[[str, int], None]
    trace: Callable[..., None]
