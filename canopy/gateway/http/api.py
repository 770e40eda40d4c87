"""The questions of the console, which other programs may ask too: read-only requests to the node,
as JSON over HTTP.

Each question is a row of `QUESTIONS`: a path under /api/, its parameters, and the command of the
control socket that it becomes; the answer is that command's reply. `/openapi.json` describes all of
them and `/events` (OpenAPI 3.1), from the same table and the types of the replies; `/asyncapi.json`
describes the events that are published and followed (AsyncAPI 3.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any, Final
from urllib import parse

import msgspec

import overlay.client
import overlay.info
import overlay.stream_client
from canopy.client.client import AsyncClient
from canopy.client.errors import ControlError
from canopy.gateway.access import Permission, RequestRefused
from canopy.gateway.constants import ANSWER_TIMEOUT
from canopy.gateway.feeds import refusal
from matching import SelectorError, compile_selector
from overlay.client import (
    Attributes,
    Command,
    Draft,
    DryRun,
    Explained,
    GetAttributes,
    GetIncidents,
    GetPeers,
    GetRing,
    GetStatus,
    GetStreams,
    GetSubscriptions,
    Incidents,
    Located,
    Peers,
    Recipients,
    Reply,
    RingClusters,
    Status,
    Streams,
    Subscriptions,
    Where,
    Why,
)
from overlay.operator_commands import EventSchema, GetSchemas, Schemas
from overlay.stream_client import GetGroups, Groups, RowExplained, WhyRow

Query = Mapping[str, str]


class Question(msgspec.Struct, frozen=True):
    """A question: its purpose, its parameters with their meanings ("?": optional), the command for
    a query, and the type of the answer."""

    summary: str
    parameters: dict[str, str]
    command: Callable[[Query], Command]
    answer: type[Reply]


def number(query: Query, name: str, otherwise: str = "") -> int:
    """Return a parameter that is a whole number. Raises RequestRefused."""
    text = query.get(name, otherwise)
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise RequestRefused(400, f"{name}: a whole number is wanted, not {text!r}")
    return int(text)


QUESTIONS: Final[dict[str, Question]] = {
    "status": Question("The node: role, counters, programs.", {}, lambda _: GetStatus(0), Status),
    "peers": Question("Its neighbours and links.", {}, lambda _: GetPeers(0), Peers),
    "ring": Question(
        "All clusters of the ring, with their members.", {}, lambda _: GetRing(0), RingClusters
    ),
    "incidents": Question(
        "What happened around the node lately.", {}, lambda _: GetIncidents(0), Incidents
    ),
    "subscriptions": Question(
        "The subscriptions of its programs.", {}, lambda _: GetSubscriptions(0), Subscriptions
    ),
    "attributes": Question(
        "Names of attributes seen lately.", {}, lambda _: GetAttributes(0), Attributes
    ),
    "where": Question(
        "Who owns an attribute, and its tree.",
        {"attribute": "its name"},
        lambda query: Where(0, query["attribute"]),
        Located,
    ),
    "streams": Question(
        "All streams, or one with all of its replicas.",
        {"name?": "of one stream"},
        lambda query: GetStreams(0, query.get("name", "")),
        Streams,
    ),
    "groups": Question(
        "The consumer groups of a stream.",
        {"stream": "its name", "group?": "of one group"},
        lambda query: GetGroups(0, query["stream"], query.get("group", "")),
        Groups,
    ),
    "why": Question(
        "Why an event came to the node's subscriptions, or not.",
        {"event": "its id or identity", "subscription?": "of one subscription"},
        lambda query: Why(0, query["event"], query.get("subscription", "")),
        Explained,
    ),
    "row": Question(
        "What became of a stream's row.",
        {"stream": "its name", "offset": "a whole number", "shard?": "0 if left out"},
        lambda q: WhyRow(0, q["stream"], number(q, "shard", "0"), number(q, "offset")),
        RowExplained,
    ),
}
"""The questions of GET, by the last part of the path `/api/…`."""


def is_api(path: str) -> bool:
    """Return whether a path is a question or a description."""
    return path.startswith("/api/") or path in ("/openapi.json", "/asyncapi.json")


async def answer(client: AsyncClient, grant: Permission, path: str, query: Query) -> dict[str, Any]:
    """Return the answer to a question. Raises RequestRefused."""
    if path == "/openapi.json":
        return openapi()
    if path == "/asyncapi.json":
        return asyncapi(await schemas_of(client))
    name = path.removeprefix("/api/")
    if name == "check":
        grant.check("subscribe")
        return checked(query.get("where", ""))
    grant.check_observer()
    question = QUESTIONS.get(name)
    if question is None:
        known = ", ".join(sorted((*QUESTIONS, "check", "dry-run")))
        raise RequestRefused(404, f"there is no {path}; under /api/ there are {known}")
    wanted = {each.rstrip("?") for each in question.parameters}
    if unknown := sorted(query.keys() - wanted):
        known = ", ".join(sorted(wanted)) or "none"
        raise RequestRefused(400, f"{', '.join(unknown)}: unknown; known are {known}")
    needed = [each for each in question.parameters if not each.endswith("?")]
    if missing := [each for each in needed if not query.get(each)]:
        raise RequestRefused(400, f"{', '.join(missing)}: missing")
    return await asked(client, question.command(query), question.answer)


async def dry_run(client: AsyncClient, grant: Permission, drafts: list[Draft]) -> dict[str, Any]:
    """Return the recipients of these events. Raises RequestRefused."""
    grant.check_observer()
    return await asked(client, DryRun(0, tuple(drafts)), Recipients)


async def asked(client: AsyncClient, command: Command, kind: type[Reply]) -> dict[str, Any]:
    """Ask the node, and return its reply for JSON. Raises RequestRefused."""
    try:
        found = await client.ask(command, kind, ANSWER_TIMEOUT)
    except ControlError as error:
        raise refusal(error) from None
    shown = plain(found)
    assert isinstance(shown, dict)
    del shown["request"]
    return shown


def plain(value: Any) -> Any:
    """Return a reply for JSON. Structs that are arrays on the control socket become objects, too:
    programs read them by name."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def components(kinds: Iterable[type[Reply]]) -> dict[str, Any]:
    """Return the JSON Schemas of replies and of the types in them, by the name of the type, as
    `plain` makes them."""
    structs: dict[str, type[msgspec.Struct]] = {}
    _, parts = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for module in (overlay.client, overlay.info, overlay.stream_client):
        structs |= {name: getattr(module, name) for name in parts if hasattr(module, name)}
    for name, schema in parts.items():
        items = schema.pop("prefixItems", None)
        if items is None:
            continue
        schema.pop("minItems", None)
        fields = structs[name].__struct_fields__
        named = dict(zip(reversed(fields), reversed(items), strict=False))
        named.pop("request", None)
        parts[name] = {**schema, "type": "object", "properties": dict(reversed(named.items()))}
    return parts


def checked(where: str) -> dict[str, Any]:
    """Return the attributes of a selector and its fault, a text with a caret under the place; "" if
    it is valid."""
    try:
        found = compile_selector(where or "TRUE")
    except SelectorError as error:
        return {"error": error.caret(), "attributes": []}
    return {"error": "", "attributes": sorted(found.attributes)}


def openapi() -> dict[str, Any]:
    """Return the description of all paths, in OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    for name, question in QUESTIONS.items():
        parameters = [
            {
                "name": each.rstrip("?"),
                "in": "query",
                "required": not each.endswith("?"),
                "description": text,
                "schema": {"type": "string"},
            }
            for each, text in question.parameters.items()
        ]
        schema = reference(question.answer)
        paths[f"/api/{name}"] = {"get": operation(name, question.summary, schema, parameters)}
    selector = {"name": "where", "in": "query", "required": True, "schema": {"type": "string"}}
    paths["/api/check"] = {
        "get": operation("check", "What is wrong with a selector.", CHECKED, [selector])
    }
    event = {"required": True, "content": {"application/json": {"schema": EVENT}}}
    paths["/api/dry-run"] = {
        "post": operation("dry-run", "Who would get an event.", reference(Recipients), [])
        | {"requestBody": event}
    }
    paths["/events"] = {
        "get": operation("follow", "Follow a selector or a stream (text/event-stream).", {}, [])
        | {"parameters": [{**selector, "required": False}, *FOLLOWING]},
        "post": operation("publish", "Publish events.", {"type": "object"}, [])
        | {"requestBody": event},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Canopy gateway",
            "version": version("canopy-overlay"),
            "description": "Events by content, and what a node knows. docs/guide/gateway.md",
        },
        "paths": paths,
        "components": {
            "schemas": components([*(each.answer for each in QUESTIONS.values()), Recipients]),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def reference(kind: type[Reply]) -> dict[str, str]:
    """Return a reference to the schema of a reply."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def operation(
    name: str, summary: str, schema: Mapping[str, Any], parameters: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return one operation of OpenAPI. All operations have the same errors."""
    content = {"application/json": {"schema": schema}}
    if name == "follow":
        content = {"text/event-stream": {"schema": {"type": "string"}}}
    refused = {"application/json": {"schema": REFUSED}}
    return {
        "operationId": name,
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {"description": "Why there is none.", "content": refused},
        },
    }


VALUE: Final = {"type": ["string", "number", "boolean", "null"]}
EVENT: Final = {
    "type": "object",
    "description": "Attributes by name; lists and objects stay in the payload.",
    "additionalProperties": True,
}
CHECKED: Final = {
    "type": "object",
    "properties": {
        "error": {"type": "string", "description": "with a mark at the place; empty: none"},
        "attributes": {"type": "array", "items": {"type": "string"}},
    },
}
REFUSED: Final = {"type": "object", "properties": {"error": {"type": "string"}}}
FOLLOWING: Final = [
    {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
    for name, text in (
        ("stream", "a stream's name, instead of live events"),
        ("last", "yes: begin with the newest event of each key, of a stream that captures all"),
        ("from", "first, new, keys, an offset or a time, of a stream"),
        ("format", "json or cloudevents"),
    )
]
DELIVERED: Final = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "description": "identity"},
        "id": {"type": "string"},
        "time": {"type": "number", "description": "seconds since 1970, of publishing"},
        "attributes": {"type": "object", "additionalProperties": VALUE},
        "payload": {},
    },
}


async def schemas_of(client: AsyncClient) -> tuple[EventSchema, ...]:
    """Return the schemas by which the node validates events; none if it does not answer."""
    try:
        return (await client.ask(GetSchemas(0), Schemas, ANSWER_TIMEOUT)).schemas
    except ControlError:
        return ()


def asyncapi(schemas: Iterable[EventSchema]) -> dict[str, Any]:
    """Return the description of followed and published events in AsyncAPI 3.0: any event, and those
    of each type with a schema."""
    channel = {"$ref": "#/channels/events"}
    typed = {
        parse.quote(one.type, safe=""): {
            "name": one.type,
            "payload": {
                "schemaFormat": "application/schema+json;version=draft-2020-12",
                "schema": msgspec.json.decode(one.text),
            },
        }
        for one in schemas
    }
    published = [{"$ref": f"#/channels/events/messages/{name}"} for name in ("published", *typed)]
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Canopy gateway", "version": version("canopy-overlay")},
        "defaultContentType": "application/json",
        "channels": {
            "events": {
                "address": "/events",
                "description": "Server-sent events, or a WebSocket; the query `where` selects.",
                "messages": {
                    "delivered": {"payload": DELIVERED},
                    "published": {"payload": EVENT},
                    **typed,
                },
            }
        },
        "operations": {
            "follow": {
                "action": "send",
                "channel": channel,
                "summary": "The events of a selector, or of a stream.",
                "messages": [{"$ref": "#/channels/events/messages/delivered"}],
            },
            "publish": {
                "action": "receive",
                "channel": channel,
                "summary": "Events to publish.",
                "messages": published,
            },
        },
    }
