"""The options of streams and groups in sentences, for people."""

from __future__ import annotations

from overlay.info import GroupInfo, StreamInfo
from overlay.phrases import duration


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
