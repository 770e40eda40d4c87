"""What every command has, whoever adds one: output for programs, one way to name a node, hints for
other names, and output that any terminal can show."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from canopy.cli.hints import ALIASES, EMPTY, SYNONYMS, HintingGroup
from canopy.cli.main import canopy, main
from canopy.cli.output import Markup, TextTable, console
from canopy.cli.parameters import MOST, Number
from tests.canopy.cli.scripted_node import out_of
from tests.support.real.fake_control import FakeControl


def commands(
    command: click.Command = canopy, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands and groups with their names."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


LEAVES = {" ".join(path): one for path, one in commands() if not isinstance(one, click.Group)}
GROUPS = {" ".join(path): one for path, one in commands() if isinstance(one, click.Group)}


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_every_command_that_prints_something_prints_json() -> None:
    assert len(LEAVES) >= 75
    without = [name for name, one in LEAVES.items() if "--json" not in options(one)]
    assert without == ["tui", "sample"], "one has no output, the other no format of its own"


def test_every_command_names_a_node_by_connect() -> None:
    """`--data` is where `canopy node` keeps its own, and what `canopy pub` publishes."""
    by_data = [
        n for n, one in LEAVES.items() if {"--data", "--connect"} & options(one) == {"--data"}
    ]
    assert by_data == ["node"]
    for name in ("keys ls", "access ls", "policy show", "audit verify"):
        assert {"--data", "--connect"} <= options(LEAVES[name])
    files = {"--tokens", "--file"}
    assert all(files <= options(LEAVES[f"gateway token {name}"]) for name in ("add", "ls", "rm"))


@pytest.mark.parametrize("name", GROUPS)
def test_every_group_says_which_command_is_meant(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group = GROUPS[name]
    assert isinstance(group, HintingGroup)
    there = group.list_commands(click.Context(group))
    words = [w for w, ours in SYNONYMS.items() if w not in there and {*ours} & {*there}]
    if name not in ("config", "audit", "gateway"):
        assert words
    for word in words:
        meant = next(one for one in SYNONYMS[word] if one in there)
        if word in ALIASES and meant == SYNONYMS[word][0]:
            called = [*name.split(), word, "--help"]
            assert out_of(capsys, *called) == out_of(capsys, *called[:-2], meant, "--help")
            continue
        assert main([*name.split(), word]) == 2
        assert f"No such command '{word}'. Did you mean '{meant}'?" in capsys.readouterr().err
    assert f"Did you mean '{there[0]}'" in hint(capsys, *name.split(), there[0] + "x")


def hint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    return capsys.readouterr().err


def test_words_of_other_systems_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean 'sub'?" in hint(capsys, "listen")
    assert "Did you mean 'init'?" in hint(capsys, "keys", "create")
    for alias, ours in (("subscribe", "sub"), ("stream create", "stream add")):
        assert out_of(capsys, *alias.split(), "--help") == out_of(capsys, *ours.split(), "--help")
    assert out_of(capsys, "version") == out_of(capsys, "--version")
    assert out_of(capsys, "help") == out_of(capsys, "--help")
    assert out_of(capsys, "help", "stream", "add") == out_of(capsys, "stream", "add", "--help")


def test_an_option_takes_no_empty_value_unless_its_help_says_what_that_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a shell makes of a variable that is not set."""
    tried = 0
    for name, command in LEAVES.items():
        needed: list[str] = []
        for one in command.params:
            if one.required:
                choices = one.type.choices if isinstance(one.type, click.Choice) else ["1"]
                needed += [one.opts[0]] if isinstance(one, click.Option) else []
                needed.append(str(choices[0]))
        for one in command.params:
            if not isinstance(one, click.Option) or one.is_flag or one.is_eager:
                continue
            if EMPTY in str(one.help) and one.default != "":
                continue
            tried += 1
            with pytest.raises(click.UsageError) as refused:
                command.make_context(name, [*needed, one.opts[0], ""])
            assert one.opts[0] in refused.value.format_message(), (name, one.opts)
    assert tried > 200
    for words in (
        ("pub", "--producer"),
        ("stop", "--connect"),
        ("sub", "--from"),
        ("node", "--data"),
    ):
        assert "value is empty" in hint(capsys, *words, "")
    assert "value is empty" in hint(capsys, "gateway", "token", "add", "phone", "--where", "")
    assert "value is empty" in hint(capsys, "access", "add", "phone", "--stream", "")


def test_a_number_of_an_option_is_one_that_a_timer_takes() -> None:
    """NaN passes each comparison with a range, and infinity is more than the system's timers."""
    numbers = [
        one
        for name, command in LEAVES.items()
        for one in command.params
        if isinstance(one.type, click.types.FloatParamType) and name != "node"
    ]  # a node's are checked as those of its configuration
    assert len(numbers) > 50
    assert all(isinstance(one.type, Number) for one in numbers)
    with pytest.raises(click.BadParameter, match="nan is not a number"):
        Number(min=0).convert("nan", None, None)
    assert Number(min=0).convert("inf", None, None) == MOST


def test_a_pipe_gets_names_unbroken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`canopy stream ls | grep NAME` finds it; who sets COLUMNS has a reason."""
    name, columns = "measurements-of-" * 12, [f">column {number}" for number in range(9)]
    for width, found in (("", True), ("80", False)):
        monkeypatch.delenv("COLUMNS", raising=False)
        if width:
            monkeypatch.setenv("COLUMNS", width)
        console().print(TextTable("stream", *columns).of([(name, *columns)]))
        assert (name in capsys.readouterr().out) is found


def test_a_narrow_terminal_shows_every_cell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that have no room beside one another come below one another."""
    rows = TextTable("stream", "=id", ">shards", "by", ">kept bytes", "=state")
    rows.add("orders", "0123456789abcdef", 12, None, 20_000_000_000, Markup("[red]silent[/]"))
    shown = {}
    for width in (100, 60, 30):
        monkeypatch.setenv("COLUMNS", str(width))
        console().print(rows)
        shown[width] = capsys.readouterr().out
        cells = ("orders", "0123456789abcdef", "12", "20,000,000,000", "silent")
        assert all(cell in shown[width] for cell in (*cells, "stream", "kept bytes")), width
    assert [len(text.splitlines()) > 5 for text in shown.values()] == [False, True, True]


class Terminal(io.TextIOWrapper):
    """Standard output whose encoding has few characters."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def said(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode(self.encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_terminal_shows_what_commands_print(
    node: FakeControl, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    tried = [["top", "--count", "1"], ["why", "e1"], ["status"], ["ring"], ["peers"]]
    for words in (*tried, *([*name.split(), "--help"] for name in (*LEAVES, *GROUPS))):
        out, err = Terminal(encoding), Terminal(encoding)
        with monkeypatch.context() as changed:
            changed.setattr(sys, "stdout", out)
            changed.setattr(sys, "stderr", err)
            assert main(words) == (5 if words == ["ring"] else 0), (words, err.said())
        assert out.said()
        assert "\u2026" not in out.said()


def test_contexts_and_keys_are_told_to_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    lab, seals = str(tmp_path / "lab"), str(tmp_path / "acme.seal")

    def told(*words: str) -> dict[str, object]:
        found = json.loads(out_of(capsys, *words, "--json"))
        assert isinstance(found, dict)
        return found

    there = {"name": "lab", "folder": lab, "current": True}
    assert told("context", "add", "lab", lab, "--use") == there
    assert told("context", "use", "lab") == there
    made = told("keys", "init", "--connect", "lab", "--overlay", "acme")
    assert made["root"] == f"{lab}/keys/root.key"
    assert told("keys", "ls")["node"]["id"] == made["node"]  # type: ignore[index]
    token = told("keys", "invite", "--address", "a.example:1", "--data", lab)["token"]
    assert str(token).startswith("canopy1.")
    limited = told("keys", "limit", "--ids", "3")
    assert limited == {"tenant": "*", "ids": 3, "per_hour": 0}
    assert told("keys", "renew")["node"] == made["node"]
    assert told("keys", "revoke", "0" * 32)["revoked"] == ["0" * 32]
    key = told("keys", "seal", "new", seals)["key"]
    assert told("keys", "seal", "rotate", seals)["use"] == "opens"
    assert told("keys", "seal", "rotate", seals, "--finish")["use"] == "seals"
    assert told("keys", "seal", "forget", seals, str(key))["removed"] == key
    file = str(tmp_path / "tokens.json")
    given = told("gateway", "--tokens", file, "token", "add", "phone")
    assert given["file"] == file
    assert json.loads(out_of(capsys, "gateway", "token", "ls", "--file", file, "--json"))[0]["name"]
    assert told("gateway", "token", "rm", "phone", "--tokens", file) == {"removed": "phone"}
    access = ["--scope", "publish", "--address", "a.example:1", "--out", str(tmp_path / "a.access")]
    assert told("access", "add", "till", *access)["scopes"] == ["publish"]
    assert told("access", "rm", "till") == {"removed": "till"}
    assert told("context", "rm", "lab") == {"removed": "lab"}
    assert told("completion", "bash")["shell"] == "bash"
