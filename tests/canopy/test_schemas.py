"""Schemas of events: what is held against them, and what becomes of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from canopy.cli.publish.schema import schema
from canopy.feeds.raw import raw_draft
from canopy.gateway.http.api import asyncapi
from canopy.schemas import EventSchemaError, FolderSchemas, Schema
from overlay.client import Draft, Publish, Published
from overlay.operator_commands import GetSchemas, Schemas
from overlay.upper_tree.publisher.admission import Otherwise
from streams.programs.producer.producers import fault_of
from tests.support.world import World
from tests.upper_tree.clients.clients_rig import Rig

QUAKE: dict[str, Any] = {
    "type": "object",
    "required": ["mag"],
    "properties": {
        "mag": {"type": "number", "minimum": 0},
        "net": {"pattern": "^[a-z]+$"},
        "where": {"type": "array", "items": {"type": "number"}},
    },
    "additionalProperties": False,
}
GOOD, BAD = {"type": "quake", "mag": 5}, {"type": "quake", "mag": "5", "id": "b"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "quake.json").write_text(json.dumps(QUAKE))
    return tmp_path


def made(text: Any) -> Schema:
    return Schema(json.dumps(text).encode(), "quake.json")


@pytest.mark.parametrize(
    ("attributes", "payload", "fault"),
    [
        ({"mag": 5, "id": "a", "type": "quake"}, b"", ""),
        ({"mag": 5}, b'{"where": [1.5, 2]}', ""),
        ({"mag": 5}, b'{"where": [1.5, "x"]}', 'where.1: "x" is not of type "number"'),
        ({"mag": 5}, b"no json", ""),
        ({"net": "ak"}, b'{"mag": 3}', ""),
        ({"net": "ak"}, b"", '"mag" is a required property'),
        ({"mag": -1}, b"", "mag: -1 is less than the minimum of 0"),
        ({"mag": 5, "more": 1}, b"", "('more' was unexpected)"),
        ({"mag": 2**63 - 1}, b'{"where": [1e400]}', ""),
    ],
)
def test_the_published_object_is_held_against_its_schema(
    attributes: dict[str, Any], payload: bytes, fault: str
) -> None:
    found = made(QUAKE).fault(Draft(attributes, payload, "application/json" if payload else ""))
    assert found.endswith(fault)
    assert bool(found) == bool(fault)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "not JSON"),
        (b"[]", "is an object"),
        (b'{"type": "nope"}', "type: "),
        (b'{"$ref": "file:///etc/hostname"}', "its own file only"),
        (b'{"$ref": "http://127.0.0.1:1/x"}', "its own file only"),
        (b'{"properties": {"a": {"pattern": "(?=x)y"}}}', "pattern"),
        (b" " * 70_000, "65,536 bytes"),
    ],
)
def test_what_is_no_schema_is_said_with_its_file(text: bytes, reason: str) -> None:
    with pytest.raises(EventSchemaError, match=r"^quake\.json: ") as failed:
        Schema(text, "quake.json")
    assert reason in str(failed.value)


def test_a_folder_that_is_wrong_changes_nothing(folder: Path) -> None:
    schemas = FolderSchemas(folder, "refuse")
    (folder / "a%2Fb.json").write_text("{}")
    schemas.reload()
    (folder / "quake.json").write_text("{}")
    (folder / "wrong.json").write_text("{")
    with pytest.raises(EventSchemaError):
        schemas.reload()
    assert [one.type for one in schemas.listed()] == ["a/b", "quake"]
    assert "schema of quake says: mag: " in schemas.fault(Draft(BAD))
    assert schemas.fault(Draft({"type": "other", "mag": "5"})) == ""


@pytest.mark.parametrize("count", [1, 12])  # one by one, and as a batch
@pytest.mark.parametrize("otherwise", ["refuse", "park", "count"])
def test_events_that_are_not_so_are_refused_parked_or_counted(
    folder: Path, otherwise: Otherwise, count: int
) -> None:
    rig = Rig()
    rig.port.schemas = FolderSchemas(folder, otherwise)
    by_content = rig.subscribe("mag IS NOT NULL")
    parked = rig.subscribe("type = 'schema.parked' AND of = 'quake'", client=2)
    rig.publish(*[GOOD] * count, BAD, *[GOOD] * count)
    (answer,) = rig.port.answers(Published)
    assert [place for place, _ in answer.refused] == ([count] if otherwise == "refuse" else [])
    rig.settle()
    shown = dict.fromkeys((1, 2), 0)
    for client, deliveries in rig.shown():
        shown[client] += len(deliveries)
    assert shown == {1: 2 * count + (otherwise == "count"), 2: int(otherwise == "park")}
    assert rig.port.counts[f"schema_{otherwise}"] == 1
    assert by_content != parked
    rig.command(1, GetSchemas)
    (told,) = rig.port.answers(Schemas)
    assert (told.otherwise, told.schemas[0].attributes) == (otherwise, ("mag", "net", "where"))


def test_a_parked_event_can_be_published_once_it_is_mended(folder: Path) -> None:
    schemas = FolderSchemas(folder, "park")
    event = Draft(BAD, b"\x00\xff", "application/octet-stream")
    parked = schemas.parked(event, schemas.fault(event))
    assert parked.attributes["id"] == "b"
    assert raw_draft(json.loads(parked.payload)) == event


def test_what_is_parked_has_to_fit_on_a_link_as_well(folder: Path) -> None:
    rig = Rig()
    rig.port.schemas = FolderSchemas(folder, "park")
    rig.command(1, Publish, (Draft(BAD, b"\xff" * 450_000),))
    (answer,) = rig.port.answers(Published)
    assert "at most" in answer.refused[0][1]


@pytest.mark.parametrize("count", [1, 40])
def test_rows_that_are_not_so_are_not_appended(folder: Path, count: int) -> None:
    port = World().node("me")
    events = [Draft(GOOD)] * count + [Draft(BAD)]
    for otherwise in ("refuse", "park"):
        port.schemas = FolderSchemas(folder, otherwise)  # type: ignore[arg-type]
        assert fault_of(port, events).startswith(f"event {count}: not what the schema of quake")
        assert fault_of(port, events[:-1]) == ""
    port.schemas = FolderSchemas(folder, "count")
    assert fault_of(port, events) == ""
    assert dict(port.counts) == {"schema_refuse": 2, "schema_count": 1}


def test_events_are_checked_before_they_are_published(folder: Path) -> None:
    file, events = str(folder / "quake.json"), folder / "events.jsonl"
    events.write_text('{"mag": 1}\n{"mag": "x"}\n')
    done = CliRunner().invoke(schema, ["check", file, "--json", str(events)])
    told = json.loads(done.stdout)
    assert (told["events"], told["wrong"][0]["line"]) == (2, 2)
    assert told["wrong"][0]["reason"] == 'mag: "x" is not of type "number"'
    done = CliRunner().invoke(schema, ["check", file, "mag=5"], standalone_mode=False)
    assert done.return_value == 0


def test_asyncapi_has_the_schemas_of_types(folder: Path) -> None:
    found = asyncapi(FolderSchemas(folder, "refuse").listed())
    message = found["channels"]["events"]["messages"]["quake"]
    assert message["payload"]["schema"] == QUAKE
    assert {"$ref": "#/channels/events/messages/quake"} in found["operations"]["publish"][
        "messages"
    ]
