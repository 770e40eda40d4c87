"""Events as structured CloudEvents 1.0: what `cloudevents` reads, written again.

An event that came as a CloudEvent with an object as its `data` leaves as it came, but for the names
that stood in both, of which the context attributes win.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from canopy.feeds.drafts import BadEventError, id_text
from canopy.feeds.jsontext import is_json_type, parse
from matching import Value

NAME: Final = re.compile(r"[a-z0-9]{1,20}")
"""Names of context attributes (CloudEvents 1.0, section 3.1)."""

CONTEXT: Final = (
    *("specversion", "id", "source", "type", "subject", "time"),
    *("dataschema", "datacontenttype"),
)
"""The context attributes that CloudEvents itself defines."""

REST: Final = "canopyattributes"
"""The extension attribute with the attributes that cannot be context attributes, as the text of a
JSON object, where the data is no object that could hold them."""


def cloudevent_object(
    attributes: Mapping[str, Value | None],
    payload: bytes,
    payload_type: str,
    identity: str,
    source: str,
    time: float,
) -> dict[str, Any]:
    """The structured CloudEvent of an event. `identity` and `source` stand in for an `id` and a
    `source` that it has not, `time` (wall clock seconds) for a `time`."""
    context: dict[str, Any] = {
        "specversion": "1.0",
        "id": id_text(attributes.get("id")) or identity,
        "source": _text(attributes.get("source")) or source,
        "type": _text(attributes.get("type")) or "event",
        "time": _text(attributes.get("time"))
        or datetime.fromtimestamp(time, UTC).isoformat().replace("+00:00", "Z"),
    }
    for name in ("subject", "dataschema", "datacontenttype"):
        if value := _text(attributes.get(name)):
            context[name] = value
    rest = {
        name: value
        for name, value in attributes.items()
        if name not in ("id", "specversion") and context.get(name) != value
    }
    data = _json(payload, payload_type)
    if not payload or isinstance(data, dict):
        if rest or data:
            context["data"] = {**(data or {}), **rest}
            context.setdefault("datacontenttype", "application/json")
        return context
    return context | _extensions(rest) | _data(payload, payload_type, data)


def _text(value: Value | None) -> str:
    return value if isinstance(value, str) else ""


def _json(payload: bytes, payload_type: str) -> Any:
    """The value in a JSON payload; None if it is none."""
    if not is_json_type(payload_type):
        return None
    try:
        return parse(payload)
    except BadEventError:
        return None


def _extensions(rest: Mapping[str, Value | None]) -> dict[str, Any]:
    """These attributes beside data that has no room for them."""
    found: dict[str, Any] = {}
    left: dict[str, Any] = {}
    for name, value in rest.items():
        fits = isinstance(value, str | bool) or (isinstance(value, int) and abs(value) < 1 << 31)
        if fits and NAME.fullmatch(name) and name not in CONTEXT:
            found[name] = value
        else:
            left[name] = value
    if left:
        from canopy.feeds.jsontext import dump

        found[REST] = dump(left).decode()
    return found


def _data(payload: bytes, payload_type: str, data: Any) -> dict[str, Any]:
    kind = {"datacontenttype": payload_type} if payload_type else {}
    if data is not None:
        return {**kind, "data": data}
    try:
        if payload_type.startswith("text/") or payload_type.partition(";")[0].endswith("xml"):
            return {**kind, "data": payload.decode("utf-8")}
    except UnicodeDecodeError:
        pass
    return {**kind, "data_base64": base64.b64encode(payload).decode("ascii")}
