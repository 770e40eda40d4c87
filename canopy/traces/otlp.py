"""Trace records as spans of OpenTelemetry, as OTLP/JSON: a file of one request per line (OTLP file
exporter), or requests to a collector (OTLP/HTTP).

An event is part of a distributed trace if it has the attribute ``traceparent`` (W3C Trace Context),
as CloudEvents' extension for distributed tracing has it: the overlay carries it as it carries every
attribute, and never changes it. The spans of one event, from the records of all nodes about it::

    the publisher's own span (`traceparent`)
      publish              at its node                      producer
        match ATTRIBUTE    at each host that it visited     internal
          deliver          at each interested node          consumer

Ids of spans are hashes of what they are about, so that exporting twice makes the same spans.
Records are of several machines' wall clocks: a span may seem to begin before its parent, as in
every distributed trace. The files are read twice: once for the events with a trace context, once
for what became of them, so that only these are in memory.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from canopy.traces.analysis.constants import AnalysisError
from canopy.traces.analysis.parsing.lines import DAMAGED, LineParser, lines_of, pieces
from canopy.traces.analysis.read import trace_files

ATTRIBUTE: Final = "traceparent"
SAMPLED: Final = 1
FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """The trace that an event belongs to. `parent`: the span that published it."""

    trace: str  # 32 hex digits
    parent: str  # 16 hex digits
    flags: int

    @property
    def is_sampled(self) -> bool:
        """Whether the publisher's tracer records this trace."""
        return bool(self.flags & SAMPLED)


def read_traceparent(text: object) -> TraceContext | None:
    """Parse the attribute. Returns None if it is invalid, since the specification requires such a
    value to be ignored. Of versions later than 00 only the fields of version 00 are read."""
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
        size: dict[str, Attribute] = {
            "messaging.message.body.size": publish.size or 0,
            "messaging.operation.type": "send",
        }
        parent, named = self._context.parent, f"publish {self._type}"
        first = self._span(publish, root, parent, named, PRODUCER, publish.time, size)
        found = [replace(first, ends=last)]
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
            named = f"match {about[0]}"
            found.append(self._span(record, id_, root, named, INTERNAL, begins, extra))
        for record in self._records:
            if record.kind in ("deliver", "drop"):
                found.append(self._last_step(record, self._parent(record, matches, root), arrivals))
        return found

    def _span(
        self,
        record: Any,
        id_: str,
        parent: str,
        name: str,
        kind: int,
        begins: float,
        extra: dict[str, Attribute],
    ) -> Span:
        """The span that ends with this record."""
        about: dict[str, Attribute] = {
            "messaging.system": "canopy",
            "messaging.message.id": self._publish.id or self._publish.event,
            "canopy.event": self._publish.event,
        }
        trace = self._context.trace
        return Span(record.node, trace, id_, parent, name, kind, begins, record.time, about | extra)

    def _parent(self, record: Any, matches: dict[str, list[tuple[float, str]]], root: str) -> str:
        """The match that led to a delivery: the last one before it in the tree that it names."""
        before = matches.get(record.attribute or "", [])
        earlier = [each for each in before if each[0] <= record.time]
        return max(earlier or before, default=(0.0, root))[1]

    def _last_step(self, record: Any, parent: str, arrivals: dict[tuple[str, str], float]) -> Span:
        event, subscription = self._publish.event, record.subscription or ""
        id_ = span_id(event, record.kind, record.node, subscription, str(record.n))
        if record.kind == "drop":
            peer: dict[str, Attribute] = {"canopy.peer": record.peer or ""}
            found = self._span(record, id_, parent, "drop", CONSUMER, record.time, peer)
            return replace(found, error=record.reason or "given up")
        begins = arrivals.get((record.node, record.attribute or ""), record.time)
        extra: dict[str, Attribute] = {
            "messaging.operation.type": "process",
            "messaging.destination.subscription.name": subscription,
            "canopy.latency_ms": float(record.latency_ms or 0.0),
            "canopy.hops": record.hops or 0,
        }
        return self._span(record, id_, parent, f"deliver {self._type}", CONSUMER, begins, extra)


TOGETHER: Final = 512
"""Spans of one request: the default of OpenTelemetry's batch processor."""

ANSWER: Final = 30.0  # seconds for a collector to answer
ACCEPTED: Final = range(200, 300)


@dataclass
class Exported:
    """The result of an export. `invalid`: events with an invalid trace context; `unsampled`: events
    that their publisher's tracer does not record; `damaged`: files that could not be read to the
    end."""

    events: int = 0
    spans: int = 0
    requests: int = 0
    invalid: int = 0
    unsampled: int = 0
    damaged: list[str] = field(default_factory=list)


class SpanReader:
    """Reads the trace files below a folder."""

    def __init__(self, traces: Path, every: bool) -> None:
        """`every`: also events without a trace context, each as a trace of its own, and those that
        their publisher's tracer does not record. Raises AnalysisError if there are no files."""
        self._files = list(trace_files(traces))
        if not self._files:
            raise AnalysisError(f"there are no trace files under {traces}")
        self._every = every
        self._parser = LineParser()
        self.found = Exported()
        self.names: dict[str, str] = {}
        """The names of nodes, as their users call them."""

    def spans(self) -> Iterator[Span]:
        """The spans of all such events, event by event."""
        events: dict[str, EventSpans] = {}
        for record in self._records(b'"publish"', b'"start"'):
            if record.kind == "start":
                self.names[record.node] = record.name or ""
            elif record.kind == "publish" and (known := self._begin(record)) is not None:
                events[record.event] = known
        kinds = tuple(f'"{kind}"'.encode() for kind in sorted(WANTED))
        for record in self._records(*kinds):
            if record.kind in WANTED and record.event in events:
                events[record.event].add(record)
        self.found.events = len(events)
        for known in events.values():
            yield from known.spans()

    def _begin(self, record: Any) -> EventSpans | None:
        try:
            attributes = json.loads(record.attributes or "{}")
        except ValueError:
            return None
        if not isinstance(attributes, dict):
            return None
        context = read_traceparent(attributes.get(ATTRIBUTE))
        if context is None:
            self.found.invalid += ATTRIBUTE in attributes
            if not self._every:
                return None
            context = TraceContext(
                blake2b(record.event.encode(), digest_size=16).hexdigest(), "", 1
            )
        elif not context.is_sampled and not self._every:
            self.found.unsampled += 1
            return None
        return EventSpans(context, record, str(attributes.get("type", "event")))

    def _records(self, *words: bytes) -> Iterator[Any]:
        """Yield the records of lines that contain one of these words."""
        for path in self._files:
            try:
                for lines in lines_of(pieces(path)):
                    for line in lines:
                        if any(word in line for word in words):
                            record, problem = self._parser.parse(line)
                            if not problem:
                                yield record
            except DAMAGED:
                if path.name not in self.found.damaged:
                    self.found.damaged.append(path.name)


def requests_of(spans: Iterable[Span], names: dict[str, str], version: str) -> Iterator[bytes]:
    """The spans as bodies of ExportTraceServiceRequest in JSON, those of a node under its own
    resource."""
    batch: list[Span] = []
    for span in spans:
        batch.append(span)
        if len(batch) == TOGETHER:
            yield request_of(batch, names, version)
            batch = []
    if batch:
        yield request_of(batch, names, version)


def request_of(spans: list[Span], names: dict[str, str], version: str) -> bytes:
    """The body of one request: the spans by node, as OTLP/HTTP JSON has them."""
    by_node: dict[str, list[Span]] = {}
    for span in spans:
        by_node.setdefault(span.node, []).append(span)
    scope = {"name": "canopy", "version": version}
    resources = [
        {
            "resource": {
                "attributes": attributes_of(
                    {
                        "service.name": "canopy",
                        "service.version": version,
                        "service.instance.id": node,
                        "canopy.node.name": names.get(node, ""),
                    }
                )
            },
            "scopeSpans": [{"scope": scope, "spans": [span.as_json() for span in own]}],
        }
        for node, own in by_node.items()
    ]
    return json.dumps({"resourceSpans": resources}, separators=(",", ":")).encode()


def export(
    traces: Path, send: Callable[[bytes], None], version: str, every: bool = False
) -> Exported:
    """Hand the requests for all events with a trace context under `traces` to `send`."""
    reader = SpanReader(traces, every)

    def counted() -> Iterator[Span]:
        for span in reader.spans():
            reader.found.spans += 1
            yield span

    for body in requests_of(counted(), reader.names, version):
        send(body)
        reader.found.requests += 1
    return reader.found


def post(url: str, body: bytes) -> None:
    """Send one request to a collector (``http://HOST:4318/v1/traces``). Raises AnalysisError."""
    request = urllib.request.Request(
        url, body, {"Content-Type": "application/json", "User-Agent": "canopy"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER) as answer:
            if answer.status not in ACCEPTED:
                raise AnalysisError(f"{url}: the collector answered {answer.status}")
            refused = json.loads(answer.read() or b"{}").get("partialSuccess", {})
    except urllib.error.HTTPError as error:
        raise AnalysisError(
            f"{url}: the collector answered {error.code} {error.reason}; is it an OTLP/HTTP "
            f"receiver, whose path ends with /v1/traces?"
        ) from None
    except (OSError, ValueError) as error:
        raise AnalysisError(f"{url}: {error}") from None
    if int(refused.get("rejectedSpans", 0)):
        raise AnalysisError(f"{url}: the collector refused spans: {refused.get('errorMessage')}")
