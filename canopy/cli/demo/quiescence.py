"""Waits until the overlay is quiescent: no event is under way in any node.

A node's `pending` counts what it has published or forwarded and the receiver has not acknowledged
yet. Events move from one node's count to another's between two requests, so the overlay counts as
quiescent after several rounds in which all counts are zero and no number of deliveries has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from canopy.cli.constants import QUIET_PAUSE, QUIET_ROUNDS, STALL_TIMEOUT
from canopy.cli.demo.overlay import Overlay
from overlay.client import GetStatus, Status


def await_quiescence(
    overlay: Overlay, received: Callable[[], int], on_progress: Callable[[int, int], None]
) -> list[Status]:
    """Wait until nothing is pending; calls `on_progress(pending, received)` in each round.

    Returns the last status of every node. If something stays pending without any change for
    `STALL_TIMEOUT` the waiting ends too: the analysis then shows what is missing. Raises DemoError
    if a node died or does not answer.
    """
    with overlay.clients("a node does not answer") as clients:
        last: tuple[int, ...] = ()
        changed = time.monotonic()
        equal = 0
        while True:
            overlay.check()
            found = [client.ask(GetStatus(0), Status) for client in clients]
            pending = sum(status.pending for status in found)
            delivered = sum(status.counters.get("delivered", 0) for status in found)
            now = (pending, delivered, received())
            on_progress(pending, now[2])
            if now != last:
                changed, equal, last = time.monotonic(), 0, now
            equal += 1
            if equal >= QUIET_ROUNDS and pending == 0:
                return found
            if time.monotonic() - changed > STALL_TIMEOUT:
                return found
            time.sleep(QUIET_PAUSE)
