"""Records the history of a world: every trace record with its virtual time, and one hash over all.

The hash defines "deterministic to the byte": two runs of a seed give the same one, whatever
PYTHONHASHSEED is. The last records are kept, to explain violations (`failure_report`); all records
can be written to a folder in the real format, which the Spark job then analyses like that of a real
overlay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from canopy.traces.writer import OpenFile, TraceOptions, TraceWriter, complete_fields

KEPT = 400_000
"""The number of records that are kept to explain violations: some 100 MB (measured: 250 bytes
each)."""


RECEIVED = ("arrive", "duplicate", "recheck_failed", "deliver", "drop")
"""Kinds of records that a node writes about an event for its own programs."""


class SimulatedRecord(NamedTuple):
    """One trace record: virtual seconds, node id, kind, and the fields of that kind."""

    time: float  # virtual seconds
    node: str
    kind: str
    fields: dict[str, Any]


class EventsAt(NamedTuple):
    """Identities of events that were at a node; dicts are used as ordered sets. An event can be in
    several."""

    sent: dict[str, None]
    """Events that its programs published and that it sent on."""
    carried: dict[str, None]
    """Events that it had for others, or that were under way to it and may have been for others."""
    received: dict[str, None]
    """Events that reached it for its own programs."""


class Recorder:
    """Keeps, hashes and, if asked to, writes the records of all nodes of a world."""

    def __init__(
        self,
        now: Callable[[], float],
        wall: Callable[[str], float],
        out: OpenFile | None = None,
        overlay: str = "canopy",
    ) -> None:
        """`wall`: the wall clock of a node (an id), in seconds since 1970; `overlay`: the overlay's
        name in the files."""
        self.records: deque[SimulatedRecord] = deque(maxlen=KEPT)
        self.counted: dict[str, int] = {}
        """The number of records of each kind."""
        self.listen: Callable[[str, str, Mapping[str, Any]], None] | None = None
        """Called with node, kind and fields of each record, as it would be written."""
        self._now = now
        self._wall = wall
        self._out = out
        self._overlay = overlay
        self._writers: dict[str, TraceWriter] = {}  # of the newest process of each node
        self._hash = blake2b(digest_size=16)
        self._encode = msgspec.msgpack.Encoder().encode

    def begin(self, node: str, run: int, hybrid: Callable[[], int]) -> None:
        """Note that a process of `node` starts, its `run`-th; `hybrid` is its hybrid logical
        clock."""
        if self._out is not None:
            former = self._writers.get(node)
            if former is not None:
                former.close()
            self._writers[node] = TraceWriter(
                self._out,
                node,
                partial(self._wall, node),
                TraceOptions(check=True),
                hybrid=hybrid,
                run=run,
                overlay=self._overlay,
            )

    def write(self, node: str, kind: str, fields: dict[str, Any]) -> None:
        """Keep one trace record of `node`."""
        self._keep(node, kind, fields)
        if self._out is not None:
            self._writers[node].write(kind, fields)

    def write_each(
        self, node: str, kind: str, name: str, values: Sequence[str], fields: dict[str, Any]
    ) -> None:
        """Keep trace records of `node` that differ only in the field `name`."""
        for value in values:
            self._keep(node, kind, {**fields, name: value})
        if self._out is not None:
            self._writers[node].write_each(kind, name, values, fields)

    def _keep(self, node: str, kind: str, fields: dict[str, Any]) -> None:
        now = self._now()
        self._hash.update(self._encode((now, node, kind, fields)))
        self.counted[kind] = self.counted.get(kind, 0) + 1
        self.records.append(SimulatedRecord(now, node, kind, fields))
        if self.listen is not None:
            self.listen(node, kind, complete_fields(fields, self._wall(node)))

    def count_unmatched(self, node: str, counts: Mapping[str, int]) -> None:
        """Count the events, by attribute, that found no interested node at `node`; its writer makes
        a record of them when its buffer is written."""
        self._hash.update(self._encode((self._now(), node, "unmatched", counts)))
        if self.listen is not None:
            for attribute, count in counts.items():
                self.listen(node, "unmatched", {"attribute": attribute, "size": count})
        if self._out is not None:
            self._writers[node].count_unmatched(counts)

    def events_at(self, node: str, since: float) -> EventsAt:
        """Return the events that were at a node (an id), by the records since `since`."""
        found = EventsAt({}, {}, {})
        sent_there: dict[tuple[str, str, str], None] = {}
        arrived: dict[tuple[str, str, str], None] = {}
        for record in reversed(self.records):
            if record.time < since:
                break
            kind, fields = record.kind, record.fields
            event = fields.get("event")
            if event is None:
                continue
            if record.node == node:
                if kind in ("publish", "visit"):
                    found.sent[event] = None
                elif kind in RECEIVED:
                    found.received[event] = None
                    if kind == "arrive":
                        arrived[event, fields["peer"], fields["attribute"]] = None
                else:
                    found.carried[event] = None
            elif kind in ("visit", "forward") and fields["peer"] == node:
                if kind == "visit":
                    found.carried[event] = None
                else:
                    sent_there[event, record.node, fields["attribute"]] = None
        # What did not arrive may have been for others, too: only a delegate's own `forward`
        # records, written in the turn of the arrival, tell.
        for delivery in sent_there:
            if delivery not in arrived:
                found.carried[delivery[0]] = None
        return found

    @property
    def trace_hash(self) -> str:
        """Return 32 hex digits over all records so far."""
        return self._hash.hexdigest()

    def flush(self) -> None:
        """Write the buffered records."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write the buffered records, and close the files."""
        for writer in self._writers.values():
            writer.close()
