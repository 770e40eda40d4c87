"""`canopy context`, `--connect NAME`, and shell completion."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from canopy.cli.main import canopy, main
from canopy.client.contexts import contexts_path
from overlay.client import Attributes, Command, GetAttributes, GetPeers, GetStreams, Peers, Reply
from tests.canopy.cli.scripted_node import streams_of
from tests.support.real.fake_control import FakeControl


def answer(command: Command) -> Iterator[Reply]:
    if isinstance(command, GetPeers):
        yield Peers(command.request, ())
    elif isinstance(command, GetAttributes):
        yield Attributes(command.request, ("mag", "magType", "place", "wind speed"))
    elif isinstance(command, GetStreams):
        yield streams_of(command)


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("CANOPY_WAIT", "0")
    monkeypatch.delenv("CANOPY_CONNECT", raising=False)
    monkeypatch.chdir(tmp_path)


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, bool]]:
    capsys.readouterr()
    assert main(["context", "ls", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    return {one["name"]: (one["folder"], one["current"]) for one in found}


def test_contexts_are_added_used_listed_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(capsys) == {}
    assert main(["context", "add", "lab", "n"]) == 0
    assert main(["context", "add", "home", "/h", "--use"]) == 0
    assert listed(capsys) == {"lab": (str(tmp_path / "n"), False), "home": ("/h", True)}
    assert main(["context", "ls"]) == 0
    assert "* home /h" in " ".join(capsys.readouterr().out.split())
    assert main(["context", "use", "lab"]) == 0
    assert listed(capsys)["lab"][1]
    assert main(["context", "rm", "lab"]) == 0
    assert listed(capsys) == {"home": ("/h", False)}, "no current one is left"
    assert main(["context", "use", "home"]) == 0
    assert main(["context", "use", "--none"]) == 0
    assert listed(capsys) == {"home": ("/h", False)}


def test_commands_mean_the_node_of_a_context(tmp_path: Path) -> None:
    main(["context", "add", "lab", str(tmp_path / "n")])
    main(["context", "add", "off", str(tmp_path / "off"), "--use"])
    with FakeControl(tmp_path / "n", answer):
        assert main(["peers"]) == 3, "the current one, which does not run"
        assert main(["peers", "--connect", "lab"]) == 0
        main(["context", "use", "lab"])
        assert main(["peers"]) == 0
        assert main(["peers", "--connect", "./lab"]) == 3, "a path is no name"


def test_a_misspelt_context_is_answered_with_those_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["peers", "--connect", "labs"]) == 3, "a folder, where there are no contexts"
    main(["context", "add", "lab", str(tmp_path / "n")])
    capsys.readouterr()
    assert main(["peers", "--connect", "labs"]) == 2
    assert "no context 'labs'; there are: lab" in capsys.readouterr().err
    (tmp_path / "labs").mkdir()
    assert main(["peers", "--connect", "labs"]) == 3, "a folder of that name"


def test_the_environment_names_a_context_and_wins_over_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["context", "add", "lab", str(tmp_path / "n")])
    main(["context", "add", "off", str(tmp_path / "off"), "--use"])
    monkeypatch.setenv("CANOPY_CONNECT", "lab")
    with FakeControl(tmp_path / "n", answer):
        assert main(["peers"]) == 0


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["add", "lab", "m"], 1),
        (["add", "a/b", "m"], 2),
        (["add", "", "m"], 2),
        (["use", "nope"], 2),
        (["use"], 2),
        (["use", "lab", "--none"], 2),
        (["rm", "nope"], 2),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    args: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["context", "add", "lab", "n", "--use"])
    before = contexts_path().read_bytes()
    assert main(["context", *args]) == code
    assert capsys.readouterr().err
    assert contexts_path().read_bytes() == before


def test_a_damaged_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    contexts_path().parent.mkdir(parents=True)
    for text in ("{", "[]", '{"current": 1, "folders": {}}', '{"current": "", "folders": []}'):
        contexts_path().write_text(text)
        assert main(["peers"]) == 1
        assert str(contexts_path()) in capsys.readouterr().err
        assert main(["context", "add", "x", "y"]) == 1
        assert contexts_path().read_text() == text


def test_writers_at_once_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    threads = [
        threading.Thread(target=main, args=(["context", "add", f"c{n}", f"/f{n}"],))
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(listed(capsys)) == {f"c{n}" for n in range(12)}
    assert set(os.listdir(contexts_path().parent)) == {"contexts.json", "contexts.lock"}


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    env = {
        "_CANOPY_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("canopy", *words)),
        "COMP_CWORD": str(len(words)),
    }
    ended = CliRunner().invoke(canopy, prog_name="canopy", env=env)
    assert ended.exception is None or isinstance(ended.exception, SystemExit)
    return [line.partition(",")[2] for line in ended.output.splitlines() if line]


def test_the_shell_completes_commands_contexts_attributes_and_streams(tmp_path: Path) -> None:
    assert completed("sta") == ["status"]
    main(["context", "add", "lab", str(tmp_path / "n")])
    assert completed("status", "--connect", "l") == ["lab"]
    assert completed("context", "use", "l") == ["lab"]
    with FakeControl(tmp_path / "n", answer):
        assert completed("where", "--connect", "lab", "ma") == ["mag", "magType"]
        assert completed("sub", "--connect", "lab", "pl") == ["place"]
        assert completed("stream", "info", "--connect", "lab", "al") == ["alarms"]
        assert completed("sub", "--connect", "lab", "--stream", "al") == ["alarms"]
        assert completed("where", "--connect", "lab", "al") == ["alarms"]
    assert completed("where", "--connect", "lab", "ma") == [], "without a node there are none"
