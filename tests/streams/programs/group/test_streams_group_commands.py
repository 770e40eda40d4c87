"""`canopy sub --group`, `canopy stream dead` and `forget` over a node that is made up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from canopy.cli import connect
from canopy.cli.streams import read
from canopy.cli.streams.group import stream
from canopy.cli.subscribe.sub import sub
from canopy.client.streams.management import founded_with
from canopy.client.streams.membership import group_edit
from overlay.client import Command, Done, Reply
from overlay.info import GroupInfo, GroupShardInfo
from overlay.stream_client import (
    DeadEnded,
    DeadLetter,
    EditGroup,
    EndDead,
    GetGroups,
    GroupRow,
    Groups,
    RemoveGroup,
)

LETTERS = (
    DeadLetter(0, 7, 5, "the lease ran out", 0.0, {"n": 7}, b""),
    DeadLetter(2, 9, 1, "[bold]rejected", 0.0),
)


class FakeMember:
    """Hands out five rows, two at a time."""

    selector = "n > 1"
    waits = ""

    def __init__(self) -> None:
        self.left = [GroupRow(0, n, 100 + n, 1, 30.0, 100.0, {"n": n}) for n in range(5)]
        self.acked: list[int] = []
        self.lost: list[tuple[int, int]] = []

    def take(self, timeout: float, most: int) -> list[GroupRow]:
        taken, self.left = self.left[: min(most, 2)], self.left[min(most, 2) :]
        return taken

    def ack(self, *rows: GroupRow) -> None:
        self.acked += [row.offset for row in rows]

    def flush(self) -> None:
        self.lost = [(0, 3)] if 3 in self.acked else []


class FakeClient:
    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.member = FakeMember()
        self.shared: tuple[Any, ...] = ()
        self.changes: list[EditGroup] = []

    @contextmanager
    def group(self, *names: Any, **options: Any) -> Iterator[FakeMember]:
        self.shared = (*names, {k: v for k, v in options.items() if v is not None})
        yield self.member

    def edit_group(self, *names: str, timeout: float, **changes: Any) -> None:
        self.changes.append(group_edit(*names, changes))  # type: ignore[arg-type]

    def ask(self, command: Command, reply: type, timeout: float) -> Reply:
        self.asked.append(command)
        if isinstance(command, EndDead):
            return DeadEnded(0, len(command.rows) or 2)
        if isinstance(command, RemoveGroup):
            return Done(0)
        assert isinstance(command, GetGroups)
        shard = GroupShardInfo(0, 3, 9, 9, 2, 1, 0, 0, ("m",), ((7, "n > 0"), (8, "")))
        info = GroupInfo("g", "n > 1", 30.0, 5, "", "", "", 0.0, (shard,))
        return Groups(0, (info,), LETTERS)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient()

    @contextmanager
    def opened(*arguments: Any, **options: Any) -> Iterator[FakeClient]:
        yield fake

    monkeypatch.setattr(connect, "open_client", opened)
    monkeypatch.setattr(read, "on_reader_gone", lambda stop: None)
    return fake


def run(command: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), standalone_mode=False)


def test_what_is_printed_is_acknowledged_and_what_came_too_late_is_said(client: FakeClient) -> None:
    options = ("--lease", "2m", "--max-deliver", "3", "--by", "n", "--delay", "1.5")
    done = run(sub, "n > 1", "--stream", "s", "--group", "g", "--count", "5", "--json", *options)
    rows = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    assert [(row["offset"], row["deliveries"]) for row in rows] == [(n, 1) for n in range(5)]
    assert client.member.acked == [0, 1, 2, 3, 4]
    assert "offset 3 of shard 0 was printed too late" in done.output
    *names, chosen = client.shared
    assert names == ["s", "g", "n > 1"]
    assert {"lease": 120.0, "max_deliver": 3, "by": "n", "delay": 1.5}.items() <= chosen.items()
    assert chosen["credit"] == 5, "no more than is to be printed"


def test_options_of_groups_need_a_group_and_a_group_a_stream(client: FakeClient) -> None:
    for arguments in (
        ("--group", "g"),
        ("--stream", "s", "--lease", "5s"),
        ("--stream", "s", "--group", "g", "--durable", "d"),
        ("--stream", "s", "--group", "g", "--from", "yesterday"),
    ):
        assert run(sub, *arguments).exception is not None


def test_dead_letters_are_listed_retried_and_dropped(client: FakeClient) -> None:
    shown = run(stream, "dead", "s", "--group", "g")
    assert "n=7" in shown.output
    assert "2:9" in shown.output
    assert "[bold]rejected" in shown.output
    listed = json.loads(run(stream, "dead", "s", "--group", "g", "--json").output)
    assert [letter["offset"] for letter in listed] == [7, 9]
    run(stream, "dead", "s", "--group", "g", "--retry", "7", "--retry", "2:9")
    assert client.asked[-1] == EndDead(0, "s", "g", ((0, 7), (2, 9)), True)
    dropped = run(stream, "dead", "s", "--group", "g", "--drop-all", "--json")
    assert json.loads(dropped.output) == {"group": "g", "count": 2, "what": "dropped"}
    assert client.asked[-1] == EndDead(0, "s", "g", (), False)
    assert run(stream, "dead", "s", "--group", "g", "--drop", "x").exception is not None
    assert run(stream, "dead", "s", "--group", "g", "--drop", "1", "--retry-all").exception
    run(stream, "forget", "s", "--group", "g")
    assert client.asked[-1] == RemoveGroup(0, "s", "g")


def test_a_group_is_changed_and_what_is_for_good_is_said(client: FakeClient) -> None:
    options = ("--lease", "2m", "--selector", "n > 1", "--delay", "60")
    done = run(stream, "edit-group", "s", "--group", "g", *options)
    asked = EditGroup(0, "s", "g", "n > 1", 120.0, delay="", delay_seconds=60.0)
    assert client.changes == [asked]
    assert "g gets n > 1: a lease of 30 s" in done.output
    assert "shard 0: events below offset 8 go by: all events" in done.output
    shown = run(stream, "edit-group", "s", "--group", "g", "--delay", "wait", "--json")
    assert json.loads(shown.output)["lease"] == 30.0
    assert (client.changes[-1].delay, client.changes[-1].delay_seconds) == ("wait", 0.0)
    for wrong, said in (
        ((), "nothing to change"),
        (("--from", "first"), "where it was founded"),
        (("--max-deliver", "0"), "0 is not in the range"),
    ):
        error = run(stream, "edit-group", "s", "--group", "g", *wrong).exception
        assert said in str(error)
    run(stream, "edit-group", "s", "--group", "g", "--by", "k")
    assert client.changes[-1].by == "k", "the node says why not"


def test_the_options_of_a_group_are_said_in_words() -> None:
    plain = GroupInfo("g", "", 30.0, 5, "", "", "", 0.0, ())
    assert founded_with(plain) == "a lease of 30 s, 5 deliveries at most"
    rich = GroupInfo("g", "", 1.5, 2, "customer", "urgency", "wait", 60.0, ())
    assert founded_with(rich) == (
        "a lease of 1.5 s, 2 deliveries at most, in order by customer, priority by urgency, "
        "delayed by wait and 60 s"
    )
