"""Positions of consumers and groups after a loss of rows at a log's end (streams.log.lost_rows)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from streams.log.group_state import DeadRow, GroupEntry, GroupKnown
from streams.log.state import Entry, ShardState


def set_back(kept: ShardState, before: ShardState, offset: int) -> Iterator[Entry]:
    """The entries that restore the durable consumers and groups of the state `before` the log lost
    its rows from `offset` on, where the `kept` state lacks them or has other positions. Positions
    beyond `offset` become `offset`."""
    for name, known in sorted(before.consumers.items()):
        there = kept.consumers.get(name)
        if there is None or there.position != known.position:
            position = min(known.position, offset)
            was_at = known.position if known.position > offset else 0
            token = "" if was_at else known.token
            yield replace(known, position=position, attachment=0, token=token, was_at=was_at)
    for entry in before.groups.entries():
        if found := _group(entry, offset):
            yield found


def _group(entry: GroupEntry, offset: int) -> GroupEntry | None:
    """The entry of a group or of a dead letter, without the offsets beyond `offset`."""
    if isinstance(entry, GroupKnown):
        end = max((entry.floor, *(end for _, end in entry.runs)))
        runs = tuple((a, min(b, offset)) for a, b in entry.runs if a < offset)
        was_at = end if end > offset else entry.was_at
        return replace(entry, floor=min(entry.floor, offset), runs=runs, was_at=was_at, told="")
    return entry if isinstance(entry, DeadRow) and entry.offset < offset else None
