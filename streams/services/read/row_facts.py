"""What became of one row: is it kept, who appended it, and who has read it (`canopy why --stream`).

The leader of the shard says it, from its log's state and the row's chunk. What a durable consumer
has done with a row follows from its position and its selector: below the position it was handed
out if the selector is true for it, and else passed over. Of a group the log says which rows it is
done with, and which are dead; the leader's leases say who has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from matching import SelectorError, Value, compile_selector
from overlay.machine import Machine, Peer, Port
from streams.log.batches import BatchHead, heads_of, rows_of
from streams.log.chunk import EVENTS, Chunk, read
from streams.log.group_state import Group
from streams.log.names import TRACES, sampled
from streams.log.state import ShardState
from streams.programs.reader.messages import AskRow, RowFacts
from streams.services.service import LedShard, ShardService
from streams.shard.replica import Replica
from streams.shard.retention import life_of

READERS_MOST: Final = 1_000
"""Durable consumers that are explained."""


class RowFactsServer(Machine):
    """Questions about rows of the shards that this node leads."""

    def __init__(
        self,
        port: Port,
        leading: Callable[[str], Replica | None],
        holder: Callable[[str, str, int], str],
        clock: Callable[[], int],
    ) -> None:
        """`leading`: a shard's replica if this node leads it; `holder`: by shard, group and offset
        the member that has a row, "" if none has; `clock`: nanoseconds since 1970."""
        super().__init__(port)
        self._leading = leading
        self._holder = holder
        self._clock = clock

    def on_ask_row(self, sender: Peer, message: AskRow) -> None:
        """Say what became of a row; nothing if this node does not lead: then the other asks
        again, or gives up."""
        replica = self._leading(message.shard)
        if replica is None:
            return
        first = max(replica.state.floor, replica.log.first_offset)
        line = replica.log.line(replica.committed)
        end = replica.log.next_offset if line is None else line.first + line.offsets
        if first <= message.offset < end:
            number = replica.log.before_offset(message.offset)[0]
            self._find(sender, message, replica, number, (first, end))
        else:
            state = "not yet" if message.offset >= end else "removed"
            readers = self._readers(replica, message.offset, None)
            facts = RowFacts(message.shard, message.ticket, state, first, end, readers=readers)
            self.port.send(sender, facts)

    def _find(
        self, sender: Peer, message: AskRow, replica: Replica, number: int, there: tuple[int, int]
    ) -> None:
        """Read from chunk `number` on for the one that has the row."""

        def found(chunks: tuple[bytes, ...]) -> None:
            following = number
            for data in chunks:
                chunk = read(data)
                assert chunk is not None, "a replica hands over valid chunks"
                following = chunk.number + 1
                if chunk.kind == EVENTS and chunk.first <= message.offset < chunk.next_offset:
                    self.port.send(sender, self._facts(replica, message, chunk, there))
                    return
            if number < following <= replica.committed:
                self._find(sender, message, replica, following, there)

        replica.chunks.read(number, found)

    def _facts(
        self, replica: Replica, message: AskRow, chunk: Chunk, there: tuple[int, int]
    ) -> RowFacts:
        """Return the facts about a row that is kept."""
        index = message.offset - chunk.first
        head, before = _head_of(chunk, index)
        attributes = rows_of(chunk)[index].attributes
        leader = replica.leader
        life = 0 if leader is None else life_of(leader.retention.keep, attributes)
        over = life and chunk.time + life <= self._clock()
        return RowFacts(
            message.shard,
            message.ticket,
            "past its time" if over else "kept",
            *there,
            producer=head.producer,
            number=head.sequence + index - before,
            epoch=chunk.epoch,
            chunk=chunk.number,
            time=chunk.time,
            attributes=attributes,
            readers=self._readers(replica, message.offset, attributes),
            fork=head.fork,
            at=head.at + index - before if head.fork else 0,
        )

    def _readers(
        self, replica: Replica, offset: int, attributes: dict[str, Value | None] | None
    ) -> tuple[tuple[str, str, int, str], ...]:
        """Return, for each durable consumer and group, its name, selector and position, and the
        state of the row there."""
        found = list(_consumers(replica.state, offset, attributes))
        groups = replica.state.groups.groups
        for name in sorted(groups)[:READERS_MOST]:
            group = groups[name]
            holder = self._holder(replica.shard, name, offset)
            what = f"leased to {holder}" if holder else _of_group(group, offset, attributes)
            found.append((f"group {name}", group.selector_at(offset), group.done.floor, what))
        return tuple(found)


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


# --- trace records of committed rows, by the leader that has committed them ---
#
# All rows are recorded while few are committed, and a share where there are many
# (canopy/traces/writer.py), which the records name; no chunk is decoded of which no row is in it.
# What a leader commits in its last moments may have no record: then nothing is concluded from it.


class ShardRecords(LedShard):
    """The records of one shard's rows, under one epoch of this node."""

    _recorded: int | None = None  # the last chunk that was looked at

    @classmethod
    def is_wanted(cls, replica: Replica) -> bool:
        """Records are written from the beginning of a leadership on."""
        return True

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
        names = sampled(shard, range(chunk.first, chunk.next_offset), share)
        rows = rows_of(chunk) if names else ()
        said = {"share": share} if share < 1.0 else {}
        for name in names:
            row = rows[name.offset - chunk.first]
            if row.payload_type == TRACES:
                continue
            self.port.trace(
                "row",
                event=name.identity,
                shard=shard,
                offset=name.offset,
                epoch=chunk.epoch,
                attributes=row.attributes,
                **said,
            )


class RowRecords(ShardService[ShardRecords]):
    """Records committed rows of the shards that this node leads."""

    kind = ShardRecords
