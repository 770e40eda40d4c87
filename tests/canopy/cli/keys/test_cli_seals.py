"""`canopy keys seal`, and `--seal` of the commands that deal in payloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from canopy.cli.main import main
from canopy.client.seals import labelled
from canopy.tui.model.log import LogRow
from canopy.tui.widgets.detail import _all
from canopy.wire.keys.seals import SEALED, Seals
from overlay.client import Command, Delivered, Delivery, Event, Publish, Published, Reply, Subscribe
from tests.canopy.cli.scripted_node import answer, out_of
from tests.support.real.fake_control import FakeControl

ATTRIBUTES = {"id": "1", "type": "t"}


@pytest.fixture
def file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "acme.seal"
    out_of(capsys, "keys", "seal", "new", str(path))
    return path


def test_keys_are_made_listed_rotated_and_forgotten(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def keys() -> dict[str, str]:
        listed = json.loads(out_of(capsys, "keys", "seal", "ls", str(file), "--json"))
        return {each["key"]: each["use"] for each in listed}

    (old,) = keys()
    assert file.stat().st_mode & 0o777 == 0o600
    out_of(capsys, "keys", "seal", "rotate", str(file))
    assert list(keys().values()) == ["seals", "opens"]
    out_of(capsys, "keys", "seal", "rotate", str(file), "--finish")
    assert list(keys().values()) == ["opens", "seals"]
    out_of(capsys, "keys", "seal", "forget", str(file), old)
    assert list(keys().values()) == ["seals"]
    assert main(["keys", "seal", "forget", str(file), old]) == 1
    assert "has no key" in capsys.readouterr().err
    secrets = [line.split('"')[3] for line in file.read_text().splitlines() if '"key"' in line]
    assert secrets[0] not in out_of(capsys, "keys", "seal", "ls", str(file))
    file.chmod(0o644)
    assert main(["keys", "seal", "ls", str(file)]) == 4
    assert "chmod 600" in capsys.readouterr().err


def test_what_is_published_is_sealed_and_what_comes_is_opened(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[Event] = []

    def node(command: Command) -> Iterator[Reply]:
        if isinstance(command, Publish):
            (draft,) = command.events
            content = (draft.attributes, draft.payload, draft.payload_type)
            published.append(Event("n", 1, 1, 1.0, *content))
            yield Published(command.request, 1, "n", 1, 1)
            return
        yield from (each for each in answer(command) if not isinstance(each, Delivered))
        if isinstance(command, Subscribe):
            plain = Event("n", 1, 2, 1.0, ATTRIBUTES, b"bare", "text/plain")
            for event in (*published, plain):
                yield Delivered(0, (Delivery("s", event, "id", "", "", 1),))

    monkeypatch.setenv("CANOPY_WAIT", "0")
    event = json.dumps({**ATTRIBUTES, "card": {"number": "4111"}})
    with FakeControl(tmp_path / "node", node) as fake:
        to = ("--connect", str(fake.data))
        assert main(["pub", "--data", event, "--seal", str(file), *to]) == 0
        (sealed,) = published
        assert (sealed.attributes, sealed.payload_type) == (ATTRIBUTES, SEALED)
        assert b"4111" not in sealed.payload
        capsys.readouterr()
        wanted = ("sub", "id IS NOT NULL", "--count", "2", *to)
        found = out_of(capsys, *wanted, "--json", "--seal", str(file)).splitlines()
        first, second = map(json.loads, found)
        assert (first["payload"], first["seal"]) == ({"card": {"number": "4111"}}, "opened")
        assert (second["payload"], second["seal"]) == ("bare", "none")
        lines = out_of(capsys, *wanted).splitlines()
        assert f"(the payload is sealed with the key {Seals(file)._seals.hex()})" in lines[0]
        monkeypatch.setenv("CANOPY_SEAL", str(file))
        lines = out_of(capsys, *wanted).splitlines()
        assert ["the payload" in line for line in lines] == [False, True]
        assert "came without a seal" in lines[1]
        file.chmod(0o640)
        assert main(list(wanted)) == 4


@pytest.mark.parametrize(
    ("seal", "said"),
    [("opened", "is opened"), ("false", "is false"), (None, "")],
)
def test_the_terminal_says_it_as_well(seal: str | None, said: str) -> None:
    event = labelled(Event("n", 1, 1, 1.0, ATTRIBUTES, b"x", "text/plain"), seal)  # type: ignore[arg-type]
    row = LogRow(1, 1, Delivery("s", event, "id", "", "", 1))
    console = Console(width=100)
    with console.capture() as shown:
        console.print(_all(row, str))
    assert ("the payload" in shown.get()) == bool(said)
    assert said in shown.get()
