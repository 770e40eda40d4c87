"""From trace folders to OTLP/JSON: a file of one request per line (OTLP file exporter), or requests
to a collector (OTLP/HTTP).

The files are read twice: once for the events with a trace context, once for what became of them, so
that only these are in memory.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from canopy.traces.analysis.constants import AnalysisError
from canopy.traces.analysis.parsing.lines import DAMAGED, LineParser, lines_of, pieces
from canopy.traces.analysis.read import trace_files
from canopy.traces.otlp.spans import (
    ATTRIBUTE,
    WANTED,
    EventSpans,
    Span,
    TraceContext,
    attributes_of,
    read_traceparent,
)

TOGETHER: Final = 512
"""Spans of one request: what OpenTelemetry's batch processor has by default."""

ANSWER: Final = 30.0  # seconds for a collector to answer
ACCEPTED: Final = range(200, 300)


@dataclass
class Exported:
    """What was made. `invalid`: events whose trace context is none; `unsampled`: events that their
    publisher's tracer does not record; `damaged`: files that could not be read to their ends."""

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
        """Of nodes, as their users call them."""

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
        """The records of lines that have one of these words."""
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
