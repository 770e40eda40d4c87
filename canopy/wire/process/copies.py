"""Handles another process with this node's id (overlay/links/handshake.py).

The process that was started earlier has to stop. The later one may not have met it: peers tell the
earlier one. So the earlier one, when it has stopped, sends a Hello to the later one's address, and
both logs name the other's address.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from secrets import randbits

import trio

from canopy.wire.addresses import split_address
from canopy.wire.constants import TELL_OTHER
from canopy.wire.transport.framing import NODE_FRAMES
from overlay.links.events import IdentityConflict
from overlay.links.messages import Hello


def boot_number() -> int:
    """Return a number that is greater for a process that starts later, by the wall clock, and
    differs between two that start at the same moment."""
    return int(time.time() * 1e6) << 8 | randbits(8)


def explain_conflict(conflict: IdentityConflict, folder: Path) -> str:
    """Describe a conflict for the log, and what to do about it."""
    other = f"{conflict.peer.address} (its start {conflict.incarnation})"
    if conflict.must_stop:
        return (
            f"another process with the id of this node, {conflict.peer.id}, runs at {other}: its "
            f"data folder and {folder} are copies of one, or {folder} was restored from an old "
            f"copy. The other process was started later, so this one stops. Delete node.json and "
            f"state in the folder of one of the two, and it starts as a new node"
        )
    return (
        f"another process with the id of this node, {conflict.peer.id}, was running at {other}: "
        f"its data folder and {folder} are copies of one. It was started earlier and has to stop. "
        f"If {folder} is the copy, stop this process, delete node.json and state in it, and start "
        f"both again"
    )


async def inform_other(address: str, hello: Hello) -> None:
    """Send a Hello to the process at `address`, so that it learns of this one; takes at most
    `TELL_OTHER` seconds. Failures are ignored."""
    with trio.move_on_after(TELL_OTHER), suppress(OSError, ValueError, trio.BrokenResourceError):
        host, port = split_address(address)
        async with await trio.open_tcp_stream(host, port) as stream:
            await stream.send_all(NODE_FRAMES.encode(hello))
            await stream.receive_some(1)  # it has been read
