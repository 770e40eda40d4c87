"""Waiting for quiet: until nothing is under way in any node.

A node's `pending` counts what it has published or forwarded and nobody has accepted yet. Events
pass from one node's count to another's between two looks, so quiet is several rounds in a row in
which all counts are zero and no number of deliveries has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from canopy.cli.demo.overlay import Overlay
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from overlay.client import GetStatus, Status

ROUNDS: Final = 4
"""Equal rounds in a row. Wild guess; with PAUSE this is over a second of silence."""
PAUSE: Final = 0.35
PATIENCE: Final = 60.0
"""Seconds without any change after which waiting longer is useless. Wild guess: longer than any
retry of the overlay."""


def await_quiet(
    overlay: Overlay, received: Callable[[], int], told: Callable[[int, int], None]
) -> list[Status]:
    """Wait; `told` hears (pending, received). The last status of every node.

    If something stays pending without any change the waiting ends, too: the analysis then shows
    what is missing.
    """
    with ExitStack() as stack:
        try:
            clients = [stack.enter_context(ControlClient.connect(n.data)) for n in overlay.nodes]
            last: tuple[int, ...] = ()
            changed = time.monotonic()
            equal = 0
            while True:
                overlay.check()
                found = [client.ask(GetStatus(0), Status) for client in clients]
                pending = sum(status.pending for status in found)
                delivered = sum(status.counters.get("delivered", 0) for status in found)
                now = (pending, delivered, received())
                told(pending, now[2])
                if now != last:
                    changed, equal, last = time.monotonic(), 0, now
                equal += 1
                if equal >= ROUNDS and pending == 0:
                    return found
                if time.monotonic() - changed > PATIENCE:
                    return found
                time.sleep(PAUSE)
        except ControlError as error:
            overlay.blame(f"a node does not answer: {error}")
