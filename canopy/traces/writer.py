"""The trace writer: one JSON line per step, buffered, bounded, sampled by event.

Every node writes its own files, and only the Spark job reads them together. Four properties follow:

* All nodes keep the *same* events: those that their publishers have marked
  (canopy/traces/writer.py). Records that name no event (walks, subscriptions, maps) are always
  kept.
* Tracing does not endanger the node. The buffer is bounded, files end at a size and at midnight
  UTC, and a failing disk costs records, which are counted in `lost`, and nothing else.
* Most virtual nodes that match an event find nobody interested. That is counted by attribute
  (`count_unmatched`), and the counts are written with the buffer (records of kind ``unmatched``).
* What is absent shows. Every file begins with a record of kind ``file`` that says whose it is, of
  which overlay and run, what share of the events is kept, and how many records were written and
  lost before. All others are numbered from 1 in each run of the node's process; a lost record
  keeps its number.

This file does no IO of its own: `canopy.wire` passes a function that opens a file for appending and
the clocks, the simulator passes others. An opened file begins with a line feed, so that a line
which a killed process left unfinished does not spoil the first record.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import quote
from zlib import crc32

import msgspec

from canopy.traces.schema import FIELDS, KINDS, ROW_KINDS, VERSION

# Which events are traced: all while few are published, and a share of them where there are many.
#
# The node that publishes an event decides whether it is traced, and says so in the event: so all
# nodes keep the records of the same events. It keeps `rate` events a second, as nearly as halving
# the share allows, and never more than the share `most`. Within a share the CRC-32 of an event's
# identity decides (not `hash()`, which differs between processes), so that who reads the traces can
# work out from the shares that were recorded (kind ``sampling``) which events should be there.
#
# Records of other nodes' events cost this node as much as its own: a node in the middle of many
# busy publishers keeps what all of them trace.

WINDOW: Final = 1.0
"""Seconds over which events are counted. A burst halves the share at once; it grows again by one
step a window."""

HALVINGS_MOST: Final = 30
"""A share is never less than 2^-30: of 10^9 events a second one is kept."""


def is_sampled(event: str, sample: float) -> bool:
    """Whether records of `event` are kept at the rate `sample` (0 to 1); the same on all nodes."""
    return crc32(event.encode("utf-8", "surrogatepass")) < sample * 2**32


def marks(prefix: str, first: int, count: int, sample: float) -> list[bool]:
    """Evaluate `is_sampled` for `count` events, whose identities are `prefix` and a number from
    `first` on."""
    before, most = crc32(prefix.encode("utf-8", "surrogatepass")), sample * 2**32
    return [crc32(b"%d" % number, before) < most for number in range(first, first + count)]


class AdaptiveShare:
    """The share of a node's own events that is traced. Times are seconds, of one clock."""

    def __init__(self, most: float = 1.0, rate: float = 0.0) -> None:
        """`most`: the share where few are published; `rate`: events a second that are traced, 0:
        however many there are."""
        self._most = most
        self._rate = rate
        self._halvings = 0
        self._since = float("-inf")  # the beginning of the window
        self._published = 0  # in it

    @property
    def share(self) -> float:
        """The share that holds now."""
        return self._most / (1 << self._halvings)

    def publishes(self, events: int, now: float) -> bool:
        """Note that `count` more events are published; `share` applies to them when this returns.
        Returns whether the share has changed."""
        if not self._rate:
            return False
        before = self._halvings
        passed = now - self._since
        if not 0.0 <= passed < WINDOW:  # also where the clock was turned back
            quiet = passed > 2 * WINDOW or passed < 0.0
            if quiet or self._kept(self._published, self._halvings - 1) <= self._rate * passed:
                self._halvings = 0 if quiet else max(0, self._halvings - 1)
            self._since, self._published = now, 0
        self._published += events
        while (
            self._kept(self._published, self._halvings) > self._rate * WINDOW
            and self._halvings < HALVINGS_MOST
        ):
            self._halvings += 1
        return self._halvings != before

    def _kept(self, events: int, halvings: int) -> float:
        """Return how many of `count` events are kept."""
        return events * self._most * 2.0**-halvings


# Traces without values: which fields of a record are replaced, and by what (`trace.redact`).
#
# Kept is all that says what was done with an event: its identity, the names of its attributes,
# nodes, times, hops, sizes. So losses on the way, duplicates, walks, latencies and the order of
# things are judged as ever. What depends on a selector's truth is *unjudged*, since neither values
# nor selectors are there.
#
# A text that stands for a value is a hash under a key that this process makes and never writes:
# equal values of one run are seen to be equal, and nobody can try values until a hash agrees.

MARK: Final = "redacted:"
"""The prefix of texts that stand for values."""

HASHED: Final = ("id", "selector", "lo", "hi")
"""Fields with values, or with selectors, as texts."""

DROPPED: Final = ("tree", "permitted", "digest")
"""Fields that are left out: a digest would agree with a guess of the content."""

KEY_BYTES: Final = 32


class Redaction:
    """Replaces values in records, under a key of its own."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)

    def apply(self, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields as they are written. Of attributes the names are kept, as a JSON array, of
        trees and digests nothing; the reason for which an event was refused may quote it."""
        kept = dict(fields)
        for name in HASHED:
            if kept.get(name) is not None:
                kept[name] = self._hash(str(kept[name]))
        for name in DROPPED:
            kept.pop(name, None)
        attributes = kept.get("attributes")
        if attributes is not None:
            found = msgspec.json.decode(attributes)
            names = sorted(found) if isinstance(found, dict) else []
            kept["attributes"] = msgspec.json.encode(names).decode()
        if kind == "refused":
            kept["reason"] = MARK.rstrip(":")
        return kept

    def _hash(self, text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        return MARK + blake2b(data, digest_size=8, key=self._key).hexdigest()


BUFFER_BYTES: Final = 64 * 1024
"""The buffer is written when it is full: some 300 records per system call. Guess; to be measured by
the processor time of a traced node."""

FILE_BYTES: Final = 64 * 1024 * 1024
"""A new file is begun at this size: half of Spark's input split of 128 MB, so that none is cut.
Guess; to be measured by the time of an analysis."""

RETRY_AFTER: Final = 30.0
"""Seconds without an attempt to write after one that failed: each begins a new file, and a full
disk must not fill with empty ones. Guess; records meanwhile are lost."""

ENCODE: Final = msgspec.json.Encoder(order="deterministic").encode
"""Objects as JSON, the same text for the same object: an event's digest is of it."""

UNREPRESENTABLE: Final = (TypeError, ValueError, msgspec.MsgspecError)
"""The errors of encoding a value that JSON does not have."""

HEAD: Final = b'{"v":%d,"time":%%b,"hlc":%%d,%%b' % VERSION
"""The beginning of a record, up to its number: of its times, and of `RecordEncoder._own`."""

PUBLISH: Final = "publish"
"""The kind of record with which an event begins."""

DAY: Final = 86_400
"""Seconds. Unix time has no leap seconds, so that midnight UTC is a multiple of this."""


class TraceFile(Protocol):
    """The part of an append-only binary file that `TraceFiles` uses."""

    def write(self, data: bytes, /) -> int | None:
        """Append `data`; may raise OSError. Returns how many bytes were written, None for all."""

    def flush(self) -> object:
        """Write everything to the operating system; may raise OSError."""

    def close(self) -> object:
        """Close the file; no writes follow."""


class TracedEvent(Protocol):
    """An event as the writer sees it."""

    @property
    def identity(self) -> str:
        """The event's identity in the records."""

    @property
    def traced(self) -> bool:
        """Whether its publisher has marked it to be traced."""


Named = TypeVar("Named", bound=TracedEvent)

OpenFile = Callable[[str], TraceFile]
"""Opens a path for appending and makes the folders above it; may raise OSError."""


class RecordSchemaError(Exception):
    """A record has a kind or fields that `schema` does not have (raised in checked mode only)."""


def trace_path(root: str, node: str, when: float, part: int = 0) -> str:
    """The path of the file for records of `node` from `when` (seconds since 1970) on. Pure.

    ``root/date=YYYY-MM-DD/node=ID/HHMMSS-PART.jsonl``, in UTC; `part` counts the files of one
    writer. Characters of the id that are special in a path are percent-encoded.
    """
    moment = datetime.fromtimestamp(when, UTC)
    name = f"{moment:%H%M%S}-{part:04d}.jsonl"
    folder = PurePosixPath(root) / f"date={moment:%Y-%m-%d}" / f"node={quote(node, safe='')}"
    return str(folder / name)


def check_record(kind: str, fields: Mapping[str, Any]) -> None:
    """Raise SchemaError unless `kind` is a known kind and has all of `fields`."""
    known = KINDS.get(kind)
    if known is None:
        raise RecordSchemaError(f"unknown kind of trace record: {kind!r}")
    strange = [name for name in fields if name not in known or name not in FIELDS]
    if strange:
        raise RecordSchemaError(
            f"trace record {kind!r} has no field {', '.join(map(repr, strange))}"
        )


def complete_fields(fields: Mapping[str, Any], now: float) -> Mapping[str, Any]:
    """The fields as they are written: `since` (when the event was published, by the wall clock,
    which a node does not have) becomes `latency_ms`, and objects become JSON texts (of a function:
    what it returns)."""
    changed: dict[str, Any] = {}
    since = fields.get("since")
    if since is not None:
        changed["latency_ms"] = round(max(0.0, now - since) * 1000.0, 3)
    for name in ("attributes", "tree", "permitted"):
        value = fields.get(name)
        if callable(value):
            value = changed[name] = value()
        if value is not None and not isinstance(value, str):
            changed[name] = ENCODE(value).decode()
    if not changed:
        return fields
    found = {**fields, **changed}
    found.pop("since", None)
    return found


def remaining(data: bytes, file: TraceFile) -> Iterator[bytes]:
    """Write all of `data`, in as many writes as `file` makes of it; yields what each has written.
    A disk that has room for a part takes that part and refuses the rest (OSError)."""
    while data:
        count = file.write(data)
        yield data[:count]
        data = b"" if count is None else data[count:]


class TraceLosses:
    """Records of a node that were lost."""

    def __init__(self) -> None:
        self.records = 0
        self.error: str | None = None
        """The reason for the last loss."""

    def add(self, records: int, error: Exception) -> None:
        """Count records as lost because of this error."""
        self.records += records
        self.error = str(error) or type(error).__name__


class RecordEncoder:
    """Makes lines of JSON of the records of one run of a node, and numbers them."""

    def __init__(
        self, node_id: str, run: int, hybrid: Callable[[], int], check: bool, redact: bool
    ) -> None:
        self._hybrid = hybrid
        self._check = check
        self._redaction = Redaction() if redact else None
        self._encode = msgspec.json.Encoder().encode
        self._own = b'"node":%b,"run":%d,"n":' % (self._encode(node_id), run)
        self._number = 0  # of the last record

    def line(self, kind: str, fields: Mapping[str, Any], now: float) -> bytes:
        """Encode one record. Raises `UNREPRESENTABLE` for a value without a JSON form; the record's
        number is used then."""
        fields = complete_fields(fields, now)
        if self._redaction is not None:
            fields = self._redaction.apply(kind, fields)
        if self._check:
            check_record(kind, fields)
        self._number += 1
        return b'%b%d,"kind":"%b"%b%b' % (
            HEAD % (self._encode(now), self._hybrid(), self._own),
            self._number,
            kind.encode(),
            b"," if fields else b"",
            self._encode(fields)[1:],
        )

    def lines(
        self, kind: str, name: str, values: Sequence[str], fields: Mapping[str, Any], now: float
    ) -> list[bytes]:
        """Encode a record for each of these values of the field `name`, as `line` does. The other
        fields are encoded once."""
        fields = complete_fields(fields, now)
        if self._redaction is not None:
            fields = self._redaction.apply(kind, fields)
        if self._check:
            check_record(kind, {**fields, name: None})
        first, encode = self._number + 1, self._encode
        self._number += len(values)
        head = HEAD % (encode(now), self._hybrid(), self._own)
        begin = f',"kind":"{kind}","{name}":'.encode()
        tail = (b"," if fields else b"") + encode(fields)[1:]
        return [
            b"%b%d%b%b%b" % (head, number, begin, encode(value), tail)
            for number, value in enumerate(values, first)
        ]


class TraceFiles:
    """The files of one writer, one after the other: each ends at a size and at midnight UTC."""

    def __init__(
        self,
        out: OpenFile,
        root: str,
        file_bytes: int,
        about: Mapping[str, Any],
        losses: TraceLosses,
    ) -> None:
        """`about`: what the first record of each file says; with `node`, the node's id."""
        self._out = out
        self._root = root
        self._file_bytes = file_bytes
        self._about = about
        self._losses = losses
        self.written = 0
        """Records that the operating system has; not those of kind ``file``."""
        self._file: TraceFile | None = None
        self._size = 0
        self._ends = 0.0  # when its day is over
        self._part = 0
        self._retry_at = -math.inf  # after a failure

    def append(self, lines: list[bytes], since: float, now: float) -> None:
        """Write records, the first of which was buffered at `since`. Never raises for a failing
        disk: records that the disk rejects are lost, as are those that follow soon after."""
        if self._retry_at - RETRY_AFTER <= now < self._retry_at:
            self._losses.records += len(lines)
            return
        written = 0  # lines, as far as the operating system has them
        try:
            file = self._current(since)
            first = self._first_lines(since) if self._size == 0 else []
            data = b"\n".join([*first, *lines, b""])
            written -= len(first)
            for part in remaining(data, file):
                written += part.count(b"\n")
            file.flush()
        except OSError as error:
            written = max(0, written)
            self.written += written
            self._losses.add(len(lines) - written, error)
            self.close()  # a later one tries a new file
            self._retry_at = now + RETRY_AFTER
            return
        self.written += len(lines)
        self._size += len(data)

    def _current(self, when: float) -> TraceFile:
        if self._file is not None and (when >= self._ends or self._size >= self._file_bytes):
            self.close()
        if self._file is None:
            self._file = self._out(trace_path(self._root, self._about["node"], when, self._part))
            self._part += 1
            self._size = 0
            self._ends = (when // DAY + 1) * DAY
        return self._file

    def _first_lines(self, since: float) -> list[bytes]:
        """Return a line feed, which ends a line that another process left unfinished, and the
        record that describes the file."""
        record = {
            "v": VERSION,
            "time": since,
            **self._about,
            "kind": "file",
            "part": self._part,
            "written": self.written,
            "lost": self._losses.records,
        }
        return [b"", msgspec.json.encode(record)]

    def close(self) -> None:
        """End the file. What comes later goes to another one."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._losses.add(0, error)


class TraceOptions(NamedTuple):
    """What of a node's records is kept, and how it is written."""

    sample: float = 1.0
    """The share of events that is kept, from 0 to 1."""
    rate: float = 0.0
    """How many of this node's own events are kept per second; 0: any number."""
    redact: bool = False
    """Write no value of an attribute and no selector."""
    check: bool = False
    """Check every record against the schema, in tests."""
    buffer_bytes: int = BUFFER_BYTES
    file_bytes: int = FILE_BYTES


ALL: Final = TraceOptions()
"""Every record is kept."""


class TraceWriter:
    """Writes the trace records of one node.

    `out` opens a file (see `OpenFile`), `clock` gives seconds since 1970, `hybrid` reads the node's
    hybrid logical clock, `run` is the node's incarnation, `overlay` the name of the overlay, `root`
    the folder in front of every path that `out` is given.
    """

    def __init__(
        self,
        out: OpenFile,
        node_id: str,
        clock: Callable[[], float],
        options: TraceOptions = ALL,
        *,
        hybrid: Callable[[], int],
        run: int = 1,
        overlay: str = "canopy",
        root: str = "",
    ) -> None:
        sample = options.sample
        if not 0.0 <= sample <= 1.0:
            raise ValueError(f"the sampling rate is {sample}, but must lie between 0 and 1")
        self._losses = TraceLosses()
        about = {"node": node_id, "run": run, "overlay": overlay, "sample": sample}
        self._files = TraceFiles(out, root, options.file_bytes, about, self._losses)
        self._records = RecordEncoder(node_id, run, hybrid, options.check, options.redact)
        self._node = node_id
        self._clock = clock
        self._sample = sample
        self._shares = {kind: AdaptiveShare(sample, options.rate) for kind in (PUBLISH, *ROW_KINDS)}
        self._buffer_bytes = options.buffer_bytes
        self._lines: list[bytes] = []
        self._size = 0
        self._unmatched: dict[str, int] = {}  # by attribute, not written yet
        self._since = 0.0  # time of the first record in the buffer
        self._until = 0.0  # midnight after it

    @property
    def written(self) -> int:
        """Records written to the operating system; not those of kind ``file``."""
        return self._files.written

    @property
    def lost(self) -> int:
        """Records lost through a failing disk, or a value that JSON cannot represent."""
        return self._losses.records

    @property
    def error(self) -> str | None:
        """The reason for the last loss."""
        return self._losses.error

    def trace_marks(self, incarnation: int, first: int, count: int) -> Sequence[bool] | None:
        """Which of this node's next `count` events, numbered from `first` on, are to be traced;
        None: all of them. A share that has changed is recorded."""
        of_events = self._shares[PUBLISH]
        if of_events.publishes(count, self._clock()):
            self.write("sampling", {"first": first, "share": of_events.share})
        share = of_events.share
        if share >= 1.0:
            return None
        return marks(f"{self._node}.{incarnation}.", first, count, share)

    def row_share(self, kind: str, count: int) -> float:
        """The share of so many more rows of streams of which records of a kind (`ROW_KINDS`) are
        kept: with the CRC-32 of their identity below it, as `is_sampled`. Each kind has a share of
        its own, which the records name where it is less than 1."""
        of_kind = self._shares[kind]
        of_kind.publishes(count, self._clock())
        return of_kind.share

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        """The events among these whose records are kept."""
        kept = [event for event in events if event.traced]
        if self._sample >= 1.0 or not kept:
            return kept
        return [event for event in kept if is_sampled(event.identity, self._sample)]

    def write(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Buffer one record. What is buffered is written when that is much, or at `flush`."""
        if self._sample < 1.0:
            event = fields.get("event")
            if event is not None and not is_sampled(event, self._sample):
                return
        now = self._clock()
        if now >= self._until or not self._lines:
            self._begin(now)
        try:
            line = self._records.line(kind, fields, now)
        except UNREPRESENTABLE as error:
            self._losses.add(1, error)
            return
        self._lines.append(line)
        self._size += len(line) + 1
        if self._size >= self._buffer_bytes:
            self.flush()

    def write_each(
        self, kind: str, name: str, values: Sequence[str], fields: Mapping[str, Any]
    ) -> None:
        """Buffer a record for each of these values of the field `name`, the other fields of which
        are the same: they are encoded once, and all have the same times. The records are of events
        among `sampled`; `name` is not redacted."""
        now = self._clock()
        if now >= self._until or not self._lines:
            self._begin(now)
        try:
            lines = self._records.lines(kind, name, values, fields, now)
        except UNREPRESENTABLE as error:
            self._losses.add(len(values), error)
            return
        self._lines += lines
        self._size += sum(map(len, lines)) + len(lines)
        if self._size >= self._buffer_bytes:
            self.flush()

    def count_unmatched(self, counts: Mapping[str, int]) -> None:
        """Count events among `sampled`, by attribute, for which a tree found no interested node."""
        self._begin(self._clock())
        for attribute, count in counts.items():
            self._unmatched[attribute] = self._unmatched.get(attribute, 0) + count

    def _begin(self, now: float) -> None:
        """Something is put into the buffer now."""
        if now >= self._until and (self._lines or self._unmatched):
            self.flush()  # records from before midnight belong to the day before
        if not self._lines and not self._unmatched:
            self._since, self._until = now, (now // DAY + 1) * DAY

    def flush(self) -> None:
        """Write all buffered records to the operating system. Never raises for a failing disk."""
        counts, self._unmatched = self._unmatched, {}
        if counts:
            now = min(self._clock(), math.nextafter(self._until, 0.0))
            for attribute, count in counts.items():
                fields = {"attribute": attribute, "size": count}
                try:
                    self._lines.append(self._records.line("unmatched", fields, now))
                except UNREPRESENTABLE as error:
                    self._losses.add(1, error)
        lines = self._lines
        if lines:
            self._lines, self._size = [], 0
            self._files.append(lines, self._since, self._clock())

    def close(self) -> None:
        """Flush and close the file. A later `write` opens a new one."""
        self.flush()
        self._files.close()
