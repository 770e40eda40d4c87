"""A prototype: what an event costs as a row of its own and as part of a batch of columns.

`python -m bench.dataplane.columns --json` carries the same events from a publishing program to
eight interested ones, each at a node of its own, in one process and without sockets: encoded by the
program, taken by its node, matched at a host against `--subscriptions` selectors of eight nodes,
delivered, rechecked at the interested nodes, handed to their programs and decoded there. *rows* are
the product's own structs and codecs; *columns* are `ColumnBatch`: an array for each attribute, the
payloads as one buffer, and for each delivery the places that its node wants. Nodes and programs
never build an object for an event then; a program gets its payloads. Each row has the microseconds
of processor time per event of each stage, all eight nodes together, for one size of batches.

Left out is what both ways would have alike: identities that came before, order, history, tokens,
frames of links, system calls. Columns of the prototype are numbers and texts without NULL.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

import matching
from canopy.client.frames import CLIENT_FRAMES
from canopy.wire.transport.codec import WireCodec, array_header
from canopy.wire.transport.framing import COMMAND_FRAMES, PREFIX, REPLY_FRAMES
from matching import EVERYTHING, GroupedIndex, Predicate, compile_selector
from matching.columnar import columns_of
from matching.engine.columns import Columns
from matching.engine.events import BatchWriter
from matching.engine.kernels.layout import E_VALUES, EVENT
from matching.values import Attributes
from overlay.client import Draft, Event, Gathered, Publish
from overlay.machine import Peer
from overlay.upper_tree.messages import Deliver, Visit
from overlay.upper_tree.publisher.admission import uniform_batch

SIZES: Final = (1, 8, 64, 512)
NODES: Final = 8
NUMBERS: Final = 7
TEXTS: Final = 3
PAYLOAD: Final = 196  # bytes, as in the peers' harness
TOKEN: Final = bytes(16)
ME: Final = Peer("ab" * 8, "127.0.0.1:4000")

Bytes = bytes
Float = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]


class Column(msgspec.Struct, frozen=True, array_like=True):
    """The values of an attribute: float64, or uint16 numbers of the texts."""

    data: Bytes
    texts: tuple[str, ...] = ()


class ColumnBatch(msgspec.Struct, frozen=True, array_like=True):
    """Events of one publisher with the same attributes."""

    publisher: str
    incarnation: int
    sequences: Bytes  # uint64
    times: Bytes  # float64
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    payloads: Bytes
    ends: Bytes  # uint32: of the payloads


class ColumnDelivery(msgspec.Struct, frozen=True, array_like=True):
    """As `Deliver`; `found` are numbers of the receiver's registrations, uint32."""

    attribute: str
    hop: int
    batch: ColumnBatch
    found: Bytes
    through: int
    token: bytes


def made(names: Sequence[str], values: Sequence[Sequence[Any]], payloads: Sequence[bytes]) -> Any:
    """What a program encodes: a batch without identities."""
    columns = []
    for column in values:
        if isinstance(column[0], str):
            texts = tuple(dict.fromkeys(column))
            place = {text: number for number, text in enumerate(texts)}
            data = array("H", map(place.__getitem__, column)).tobytes()
            columns.append(Column(data, texts))
        else:
            columns.append(Column(array("d", column).tobytes()))
    ends = np.cumsum(list(map(len, payloads)), dtype=np.uint32).tobytes()
    return ColumnBatch("", 0, b"", b"", tuple(names), tuple(columns), b"".join(payloads), ends)


def picked(batch: ColumnBatch, places: Sequence[int]) -> ColumnBatch:
    """The events at these places: copies of bytes, no object for an event."""
    if len(places) * 8 == len(batch.times):
        return batch
    where = np.array(places, np.intp)

    def take(data: Bytes, kind: Any) -> bytes:
        return np.frombuffer(data, kind)[where].tobytes()

    columns = [
        Column(take(one.data, np.uint16 if one.texts else np.float64), one.texts)
        for one in batch.columns
    ]
    ends = np.frombuffer(batch.ends, np.uint32).tolist()
    starts, view = [0, *ends], memoryview(batch.payloads)
    payloads = b"".join([view[starts[place] : ends[place]] for place in places])
    sizes = [ends[place] - starts[place] for place in places]
    return ColumnBatch(
        batch.publisher,
        batch.incarnation,
        take(batch.sequences, np.uint64),
        take(batch.times, np.float64),
        batch.names,
        tuple(columns),
        payloads,
        np.cumsum(sizes, dtype=np.uint32).tobytes(),
    )


class Part(NamedTuple):
    """Some events of a batch, as a sequence that `GroupMatcher.find` cuts."""

    batch: ColumnBatch
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, where: Any) -> Any:
        return Part(self.batch, where.start, min(where.stop, self.end))


class ColumnWriter(BatchWriter):
    """Writes columns where the kernel reads them, without a look at any value."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self._doubles = np.frombuffer(self._memory, np.float64)
        self._words = np.frombuffer(self._memory, np.int64)

    def alike(self, batch: Sequence[Attributes]) -> None:
        """What is written has columns already."""

    def write(self, batch: Sequence[Attributes], alike: object) -> None:
        """Write a part of a batch."""
        part: Any = batch
        for name, one in zip(part.batch.names, part.batch.columns, strict=True):
            column = self._columns.column_of(name)
            if column is None:
                continue
            where = slice(column + E_VALUES, len(part) * EVENT, EVENT)
            if one.texts:
                codes = np.array(self._columns.strings.codes(one.texts), np.int64)
                numbers = np.frombuffer(one.data, np.uint16)[part.start : part.end]
                self._words[where] = codes[numbers]
            else:
                self._doubles[where] = np.frombuffer(one.data)[part.start : part.end]


class Watch:
    """Processor seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.bytes = 0

    def __call__(self, stage: str, call: Callable[..., Any], *arguments: Any) -> Any:
        began = time.process_time()
        found = call(*arguments)
        spent = time.process_time() - began
        self.seconds[stage] = self.seconds.get(stage, 0.0) + spent
        return found


class Bench:
    """The selectors of eight nodes, and an index of them at a host and at each node."""

    def __init__(self, subscriptions: int, matches: float, seed: int) -> None:
        self.rng = Random(seed)
        matching.warm()
        self.host: GroupedIndex[tuple[str, str], str] = GroupedIndex()
        self.nodes: list[GroupedIndex[str, int]] = [GroupedIndex(32) for _ in range(NODES)]
        self.predicates: dict[str, Predicate] = {}
        width = (matches / subscriptions) ** 0.5
        for number in range(subscriptions):
            node, id_ = number % NODES, f".1.{number}/0"
            predicate = compile_selector(self.selector(width))
            self.predicates[id_] = predicate
            self.host.add(("a0", id_), predicate, str(node))
            self.nodes[node].add(id_, predicate, 1)
        self.columns: dict[int, Any] = {}
        self.codec = WireCodec()
        self.encoder = msgspec.msgpack.Encoder()
        self.deliveries = msgspec.msgpack.Decoder(ColumnDelivery)
        self.batches = msgspec.msgpack.Decoder(ColumnBatch)
        self.head = self.encoder.encode(Gathered(0, ()))[:-1]
        for _ in range(100):  # all is in the block engine
            batch = [draft.attributes for draft in self.drafts(64)]
            for index in (self.host, *self.nodes):
                index.find_many(batch)  # type: ignore[attr-defined]
        self.writers: dict[int, tuple[Any, Any]] = {}
        for index in (self.host, *self.nodes):
            matcher: Any = index._group_matcher  # type: ignore[attr-defined]
            writer = ColumnWriter(index.index.block_engine.columns)  # type: ignore[attr-defined]
            self.writers[id(index)] = (matcher._events, writer)

    def selector(self, width: float) -> str:
        first, second = self.rng.sample(range(NUMBERS), 2)
        low, high = self.rng.random() * (1 - width), self.rng.random() * (1 - width)
        text = f"a{first} BETWEEN {low} AND {low + width}"
        return f"{text} AND a{second} BETWEEN {high} AND {high + width}"

    def drafts(self, count: int) -> tuple[Draft, ...]:
        found = []
        for _ in range(count):
            attributes: dict[str, Any] = {f"a{n}": self.rng.random() for n in range(NUMBERS)}
            attributes |= {f"t{n}": f"text{self.rng.randrange(100)}" for n in range(TEXTS)}
            found.append(Draft(attributes, self.rng.randbytes(PAYLOAD), "", 1e9))
        return tuple(found)

    def use(self, columns: bool) -> None:
        """Let the indexes read columns, or rows."""
        for index in (self.host, *self.nodes):
            matcher: Any = index._group_matcher  # type: ignore[attr-defined]
            matcher._events = self.writers[id(index)][columns]

    # --- rows ---

    def rows(self, watch: Watch, drafts: tuple[Draft, ...], first: int) -> int:
        """Carry a publication as the product does. Returns how many events programs got."""
        frame = watch("program: encode", COMMAND_FRAMES.encode, Publish(1, drafts))
        body = watch("its node: take, identify, encode", self._rows_visit, frame, first)
        watch.bytes += len(body)
        visit = watch("host: decode", self.codec.decode, self.codec.join([body]))[0]
        attributes = [event.attributes for event in visit.events]
        found = watch("host: match", self.host.find_by_group, attributes)
        got = 0
        for places, keys in found.values():
            body = watch("host: encode deliveries", self._rows_deliver, visit, places, keys)
            watch.bytes += len(body)
            message = watch("interested nodes: decode", self.codec.decode, body)[0]
            wanted = watch("interested nodes: recheck", self._rows_recheck, message)
            frame = watch("interested nodes: encode for programs", self._rows_reply, wanted)
            reply = watch("programs: decode", CLIENT_FRAMES.decode, memoryview(frame)[PREFIX:])
            got += len(watch("programs: take payloads", self._rows_payloads, reply[0].events))
        return got

    def _rows_visit(self, frame: bytes, first: int) -> bytes:
        command = COMMAND_FRAMES.decode(memoryview(frame)[PREFIX:])
        assert isinstance(command, Publish)
        uniform_batch(command.events)
        events = tuple(
            [
                Event(ME.id, 1, number, d.time, d.attributes, d.payload, d.payload_type)
                for number, d in enumerate(command.events, first)
            ]
        )
        return self.codec.encode_one(Visit(ME, 1, tuple(events[0].attributes), events))

    def _rows_deliver(self, visit: Visit, places: Sequence[int], keys: Sequence[Any]) -> bytes:
        events = tuple([visit.events[place] for place in places])
        names = tuple([id_ for _, id_ in keys])
        message = Deliver("a0", EVERYTHING, 2, events, found=names, token=TOKEN)
        return self.codec.join([self.codec.encode_one(message)])

    def _rows_recheck(self, message: Deliver) -> list[Event]:
        predicates = self.predicates
        return [
            event
            for event, name in zip(message.events, message.found, strict=True)
            if predicates[name].matches(event.attributes)
        ]

    def _rows_reply(self, events: Sequence[Event]) -> bytes:
        encoded = list(map(self.encoder.encode, events))
        head = self.head + array_header(len(encoded))
        return REPLY_FRAMES.join([head, *encoded], len(head) + sum(map(len, encoded)))

    def _rows_payloads(self, events: Sequence[Any]) -> list[bytes]:
        return [event.payload for event in events]

    # --- columns ---

    def as_columns(self, watch: Watch, drafts: tuple[Draft, ...], first: int) -> int:
        """The same as batches of columns."""
        frame = watch("program: encode", self._columns_made, drafts)
        body = watch("its node: take, identify, encode", self._columns_visit, frame, first)
        watch.bytes += len(body)
        batch = watch("host: decode", self.batches.decode, body)
        count = len(drafts)
        part: Any = Part(batch, 0, count)
        found: Mapping[str, Any] = watch("host: match", self.host.find_by_group, part)
        got = 0
        for node, (places, keys) in found.items():
            body = watch("host: encode deliveries", self._columns_deliver, batch, places, keys)
            watch.bytes += len(body)
            message = watch("interested nodes: decode", self.deliveries.decode, body)
            wanted = watch("interested nodes: recheck", self._columns_recheck, int(node), message)
            frame = watch("interested nodes: encode for programs", self._columns_reply, wanted)
            reply = watch("programs: decode", self.batches.decode, frame)
            got += len(watch("programs: take payloads", self._columns_payloads, reply))
        return got

    def _columns_made(self, drafts: tuple[Draft, ...]) -> bytes:
        rows = [draft.attributes for draft in drafts]
        columns = columns_of(rows) or {n: tuple([row[n] for row in rows]) for n in rows[0]}
        payloads = [draft.payload for draft in drafts]
        return self.encoder.encode(made(tuple(columns), list(columns.values()), payloads))

    def _columns_visit(self, frame: bytes, first: int) -> bytes:
        """Check the numbers as admission does, and add identities."""
        batch = self.batches.decode(frame)
        count = len(batch.ends) // 4
        for column in batch.columns:
            if not column.texts:
                assert np.isfinite(np.frombuffer(column.data).sum())
        return self.encoder.encode(
            msgspec.structs.replace(
                batch,
                publisher=ME.id,
                incarnation=1,
                sequences=np.arange(first, first + count, dtype=np.uint64).tobytes(),
                times=np.full(count, 1e9).tobytes(),
            )
        )

    def _columns_deliver(
        self, batch: ColumnBatch, places: Sequence[int], keys: Sequence[Any]
    ) -> bytes:
        numbers = array("I", [int(id_[3:-2]) for _, id_ in keys]).tobytes()
        message = ColumnDelivery("a0", 2, picked(batch, places), numbers, 0, TOKEN)
        return self.encoder.encode(message)

    def _columns_recheck(self, node: int, message: ColumnDelivery) -> ColumnBatch:
        """Match all of it in one call of the kernel: what no selector wants is left out."""
        part: Any = Part(message.batch, 0, len(message.batch.ends) // 4)
        wanted = self.nodes[node].share(part).wanted
        return picked(message.batch, wanted)

    def _columns_reply(self, batch: ColumnBatch) -> bytes:
        return self.encoder.encode(batch)

    def _columns_payloads(self, batch: ColumnBatch) -> list[memoryview]:
        ends, view = np.frombuffer(batch.ends, np.uint32).tolist(), memoryview(batch.payloads)
        return [view[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def measure(bench: Bench, size: int, events: int) -> list[dict[str, Any]]:
    """Both ways for one size of batches, in turns, so that a busy machine slows both."""
    batches = [bench.drafts(size) for _ in range(events // size)]
    watches = {"rows": Watch(), "columns": Watch()}
    ways = {"rows": bench.rows, "columns": bench.as_columns}
    got = dict.fromkeys(watches, 0)
    step = max(1, len(batches) // 8)
    for start in range(0, len(batches), step):
        for name, way in ways.items():
            bench.use(name == "columns")
            for number, drafts in enumerate(batches[start : start + step], start):
                got[name] += way(watches[name], drafts, number * size)
    assert got["rows"] == got["columns"], got
    count = len(batches) * size
    return [
        {
            "way": name,
            "batch": size,
            "us_per_event": round(sum(watch.seconds.values()) / count * 1e6, 2),
            "bytes_between_nodes": round(watch.bytes / count),
            "deliveries": round(got[name] / count, 2),
            "stages": {s: round(t / count * 1e6, 2) for s, t in watch.seconds.items()},
        }
        for name, watch in watches.items()
    ]


def main(args: Sequence[str] | None = None) -> int:
    """Print a row for each way and size."""
    parser = argparse.ArgumentParser(prog="python -m bench.dataplane.columns", description=__doc__)
    add = parser.add_argument
    add("--subscriptions", type=int, default=10_000)
    add("--matches", type=float, default=100.0, help="subscriptions that an event matches (100)")
    add("--events", type=int, default=4_096)
    add("--sizes", type=int, nargs="+", default=SIZES, help="events of a batch")
    add("--seed", type=int, default=1)
    add("--json", action="store_true", help="print one JSON list")
    options = parser.parse_args(args)
    bench = Bench(options.subscriptions, options.matches, options.seed)
    rows = [row for size in options.sizes for row in measure(bench, size, options.events)]
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['way']:<8}{row['batch']:>5}{row['us_per_event']:>9.2f} us", end="")
        print("  ".join(["", *(f"{name} {us}" for name, us in row["stages"].items())]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
