"""Who was beyond rows that a log has lost at its end (streams.log.lost_rows): where to go on."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from streams.log.group_state import DeadRow, GroupEntry, GroupKnown
from streams.log.state import Entry, ShardState


def set_back(kept: ShardState, before: ShardState, offset: int) -> Iterator[Entry]:
    """The durable consumers and groups that a log knew `before` it lost its rows from `offset` on,
    where the state that is `kept` does not know them, or knows them elsewhere: they go on at
    `offset` if they were beyond."""
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
    """A group's entry, or that of a dead letter, without what was beyond `offset`."""
    if isinstance(entry, GroupKnown):
        end = max((entry.floor, *(end for _, end in entry.runs)))
        runs = tuple((a, min(b, offset)) for a, b in entry.runs if a < offset)
        was_at = end if end > offset else entry.was_at
        return replace(entry, floor=min(entry.floor, offset), runs=runs, was_at=was_at, told="")
    return entry if isinstance(entry, DeadRow) and entry.offset < offset else None
