"""A stream with a key through faults, and programs that read its newest rows.

8. What a program has when it has got all newest rows is the fold of all rows that were ever
   committed, up to where it is; so it is from there on. A key that was deleted does not come back,
   and the log that is left folds to the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from harness.logs import SHARD, EventBatch, WrongError, chunks_of
from overlay.client import BeginReading, EventsTaken, Failed, ReadingReady, TakeEvents
from streams.log import shard_log
from streams.log.batches import BatchHead, Row, rows_of
from streams.log.chunk import EVENTS, TABLE
from streams.log.table import key_of, table_rows
from streams.services.table import ShardTable, TableServer
from streams.shard import kept_chunks
from streams.shard.replica import Replica, ShardCommitted
from streams.shard.retention import Keep
from streams.shard.stored_replica import ShardTerms
from tests.streams.programs.reader.reading_world import AskingProgram, Attributes, ReadingWorld
from tests.support.shards.producing_world import STREAM
from tests.support.shards.shard_world import constants

KEY = "k"
KEEP = Keep(key=KEY, bytes=2_000)

Table = dict[Any, int]
"""The offset of the newest row of each key."""


def is_deletion(row: Attributes) -> bool:
    return set(row) == {KEY}


def fold(rows: Mapping[int, Attributes], end: int = 1 << 62) -> Table:
    """The table at offset `end`, as anybody would write it."""
    found: Table = {}
    for offset in sorted(rows):
        key = key_of(rows[offset], KEY)
        if key is None or offset >= end:
            continue
        if is_deletion(rows[offset]):
            found.pop(key, None)
        else:
            found[key] = offset
    return found


class KeysProgram(AskingProgram):
    """Reads the newest rows through one node, and what follows; after a crash of its node it goes
    on where it was, or begins again."""

    def __init__(self, world: TableWorld, client: int, node: str, selector: str) -> None:
        super().__init__(world, client, node, selector)
        self.rows: dict[int, Any] = {}
        self.position = 0
        self.first_end = self.end = 0  # of the newest rows
        self.is_fresh = True

    def begin(self) -> None:
        self.is_ready = self.takes = False
        self.reading = self.request + 1
        goes_on = self.rows and not self.failures and self.world.rng.random() < 0.7
        self.is_fresh = not goes_on
        self.failures.clear()
        positions = ((0, self.position),) if goes_on else ()
        tables = ((0, self.first_end),) if goes_on and self.position < self.end else ()
        start = "keys" if tables or not goes_on else "offset"
        self.ask(BeginReading, STREAM, self.selector, start, 0, positions, tables=tables)

    def work(self) -> None:
        if not self.reading or self.failures:
            self.begin()
        elif self.is_ready and not self.takes:
            self.takes = True
            self.ask(TakeEvents, self.reading)

    def answered(self, reply: Any) -> None:
        if isinstance(reply, ReadingReady):
            if reply.request != self.reading:
                return
            ((start, end),) = reply.shards
            if self.is_fresh:
                self.rows, self.position, self.first_end, self.end = {}, start, end, end
            elif start != self.position:
                raise WrongError(f"program {self.client} goes on at {start}, not {self.position}")
            self.is_ready = True
        elif isinstance(reply, EventsTaken):
            self.takes = False
            self._take(reply)
        else:
            assert isinstance(reply, Failed), reply
            self.failures.append(reply.code)
            self.takes = self.is_ready = False

    def _take(self, taken: EventsTaken) -> None:
        for event in taken.events:
            if event.offset < max(self.position, max(self.rows, default=-1) + 1):
                raise WrongError(f"offset {event.offset} came again, or late")
            self.rows[event.offset] = event.attributes
        ((_, self.position),) = taken.positions
        for _, end in taken.tables:
            self.end = end
        if not taken.tables and self.position >= self.end:
            self.judge()

    def judge(self) -> None:
        """Checker 8: what has come folds to what was committed. Of one with a selector, which does
        not see all deletions: what came at first is what matches of the table, and then all that
        matches."""
        history = self.world.history
        expected, found = fold(history, self.position), fold(self.rows)
        if self.selector:
            wants, end = self.world.wants, self.end
            table = fold(history, end).values() if end == self.first_end else ()
            wanted = {o for o in table if wants(history[o])}
            wanted |= {o for o in range(end, self.position) if wants(history[o])}
            # Another leader may have begun again, and passed over what was replaced since `end`.
            now = set(fold(history, self.position).values())
            replaced = {o for o in wanted if o < end and o not in now}
            wanted -= {o for o in replaced if o not in self.rows}
            expected = {offset: offset for offset in wanted}
            found = {o: o for o in self.rows if o >= end or end == self.first_end}
        if found != expected:
            missing = {k: o for k, o in expected.items() if found.get(k) != o}
            surplus = {k: o for k, o in found.items() if k not in expected}
            raise WrongError(
                f"program {self.client} at {self.position}: the table lacks {missing}, "
                f"and has {surplus} (newest rows below {self.end}, first {self.first_end})"
            )
        self.world.tables_judged += 1


class TableWorld(ReadingWorld):
    """Every node keeps tables where it leads. `history`: all rows that were ever committed."""

    def __init__(self, seed: int, nodes: int = 4, replicas: int = 3, keep: Keep = KEEP) -> None:
        self.servers_of_tables: dict[str, TableServer] = {}
        self.history: dict[int, Attributes] = {}
        self.tables_judged = 0
        self._made: dict[bytes, list[Attributes]] = {}  # rows, by the hash of their chunk
        self.kept = keep
        super().__init__(seed, nodes, replicas)
        self.keep = keep

    @staticmethod
    def wants(row: Attributes) -> bool:
        """The selector `flag = TRUE` in Python."""
        return row.get("flag") is True

    def boot(self, node: str) -> None:
        self.servers_of_tables[node] = TableServer(
            self.leaderships(node), lambda shard: self.led(node)
        )
        super().boot(node)
        self.alive[node].describe(ShardTerms(keep=self.kept))
        self.servers_of_tables[node].start()

    def table(self, node: str) -> ShardTable | None:
        return self.servers_of_tables[node].shard(SHARD)

    def machines(self, node: str) -> list[Any]:
        return [*super().machines(node), self.servers_of_tables[node]]

    def _tell(self, node: str, boot: int, event: ShardCommitted) -> None:
        super()._tell(node, boot, event)
        if node in self.alive and self.ports[node].boot == boot:
            self.settle(node)

    def append(self) -> None:
        super().append()
        for replica in self.alive.values():
            for chunk in list(replica.chunks.recent)[-3:]:
                if chunk.kind == EVENTS:
                    self._made[chunk.hash] = [row.attributes for row in rows_of(chunk)]

    def committed(self, node: str, number: int) -> None:
        super().committed(node, number)
        for line in reversed(self.alive[node].log.lines):
            if line.number <= number and line.kind == EVENTS:
                if line.first in self.history:
                    break
                rows = self._made.get(line.hash, ())  # not of rows that a test appends itself
                self.history.update(enumerate(rows, line.first))

    def batch(self, node: str, rows: int) -> EventBatch:
        made = []
        for place in range(rows):
            key = self.rng.choice((*range(12), *"abc", True))
            if self.rng.random() < 0.15:
                made.append(Row({KEY: key}))
                continue
            attributes = {KEY: key, "n": self._appends + place, "flag": self.rng.random() < 0.5}
            if self.rng.random() < 0.05:
                del attributes[KEY]
            made.append(Row(attributes, b"x" * self.rng.randrange(60)))
        return EventBatch(BatchHead(node, self._appends, 0, rows), tuple(made))

    def add_keys(self, client: int, node: str, selector: str = "") -> KeysProgram:
        program = KeysProgram(self, client, node, selector)
        self.programs[client] = program  # type: ignore[assignment]
        return program

    def may_be_gone(self, row: tuple[int, int], leader: Replica) -> bool:
        number, _ = self.rows[row]
        return number < leader.log.start and leader.log.segments[0].offset <= leader.state.floor

    def judge_log(self, leader: Replica) -> None:
        """The leader's log folds to the table, on disk and in memory, and is not much longer than
        what is kept."""
        expected = fold(self.history)
        state, rows = leader.state, {}
        for chunk in chunks_of(self.bytes_of(leader.port.me.id)):
            if chunk.kind == TABLE and state.table.first <= chunk.number <= state.table.last:
                rows.update({each.offset: each.row.attributes for each in table_rows(chunk)})
            elif chunk.kind == EVENTS:
                for offset, row in enumerate(rows_of(chunk), chunk.first):
                    if offset >= state.floor:
                        rows[offset] = row.attributes
        if fold(rows) != expected:
            raise WrongError(f"the log folds to {fold(rows)}, and not to {expected}")
        if any(is_deletion(row) for offset, row in rows.items() if offset < state.floor):
            raise WrongError("the table has a deletion")
        table = self.table(leader.port.me.id)
        assert table is not None
        found = {key: place.offset for key, place in table.table.places.items()}
        if not table.is_complete or found != expected:
            raise WrongError(f"the leader's table is {found}, and not {expected}")
        size = sum(segment.size for segment in leader.log.segments)
        if size > self.kept.bytes + 6 * table.table.bytes + 20_000:
            raise WrongError(f"{size} bytes are kept, and not {self.kept.bytes}")


def trial_of_tables(seed: int, rounds: int = 25) -> TableWorld:
    """A world with programs that read the newest rows, through faults, and judged. WrongError if a
    checker fails."""
    with constants((shard_log, "SEGMENT_BYTES", 1_500), (kept_chunks, "RECENT_BYTES", 2_000)):
        rng = Random(seed)
        world = TableWorld(seed)
        names = [peer.id for peer in world.peers]
        for client, selector in enumerate(("", "", "", "", "flag = TRUE"), 1):
            world.add_keys(client, rng.choice(names), selector)
        world.run(0.1)
        world.elect()
        world.run(0.5)
        world.cause_trouble(rounds, damaged=1)
        leader = world.heal()
        for _ in range(60):
            world.append()
            world.append()
            world.run(0.5)
        world.is_ending = True
        for _ in range(15):
            world.work()
            world.run(0.7)
        world.judge(leader)
        world.judge_log(leader)
        for program in world.programs.values():
            if program.position != leader.log.next_offset:  # type: ignore[attr-defined]
                raise WrongError(f"program {program.client} is not at the end")
    return world
