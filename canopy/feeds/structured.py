"""Events as structured CloudEvents 1.0, the inverse of `cloudevents`.

An event that was a CloudEvent (it has a `specversion`) is reproduced: an attribute that is not a
field of its data is a context attribute. The attributes of any other event become the fields of its
data, except those with names of context attributes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from canopy.feeds.cloudevents import BYTES, same
from canopy.feeds.context import CONTEXT, FORBIDDEN, VERSION, fault_of
from canopy.feeds.datatypes import Data, data_of, media_type_of
from canopy.feeds.drafts import id_text
from canopy.feeds.jsontext import JSON, dump, is_json_type
from canopy.feeds.raw import TYPE
from matching import Value

REST: Final = "canopyattributes"
"""The extension attribute for attributes that can be neither context attributes nor fields of the
data, as the text of a JSON object."""

IMPLIED: Final = {"json": JSON, "text": "", "bytes": BYTES}
"""The media types of data that had no `datacontenttype`."""

NAME_MOST: Final = 20
"""The most characters that the name of an extension SHOULD have (section "Naming Conventions")."""


def cloudevent_object(
    attributes: Mapping[str, Value | None],
    payload: bytes,
    payload_type: str,
    identity: str,
    source: str,
    time: float,
) -> dict[str, Any]:
    """Return the structured CloudEvent of an event. `identity`, `source` and `time` (wall clock
    seconds) replace an `id`, `source` or `time` that the event lacks or that CloudEvents does not
    allow; the disallowed value is then among the other attributes."""
    came = attributes.get("specversion") == VERSION
    context = {"specversion": VERSION, "id": identity, "source": source, "type": "event"}
    if not came:
        context["time"] = datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z")
    rest = dict(attributes)
    kind = media_type_of(payload_type)
    if kind and fault_of("datacontenttype", kind):
        rest[TYPE] = kind
        payload_type = kind = ""
    for name in CONTEXT:
        value = attributes.get(name)
        text = id_text(value) if name == "id" and value is not None else value
        if name == "datacontenttype" and not came and value != kind:
            continue  # what is among its data says nothing of its payload
        if text is not None and not fault_of(name, text):
            context[name] = text  # type: ignore[assignment]
            del rest[name]
    data = data_of(payload, payload_type) if payload or (came and payload_type) else None
    if came:
        own = data.value if data is not None and isinstance(data.value, dict) else {}
        both = data.both if data is not None else frozenset()
        rest = {
            name: value
            for name, value in rest.items()
            if name in both or name not in own or not same(own[name], value)
        }
    elif data is None:
        data, kind, rest = Data("json", rest) if rest else None, JSON, {}
    elif isinstance(data.value, dict) and is_json_type(kind):
        data, rest = Data("json", {**data.value, **rest}), {}
    found: dict[str, Any] = {**context, **_extensions(rest, came)}
    if data is not None:
        if kind and not (came and kind == IMPLIED[data.form]):
            found.setdefault("datacontenttype", kind)
        content = found.get("datacontenttype", JSON)
        if (data.form == "json") != is_json_type(content):
            data = Data("bytes", payload)  # a receiver would read it as something else
        found |= _member(data)
    return found


def _extensions(rest: Mapping[str, Value | None], came: bool) -> dict[str, Any]:
    """Return these attributes as extensions, for data that cannot hold them."""
    found: dict[str, Any] = {}
    left: dict[str, Any] = {}
    for name, value in rest.items():
        fits = not fault_of(name, value) and (came or len(name) <= NAME_MOST)
        (found if fits and name not in CONTEXT else left)[name] = value
    if left:
        # Characters that no context attribute may have stand in its strings only.
        found[REST] = FORBIDDEN.sub(lambda one: json.dumps(one[0])[1:-1], dump(left).decode())
    return found


def _member(data: Data) -> dict[str, Any]:
    if data.form == "bytes":
        return {"data_base64": base64.b64encode(data.value).decode("ascii")}
    return {"data": data.value}
