"""JSON Schemas of events: a file `TYPE.json` in a folder for the events of each type.

What is held against a schema is one object: the event's attributes, beside the fields of a payload
that is a JSON object. So it is the object that was published, also where a part of it has become
the payload. The attributes `id` and `type`, which every event has, are left out where a schema does
not name them.

jsonschema-rs, of the extra *schema*, checks an event in a microsecond; it is imported when there is
a schema. Patterns are matched in linear time, and no schema is fetched from anywhere: a `$ref`
reaches what is in its own file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from canopy.feeds.jsontext import is_json_type
from canopy.feeds.raw import raw_object
from overlay.client import Draft
from overlay.operator_commands import EventSchema
from overlay.upper_tree.publisher.admission import Otherwise

FILE_LIMIT: Final = 64 * 1024
FOLDER_LIMIT: Final = 512 * 1024
"""Bytes of one schema, and of all: they are told in one answer."""

REASON_LIMIT: Final = 300
"""Characters of a reason."""

PARKED_TYPE: Final = "schema.parked"
"""The type of an event that was published in the place of another one."""


class EventSchemaError(Exception):
    """A schema cannot be used; the message names the file and says why."""


class Schema:
    """The schema of the events of a type."""

    def __init__(self, content: bytes, where: str) -> None:
        """`where`: for messages, the file. Raises EventSchemaError."""
        try:
            import jsonschema_rs
        except ImportError:
            raise EventSchemaError(
                f"{where}: schemas need jsonschema-rs, not installed here: "
                f"pip install 'canopy-overlay[schema]'"
            ) from None
        if len(content) > FILE_LIMIT:
            raise EventSchemaError(f"{where}: more than {FILE_LIMIT:,} bytes")
        try:
            found = msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise EventSchemaError(f"{where}: not JSON: {error}") from None
        if not isinstance(found, dict):
            raise EventSchemaError(f"{where}: a JSON Schema of events is an object")
        try:
            options = jsonschema_rs.RegexOptions()
            self._validator: Any = jsonschema_rs.validator_for(
                found, retriever=_fetch_nothing, pattern_options=options
            )
        except (jsonschema_rs.ValidationError, ValueError) as error:
            reason = getattr(error, "message", "") or str(error)
            place = _place(getattr(error, "instance_path", ()))
            raise EventSchemaError(
                f"{where}: no JSON Schema: {place}{reason[:REASON_LIMIT]}"
            ) from None
        properties = found.get("properties")
        self.attributes = tuple(properties) if isinstance(properties, dict) else ()
        """The names that it has, at the top."""
        self.text = content.decode("utf-8")
        named = {*self.attributes, *map(str, found.get("required", ()))}
        self._hidden = {"id", "type"} - named

    def fault(self, draft: Draft) -> str:
        """The first place at which an event violates its schema, and the reason, as `mag: "x" is
        not of type "number"`; "": it conforms."""
        event = document(draft)
        for name in self._hidden:
            event.pop(name, None)
        if self._validator.is_valid(event):
            return ""
        error = next(iter(self._validator.iter_errors(event)))
        return f"{_place(error.instance_path)}{error.message}"[:REASON_LIMIT]


def _place(path: Any) -> str:
    where = ".".join(map(str, path))
    return f"{where}: " if where else ""


def _fetch_nothing(uri: str) -> Any:
    raise ValueError("a $ref reaches what is in its own file only")


def document(draft: Draft) -> dict[str, Any]:
    """The object that is held against a schema."""
    found: dict[str, Any] = {}
    if draft.payload and is_json_type(draft.payload_type):
        try:
            nested = msgspec.json.decode(draft.payload)
        except msgspec.DecodeError:
            nested = None
        if isinstance(nested, dict):
            found |= nested
    return found | dict(draft.attributes)


class FolderSchemas:
    """The schemas in a folder: an `EventSchemas` of a node."""

    def __init__(self, folder: Path, otherwise: Otherwise) -> None:
        """Read the schemas in `folder`. Raises EventSchemaError."""
        self._folder = folder
        self.otherwise = otherwise
        """See `EventSchemas`."""
        self._by_type: Mapping[str, Schema] = {}
        self.reload()

    def reload(self) -> None:
        """Read the folder again. Raises EventSchemaError, and then nothing has changed."""
        if not self._folder.is_dir():
            raise EventSchemaError(f"{self._folder}: there is no such folder of schemas")
        found = {}
        size = 0
        for file in sorted(self._folder.glob("*.json")):
            try:
                content = file.read_bytes()
            except OSError as error:
                raise EventSchemaError(f"{file}: {error.strerror}") from None
            size += len(content)
            found[unquote(file.stem)] = Schema(content, str(file))
        if size > FOLDER_LIMIT:
            raise EventSchemaError(f"{self._folder}: more than {FOLDER_LIMIT:,} bytes of schemas")
        self._by_type = found

    def fault(self, draft: Draft) -> str:
        """Return why an event does not conform to the schema of its type; "" if it does."""
        kind = draft.attributes.get("type")
        schema = self._by_type.get(kind) if isinstance(kind, str) else None
        if schema is None:
            return ""
        fault = schema.fault(draft)
        return f"not what the schema of {kind} says: {fault}" if fault else ""

    def parked(self, draft: Draft, fault: str) -> Draft:
        """As `EventSchemas`: its payload is the event as `canopy sub --raw` prints it, which
        `canopy pub` publishes once it is mended."""
        kept = {name: draft.attributes[name] for name in ("id",) if name in draft.attributes}
        attributes = {**kept, "type": PARKED_TYPE, "of": draft.attributes["type"], "reason": fault}
        return Draft(attributes, msgspec.json.encode(raw_object(draft)), "application/json")

    def listed(self) -> tuple[EventSchema, ...]:
        """Return all schemas, in the order of the types of their events."""
        return tuple(
            EventSchema(kind, schema.text, schema.attributes)
            for kind, schema in self._by_type.items()
        )
