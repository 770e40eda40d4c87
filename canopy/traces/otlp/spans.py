"""The spans of one event, from the records of all nodes about it.

::

    the publisher's own span (`traceparent`)
      publish              at its node                      producer
        match ATTRIBUTE    at each host that it visited     internal
          deliver          at each interested node          consumer

Ids of spans are hashes of what they are about, so that exporting twice makes the same spans.
Records are of several machines' wall clocks: a span may seem to begin before its parent, as in
every distributed trace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

# The attribute ``traceparent``: W3C Trace Context (https://www.w3.org/TR/trace-context/,
# section 3.2).

ATTRIBUTE: Final = "traceparent"
SAMPLED: Final = 1
FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """Which trace an event belongs to. `parent`: the span that published it."""

    trace: str  # 32 hex digits
    parent: str  # 16 hex digits
    flags: int

    @property
    def is_sampled(self) -> bool:
        """Whether the publisher's tracer records this trace."""
        return bool(self.flags & SAMPLED)


def read_traceparent(text: object) -> TraceContext | None:
    """What the attribute says; None if it is not valid, which the specification has ignored. Of
    later versions than 00 the fields that this one has are taken."""
    found = FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    version, trace, parent, flags, more = found.groups()
    if version == "ff" or (version == "00" and more):
        return None
    if not int(trace, 16) or not int(parent, 16):
        return None
    return TraceContext(trace, parent, int(flags, 16))


INTERNAL: Final = 1
PRODUCER: Final = 4
CONSUMER: Final = 5
"""Kinds of spans (opentelemetry-proto, trace.proto)."""

ERROR: Final = 2  # code of a span's status

WANTED: Final = frozenset(("visit", "match", "arrive", "deliver", "drop"))
"""The kinds of records that spans are made of, besides `publish`."""

Attribute = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times are seconds since 1970; `parent` "": there is none."""

    node: str
    trace: str
    id: str
    parent: str
    name: str
    kind: int
    begins: float
    ends: float
    attributes: dict[str, Attribute] = field(default_factory=dict)
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """The span in the JSON form of OTLP: ids in hexadecimal, 64-bit integers as text."""
        found: dict[str, Any] = {
            "traceId": self.trace,
            "spanId": self.id,
            "name": self.name,
            "kind": self.kind,
            "startTimeUnixNano": nanoseconds(self.begins),
            "endTimeUnixNano": nanoseconds(max(self.begins, self.ends)),
            "attributes": attributes_of(self.attributes),
            "status": {"code": ERROR, "message": self.error} if self.error else {},
        }
        return found | ({"parentSpanId": self.parent} if self.parent else {})


def nanoseconds(seconds: float) -> str:
    """As OTLP writes a time."""
    return str(round(seconds * 1e9))


def attributes_of(values: dict[str, Attribute]) -> list[dict[str, Any]]:
    """Attributes in the JSON form of OTLP."""
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def any_value(value: Attribute) -> dict[str, Any]:
    """A value in the JSON form of OTLP."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": value}


def span_id(*about: str) -> str:
    """The id of the span that is about this."""
    return blake2b("\0".join(about).encode(), digest_size=8).hexdigest()


class EventSpans:
    """Gathers the records of one event, and makes its spans."""

    def __init__(self, context: TraceContext, publish: Any, type_: str) -> None:
        """`publish`: the record of its publication; `type_`: the event's type."""
        self._context = context
        self._publish = publish
        self._type = type_
        self._records: list[Any] = []

    def add(self, record: Any) -> None:
        """A record of another step of the event, of a kind in `WANTED`."""
        self._records.append(record)

    def spans(self) -> list[Span]:
        """All spans, the publication first."""
        publish, event = self._publish, self._publish.event
        root = span_id(event, "publish")
        visits: dict[tuple[str, str], float] = {}
        arrivals: dict[tuple[str, str], float] = {}
        last = publish.time
        for record in self._records:
            if record.kind == "visit":
                visits.setdefault((record.peer or "", record.attribute or ""), record.time)
                last = max(last, record.time) if record.node == publish.node else last
            elif record.kind == "arrive":
                arrivals.setdefault((record.node, record.attribute or ""), record.time)
        messaging: dict[str, Attribute] = {
            "messaging.system": "canopy",
            "messaging.message.id": publish.id or event,
            "canopy.event": event,
        }
        size: dict[str, Attribute] = {"messaging.message.body.size": publish.size or 0}
        operation: dict[str, Attribute] = {"messaging.operation.type": "send"}
        found = [
            self._span(
                publish,
                root,
                self._context.parent,
                f"publish {self._type}",
                PRODUCER,
                publish.time,
                last,
                messaging | size | operation,
            )
        ]
        matches: dict[str, list[tuple[float, str]]] = {}
        for record in self._records:
            if record.kind != "match":
                continue
            about = (record.attribute or "", record.lo or "", record.hi or "")
            id_ = span_id(event, "match", record.node, *about)
            begins = visits.get((record.node, about[0]), record.time)
            extra: dict[str, Attribute] = {
                "canopy.attribute": about[0],
                "canopy.virtual_node": f"{about[1]} … {about[2]}",
                "canopy.recipients": record.recipients or 0,
            }
            matches.setdefault(about[0], []).append((record.time, id_))
            found.append(
                self._span(
                    record,
                    id_,
                    root,
                    f"match {about[0]}",
                    INTERNAL,
                    begins,
                    record.time,
                    messaging | extra,
                )
            )
        for record in self._records:
            if record.kind in ("deliver", "drop"):
                parent = self._parent(record, matches, root)
                found.append(self._last_step(record, parent, arrivals, messaging))
        return found

    def _parent(self, record: Any, matches: dict[str, list[tuple[float, str]]], root: str) -> str:
        """The match that led to a delivery: the last one before it in the tree that it names."""
        before = matches.get(record.attribute or "", [])
        earlier = [each for each in before if each[0] <= record.time]
        return max(earlier or before, default=(0.0, root))[1]

    def _last_step(
        self,
        record: Any,
        parent: str,
        arrivals: dict[tuple[str, str], float],
        messaging: dict[str, Attribute],
    ) -> Span:
        event, subscription = self._publish.event, record.subscription or ""
        id_ = span_id(event, record.kind, record.node, subscription, str(record.n))
        if record.kind == "drop":
            about: dict[str, Attribute] = {"canopy.peer": record.peer or ""}
            return self._span(
                record,
                id_,
                parent,
                "drop",
                CONSUMER,
                record.time,
                record.time,
                messaging | about,
                record.reason or "given up",
            )
        begins = arrivals.get((record.node, record.attribute or ""), record.time)
        extra: dict[str, Attribute] = {
            "messaging.operation.type": "process",
            "messaging.destination.subscription.name": subscription,
            "canopy.latency_ms": float(record.latency_ms or 0.0),
            "canopy.hops": record.hops or 0,
        }
        return self._span(
            record,
            id_,
            parent,
            f"deliver {self._type}",
            CONSUMER,
            begins,
            record.time,
            messaging | extra,
        )

    def _span(
        self,
        record: Any,
        id_: str,
        parent: str,
        name: str,
        kind: int,
        begins: float,
        ends: float,
        attributes: dict[str, Attribute],
        error: str = "",
    ) -> Span:
        return Span(
            record.node,
            self._context.trace,
            id_,
            parent,
            name,
            kind,
            begins,
            ends,
            attributes,
            error,
        )
