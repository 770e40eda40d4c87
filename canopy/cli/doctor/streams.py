"""Checks of the streams of which a node has replicas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from canopy.cli.doctor.finding import Finding, Level
from overlay.wording import counted

if TYPE_CHECKING:
    from canopy.client.client import Client
    from overlay.client import Status
    from overlay.info import StreamInfo

ASKED_MOST: Final = 100
"""Streams that are asked about: one where a replica is silent takes two seconds."""


def streams_of(client: Client, status: Status, seconds: float) -> list[StreamInfo | str]:
    """The streams of which the node has replicas, or why one cannot be told; as many as are
    answered for within `seconds`."""
    from canopy.client.errors import ControlError
    from overlay.client import GetStreams, Streams

    found: list[StreamInfo | str] = []
    until = time.monotonic() + seconds
    names = dict.fromkeys(held.stream.partition(" (fork ")[0] for held in status.shards)
    for name in list(names)[:ASKED_MOST]:
        if time.monotonic() > until:
            break
        try:
            found += client.ask(GetStreams(0, name), Streams, seconds).streams
        except ControlError as error:
            found.append(f"{name}: {error}")
    return found


def look_at_streams(streams: list[StreamInfo | str]) -> Iterator[Finding]:
    """Whether each can be written and read, and what else is wrong with its shards."""
    from canopy.cli.streams.manage import troubles

    is_well = True
    for stream in streams:
        for said in [stream] if isinstance(stream, str) else troubles(stream):
            is_well = False
            level: Level = "warning"
            do = ""
            if said.startswith("no majority"):
                level, do = (
                    "error",
                    "start the nodes that are silent: canopy stream info names them",
                )
            name = "" if isinstance(stream, str) or stream.name in said else f"{stream.name}, "
            yield Finding("streams", level, f"{name}{said}", do)
    if streams and is_well:
        yield Finding("streams", "ok", f"{counted(len(streams), 'stream')} with replicas here")
