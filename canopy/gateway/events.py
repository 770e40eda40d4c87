"""Requests as drafts: the CloudEvents HTTP binding 1.0 (binary, structured, batch), and plain JSON.

Fields become attributes by the rules of `canopy pub` (docs/reference/formats.md). If one event of a
request is invalid, the whole request is refused and nothing is published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, Final
from urllib.parse import unquote

from canopy.client.publication import Drafting
from canopy.feeds.cloudevents import BYTES, check_data, context_of, event_draft
from canopy.feeds.datatypes import usual_form
from canopy.feeds.drafts import BadEventError, FeedEvent, Refusal, check_size
from canopy.feeds.elements import Found, elements, only_cloudevent
from canopy.feeds.jsontext import is_json_type, parse
from canopy.feeds.lines import MARK, json_lines
from canopy.feeds.sequence import json_sequence
from canopy.feeds.source import FeedSource
from canopy.gateway.access import RequestRefused
from overlay.client import Draft

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
LINES: Final = ("application/x-ndjson", "application/jsonl")
SEQUENCES: Final = ("application/json-seq", "application/geo+json-seq")
TRACEPARENT: Final = re.compile("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""The header of W3C Trace Context that names the trace of a request."""

QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
ESCAPED: Final = re.compile(r"\\(.)")
"""An escaped character in a double-quoted string of a header (RFC 7230, section 3.2.6)."""

TAKEN: Final = f"application/json, application/x-ndjson, {STRUCTURED} and {BATCH}"


def drafts_of(headers: Mapping[str, str], body: bytes, drafting: Drafting) -> list[Draft]:
    """Return the events of a request; `headers` by lower-case names. Events without a trace get the
    request's `traceparent`, if it has one. Raises RequestRefused."""
    content, context = headers.get("content-type", ""), headers.get("traceparent", "")
    traced = {"traceparent": context} if TRACEPARENT.fullmatch(context) else {}
    kind = content.partition(";")[0].strip().lower()
    found: list[Draft] = []
    try:
        for draft in _read(headers, content, kind, body):
            check_size(draft)
            attributes = {**traced, **draft.attributes}
            found.append(drafting.draft(attributes, draft.payload, draft.payload_type))
    except BadEventError as error:
        place = f"event {len(found) + 1}: " if found or kind in (BATCH, *LINES, *SEQUENCES) else ""
        raise RequestRefused(400, f"{place}{error}; nothing of this request is published") from None
    if not found and kind != BATCH:
        raise RequestRefused(400, "there is no event in the request")
    return found


def _read(headers: Mapping[str, str], content: str, kind: str, body: bytes) -> Iterator[Draft]:
    """Yield the events of a request, in the mode that its media type names, or else its headers
    (HTTP binding 1.0, section 3)."""
    text = body.removeprefix(MARK)
    if kind == STRUCTURED:
        yield only_cloudevent(parse(text)).draft
    elif kind == BATCH:
        value = parse(text)
        if not isinstance(value, list):
            raise BadEventError("not an array of events")
        yield from map(_draft, elements(value, cloudevents=True))
    elif kind.startswith("application/cloudevents"):
        raise RequestRefused(415, f"{kind} is not taken; {TAKEN} are")
    elif "ce-specversion" in headers:
        yield _binary(headers, content, body)
    elif kind in LINES:
        yield from map(_event, json_lines(FeedSource(BytesIO(body))))
    elif kind in SEQUENCES:
        yield from map(_event, json_sequence(FeedSource(BytesIO(body))))
    elif is_json_type(kind):
        yield from map(_draft, elements(parse(text)))
    else:
        raise RequestRefused(415, f"{kind or 'no Content-Type'} is not taken; {TAKEN} are")


def _draft(found: Found) -> Draft:
    if isinstance(found, BadEventError):
        raise found
    return found.draft


def _event(item: FeedEvent | Refusal) -> Draft:
    if isinstance(item, Refusal):
        raise BadEventError(item.reason)
    return item.draft


def _binary(headers: Mapping[str, str], content: str, body: bytes) -> Draft:
    """Return an event in binary mode: its context is in the headers ``ce-…``, its data is the
    body."""
    if "ce-datacontenttype" in headers:
        raise BadEventError("the header ce-datacontenttype: Content-Type is in its place")
    fields: dict[str, Any] = {
        name[3:]: _header_text(name, value)
        for name, value in headers.items()
        if name.startswith("ce-")
    }
    context = context_of({**fields, "datacontenttype": content or None})
    if not body:
        return event_draft(context)
    if is_json_type(content):
        value = parse(body.removeprefix(MARK))
        check_data(value)
        return event_draft(context, body, content, "json", value)
    return event_draft(context, body, content or BYTES, usual_form(body, content))


def _header_text(name: str, value: str) -> str:
    """Decode the value of a header (HTTP binding 1.0, section 3.1.3.2): remove double quotes, then
    decode percent-encoded UTF-8."""
    if not value.isascii():
        raise BadEventError(f"the header {name} is not ASCII: other characters are percent-encoded")
    plain = QUOTED.sub(lambda found: ESCAPED.sub(r"\1", found[1]), value)
    try:
        return unquote(plain, errors="strict")
    except UnicodeDecodeError:
        raise BadEventError(f"the header {name} is not percent-encoded UTF-8") from None
