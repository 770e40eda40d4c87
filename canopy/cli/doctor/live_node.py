"""Checks of a running node, by its own answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from canopy.cli.doctor.machine import Finding, Level
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.client.client import Client
    from overlay.client import Status
    from overlay.info import PeerInfo, StreamInfo
    from overlay.operator_commands import ClockOffset


LOSSES: Final = {
    "deliveries_lost": "a node was out of reach, or slow, for too long",
    "deliveries_missed": "this node was out of reach, or slow, for too long",
    "copies_of_other_origins": "a stream that is copied was removed and founded again",
    "client_dropped": "a program reads too slowly: canopy status names it; raise clients.queue",
    "identity_refused": "its data folder was copied and a later process runs from the copy, or a "
    "member greets under another's id",
    "link_dropped": "more waited for a node than links.queue",
    "traces_lost": "the disk of the traces is full, or fails",
}
"""Counters of losses (canopy/wire/admin/counters.md), with their causes."""

LONG_TURN: Final = 1_000
"""The length of a turn, in milliseconds, at which other nodes begin to suspect this one
(`election.suspect_after`)."""

OFF: Final = 0.5
"""The clock difference, in seconds, that misleads people who compare logs."""

FAR_OFF: Final = 60.0
"""The clock difference, in seconds, that makes certificates and the times of streams wrong."""


def look_at_status(status: Status) -> Iterator[Finding]:
    """Check whether the node serves its programs."""
    from canopy.wire.process.supervision import OWNER_FAULTS, why_not_ready

    name = f"node {status.node} (process {status.pid}) at {status.address}"
    if status.ready:
        yield Finding("ok", f"{name} is ready")
    else:
        yield Finding("error", f"{name}: {why_not_ready(status)}", "see peers below")
    if status.way in OWNER_FAULTS:
        yield Finding(
            "error",
            OWNER_FAULTS[status.way],
            "canopy ring shows who is silent; nodes that are down have to come back",
        )
    if status.replaced:
        yield Finding(
            "warning",
            f"its state was damaged at the start: it was {status.replaced} before",
            "check the disk (smartctl)",
        )
    if status.health.startswith("sub-healthy"):
        yield Finding("warning", f"it is {status.health}")
    if (longest := status.counters.get("longest_turn", 0)) > LONG_TURN:
        cpu = status.counters.get("longest_turn_cpu", 0)
        why = "it computed" if cpu > longest / 2 else "its disk, or other processes, held it up"
        yield Finding("warning", f"one of its turns took {longest:,} ms: {why}")


def look_at_losses(status: Status) -> Iterator[Finding]:
    """Check which losses the node has counted."""
    for counter, reason in LOSSES.items():
        if count := status.counters.get(counter, 0):
            yield Finding("warning", f"{counter} {count:,} since its start", reason)
    if status.counters.get("shard_forks"):
        yield Finding("error", "shard_forks is not 0: report this, with the traces")


def look_at_seeds(status: Status) -> Iterator[Finding]:
    """Check whether the configured peers were reached."""
    for address, state in status.seeds.items():
        if state == "reached":
            yield Finding("ok", f"{address} is reached")
        else:
            yield Finding(
                "warning",
                f"{address}: {state}",
                "does a node run there, of this overlay and with its keys?",
            )


def look_at_links(peers: tuple[PeerInfo, ...]) -> Iterator[Finding]:
    """Check whether the neighbours are connected and speak the same version."""
    near = [peer for peer in peers if peer.neighbour]
    silent = [peer for peer in near if peer.state == "CONNECTING"]
    if silent:
        named = ", ".join(f"{peer.node[:8]} at {peer.address}" for peer in silent[:5])
        yield Finding(
            "warning",
            f"{counted(len(silent), 'neighbour')} of {len(near)} does not answer: {named}",
            "do others reach them (canopy peers there)? Is `advertise` right there?",
        )
    else:
        yield Finding("ok", f"{counted(len(near), 'neighbour')}, none of them silent")
    versions = sorted({peer.protocol for peer in peers if peer.protocol})
    if len(versions) > 1:
        spoken = " and ".join(map(str, versions))
        yield Finding(
            "note",
            f"links speak protocol {spoken}: the overlay is being upgraded, or "
            "links.protocol holds a version back",
        )


def look_at_clocks(clocks: tuple[ClockOffset, ...]) -> Iterator[Finding]:
    """Compare the wall clock with those of the neighbours. If it differs from most of them and they
    agree, this node's clock is wrong."""
    known = [each for each in clocks if each.state == "answered"]
    if not known:
        yield Finding("note", "no neighbour could be asked for its clock")
        return
    off = [each for each in known if abs(each.offset) > OFF + each.round_trip / 2]
    if not off:
        most = max(abs(each.offset) for each in known)
        what = f"within {most * 1e3:.0f} ms of {counted(len(known), 'neighbour')}"
        yield Finding("ok", what)
        return
    level = "error" if max(abs(each.offset) for each in off) > FAR_OFF else "warning"
    if len(off) > len(known) / 2:
        middle = sorted(each.offset for each in known)[len(known) // 2]
        side = "behind" if middle > 0 else "ahead of"
        yield Finding(
            "error" if level == "error" else "warning",
            f"this machine's clock is {abs(middle):.1f} s {side} {len(off)} of {len(known)} "
            "neighbours'",
            "set it by NTP: timedatectl set-ntp true",
        )
        return
    for each in off[:5]:
        side = "ahead" if each.offset > 0 else "behind"
        yield Finding(
            "error" if abs(each.offset) > FAR_OFF else "warning",
            f"the clock of {each.node[:8]} at {each.address} is {abs(each.offset):.1f} s {side}",
            "set it by NTP there",
        )


# --- checks of the streams of which a node has replicas ---

ASKED_MOST: Final = 100
"""The most streams that are asked about. A stream with a silent replica takes two seconds."""


def streams_of(client: Client, status: Status, seconds: float) -> list[StreamInfo | str]:
    """Return the streams of which the node has replicas, or for each that does not answer the
    reason. Ends after `seconds`, with those that have been asked by then."""
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
    """Check whether each stream can be written and read, and whether its shards have other
    troubles."""
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
            yield Finding(level, f"{name}{said}", do)
    if streams and is_well:
        yield Finding("ok", f"{counted(len(streams), 'stream')} with replicas here")
