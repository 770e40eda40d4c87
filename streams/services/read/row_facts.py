"""Explains one row: whether it is kept, who appended it, and who has read it (`canopy why
--stream`).

The leader of the shard says it, from its log's state and the row's chunk. What a durable consumer
has done with a row follows from its position and its selector: below the position it was handed
out if the selector is true for it, and else passed over. Of a group the log says which rows it is
done with, and which are dead; the leader's leases say who has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from matching import SelectorError, Value, compile_selector
from overlay.machine import Peer
from streams.log.batches import BatchHead, heads_of, rows_of
from streams.log.chunk import EVENTS, Chunk
from streams.log.group_state import Group
from streams.log.names import TRACES, sampled
from streams.log.state import ShardState
from streams.programs.reader.messages import AskRow, RowFacts
from streams.services.read.positions import find_chunk
from streams.services.service import Leaderships, LedShard, ReplicaOf, ShardService
from streams.shard.replica import Replica

READERS_MOST: Final = 1_000
"""Durable consumers that are explained."""


class ShardRowFacts(LedShard):
    """The facts about one shard's rows and their trace records, under one epoch of this node."""

    service: RowFactsServer
    _recorded: int | None = None  # the last chunk of which rows are recorded

    @classmethod
    def is_wanted(cls, replica: Replica) -> bool:
        """Records are written from the beginning of a leadership on."""
        return True

    def on_ask_row(self, sender: Peer, message: AskRow) -> None:
        """Say what became of a row. A row that cannot be read just now is asked for again."""

        def found(chunk: Chunk | None) -> None:
            if chunk is not None:
                self.port.send(sender, self._facts(message, chunk))

        if self.first <= message.offset < self.end:
            find_chunk(self, message.offset, found)
            return
        state = "not yet" if message.offset >= self.end else "removed"
        readers = self._readers(message.offset, None)
        there = (message.shard, message.ticket, state, self.first, self.end)
        self.port.send(sender, RowFacts(*there, readers=readers))

    def _facts(self, message: AskRow, chunk: Chunk) -> RowFacts:
        """Return the facts about a row that is kept."""
        index = message.offset - chunk.first
        head, before = _head_of(chunk, index)
        attributes = rows_of(chunk)[index].attributes
        return RowFacts(
            message.shard,
            message.ticket,
            "past its time" if self.is_row_over(chunk.time, attributes) else "kept",
            self.first,
            self.end,
            producer=head.producer,
            number=head.sequence + index - before,
            epoch=chunk.epoch,
            chunk=chunk.number,
            time=chunk.time,
            attributes=attributes,
            readers=self._readers(message.offset, attributes),
            fork=head.fork,
            at=head.at + index - before if head.fork else 0,
        )

    def _readers(
        self, offset: int, attributes: dict[str, Value | None] | None
    ) -> tuple[tuple[str, str, int, str], ...]:
        """Return, for each durable consumer and group, its name, selector and position, and the
        state of the row there."""
        state, shard = self.replica.state, self.replica.shard
        found = list(_consumers(state, offset, attributes))
        groups = state.groups.groups
        for name in sorted(groups)[:READERS_MOST]:
            group = groups[name]
            holder = self.service.holder(shard, name, offset)
            what = f"leased to {holder}" if holder else _of_group(group, offset, attributes)
            found.append((f"group {name}", group.selector_at(offset), group.done.floor, what))
        return tuple(found)

    # Trace records of committed rows, by the leader that has committed them. All rows are recorded
    # while few are committed, and a share where there are many (canopy/traces/writer.py), which the
    # records name; no chunk is decoded of which no row is recorded. What a leader commits in its
    # last moments may have no record: then nothing is concluded from it.

    def committed(self) -> None:
        """More of the log is committed."""
        replica = self.replica
        before = self.leader.first - 1 if self._recorded is None else self._recorded
        self._recorded = replica.committed
        for chunk in replica.chunks.recent_from(before + 1, replica.committed - before):
            if chunk.kind == EVENTS:
                self._record(chunk)

    def _record(self, chunk: Chunk) -> None:
        shard = self.replica.shard
        share = self.port.row_share("row", chunk.offsets)
        offsets = sampled(shard, range(chunk.first, chunk.next_offset), share)
        rows = rows_of(chunk) if offsets else ()
        said = {"share": share} if share < 1.0 else {}
        for offset in offsets:
            row = rows[offset - chunk.first]
            if row.payload_type == TRACES:
                continue
            self.port.trace(
                "row",
                event=f"{shard}/{offset}",
                shard=shard,
                offset=offset,
                epoch=chunk.epoch,
                attributes=row.attributes,
                **said,
            )


class RowFactsServer(ShardService[ShardRowFacts]):
    """Questions about rows of the shards that this node leads, and the records of rows."""

    kind = ShardRowFacts

    def __init__(
        self,
        leaderships: Leaderships,
        leading: ReplicaOf,
        holder: Callable[[str, str, int], str],
    ) -> None:
        """`holder`: by shard, group and offset the member that has a row, "" if none has. The other
        arguments are those of `ShardService`."""
        super().__init__(leaderships, leading)
        self.holder = holder


def _head_of(chunk: Chunk, index: int) -> tuple[BatchHead, int]:
    """The batch of a row, and how many rows are before it."""
    before = 0
    for head in heads_of(chunk):
        if index < before + head.count:
            return head, before
        before += head.count
    raise AssertionError("the heads of a chunk have all its rows")


def _consumers(
    state: ShardState, offset: int, attributes: dict[str, Value | None] | None
) -> tuple[tuple[str, str, int, str], ...]:
    """Return, for each durable consumer, its name, selector and position, and the state of the row
    there."""
    found = []
    for name in sorted(state.consumers)[:READERS_MOST]:
        known = state.consumers[name]
        try:
            predicate = compile_selector(known.selector) if known.selector else None
        except SelectorError:
            continue
        wants = predicate is None or predicate.matches(attributes or {})
        is_past = known.position > offset
        if attributes is None:
            what = "passed" if is_past else "unread"
        elif is_past:
            what = "read" if wants else "passed over"
        else:
            what = "waits" if wants else "will pass over"
        found.append((name, known.selector, known.position, what))
    return tuple(found)


def _of_group(group: Group, offset: int, attributes: dict[str, Value | None] | None) -> str:
    """Return the state in a group of a row that no member holds at present."""
    is_done, selector = offset in group.done, group.selector_at(offset)
    if (letter := group.dead.get(offset)) is not None:
        return f"a dead letter after {letter.deliveries} deliveries: {letter.reason}"
    if attributes is None:
        return "passed" if is_done else "unread"
    try:
        wants = not selector or compile_selector(selector).matches(attributes)
    except SelectorError:
        return "its selector cannot be read"
    if is_done:
        return "acknowledged by a member" if wants else "passed over"
    return "waits" if wants else "will pass over"
