"""The options with which programs found and change streams, also in sentences for people; and the
stream that has the newest events of a selector (no IO)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from canopy.client.comparison import covers
from canopy.client.errors import CommandFailed, CommandTimeoutError
from matching import compile_selector
from overlay.client import Streams
from overlay.info import GroupInfo, StreamInfo
from overlay.phrases import counted, duration
from overlay.stream_client import AddStream, EditStream


class StreamChanges(TypedDict, total=False):
    """Keyword arguments of `Client.edit_stream` beside the name: options of `canopy stream edit`,
    times in seconds and sizes in bytes; 0: no limit."""

    keep_seconds: float
    keep_bytes: int
    capture: str
    drop_unread: bool
    expire_consumers: float
    max_bytes: int
    max_rows: int
    when_full: str
    ttl_seconds: float
    ttl_by: str
    prefer: str
    writers: Sequence[str]


class StreamFounding(StreamChanges, total=False):
    """Keyword arguments of `Client.add_stream` beside the name: options of `canopy stream add`.
    `sources`: names of streams, or pairs (name, selector)."""

    shards: int
    by: str
    replicas: int
    sources: Sequence[str | tuple[str, str]]
    mirror: str
    region: str
    key: str
    deletes: str


def founding(name: str, options: StreamFounding) -> AddStream:
    """Return the command for the arguments of `Client.add_stream`. TypeError for an unknown
    option."""
    given: dict[str, object] = dict(options)
    sources = options.get("sources", ())
    given["sources"] = tuple((one, "") if isinstance(one, str) else one for one in sources)
    given["writers"] = tuple(options.get("writers", ()))
    return AddStream(0, name, **given)  # type: ignore[arg-type]


def change(name: str, changes: StreamChanges) -> EditStream:
    """Return the command for the arguments of `Client.edit_stream`. TypeError for an unknown
    option."""
    given: dict[str, object] = dict(changes)
    if "writers" in changes:
        given["writers"] = tuple(changes["writers"])
    return EditStream(0, name, **given)  # type: ignore[arg-type]


def whole(found: Streams) -> tuple[StreamInfo, ...]:
    """Return all streams; CommandTimeoutError if a part of the ring has not answered."""
    if not found.complete:
        raise CommandTimeoutError("a part of the ring did not answer: streams may be missing")
    return found.streams


def newest_stream(streams: Iterable[StreamInfo], selector: str) -> str:
    """Return the name of a stream with a key that captures all events that `selector` matches; the
    first by name if there are several. A reading that starts with `keys` has the newest event of
    each key, and then all new ones. Raises SelectorError, and CommandFailed (unknown) if no such
    stream is known."""
    wanted = compile_selector(selector)
    keyed = sorted((one for one in streams if one.key and one.capture), key=lambda one: one.name)
    for one in keyed:
        if covers(compile_selector(one.capture), wanted):
            return one.name
    looked = f" ({counted(len(keyed), 'other stream')} with a key and a capture)" if keyed else ""
    raise CommandFailed(
        "unknown",
        f"no stream with a key is known to capture all of {selector}{looked}: found one with "
        f"canopy stream add NAME --key ATTRIBUTE --capture SELECTOR, or read one by its name",
    )


def founded_with(group: GroupInfo) -> str:
    """Describe the options of a group; orders that it does not have are left out."""
    delays = (group.delay, f"{group.delay_seconds:g} s" if group.delay_seconds else "")
    said = (
        f"a lease of {group.lease:g} s",
        f"{group.deliveries} deliveries at most",
        f"in order by {group.by}" if group.by else "",
        f"priority by {group.priority}" if group.priority else "",
        f"delayed by {' and '.join(filter(None, delays))}" if any(delays) else "",
    )
    return ", ".join(filter(None, said))


def former_selectors(group: GroupInfo) -> list[str]:
    """Return, for each shard, the former selectors that still apply to unfinished rows of a
    group."""
    return [
        f"shard {shard.shard}: events below offset {below:,} go by: {selector or 'all events'}"
        for shard in group.shards
        for below, selector in shard.former
    ]


def bounds(stream: StreamInfo) -> list[str]:
    """Describe, in sentences, the limits of a stream's shards and for which readers rows are kept.
    Options with default values are left out."""
    found = []
    most = [f"{stream.max_bytes:,} bytes"] if stream.max_bytes else []
    most += [f"{stream.max_rows:,} rows"] if stream.max_rows else []
    if most:
        then = "drops its oldest rows" if stream.when_full == "drop-oldest" else "refuses new rows"
        found.append(f"a shard with {' or '.join(most)} {then}")
    if stream.key:
        ends = stream.deletes if stream.deletes else "a row that has the key only"
        found.append(f"the newest row of each {stream.key} stays, until {ends}")
    if stream.ttl_seconds or stream.ttl_by:
        lives = [duration(stream.ttl_seconds)] if stream.ttl_seconds else []
        lives += [f"the seconds in {stream.ttl_by}"] if stream.ttl_by else []
        found.append(f"rows are of use for {', or '.join(lives)}")
    if stream.writers and "*" not in stream.writers:
        found.append(f"only {', '.join(stream.writers)} may append")
    if stream.prefer == "availability":
        found.append("replicas that are cut off take rows into forks")
    if stream.drop_unread:
        found.append("rows do not stay for durable consumers")
    if stream.expire_consumers:
        found.append(
            f"durable consumers are forgotten after {duration(stream.expire_consumers)} of silence"
        )
    return found
