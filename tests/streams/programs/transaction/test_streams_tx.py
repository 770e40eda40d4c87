"""`canopy tx`: what is not decided is listed, and decided once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.cli.main import main
from overlay.client import Command, GetStreams, Reply, Streams
from overlay.info import StreamInfo, TransactionInfo
from overlay.stream_client import (
    DecideTransaction,
    GetTransactions,
    Transactions,
    TransactionState,
)
from tests.support.real.fake_control import FakeControl

WAITING = {
    "orders": (
        TransactionInfo(0, "shop.1", "shop", "n1", 2, 100, 1.0, parked=False),
        TransactionInfo(1, "shop.2", "shop", "n1", 1, 50, 2.0, parked=True),
    ),
    "bills": (),
}


def answer(command: Command) -> list[Reply]:
    number = command.request
    if isinstance(command, GetStreams):
        streams = [StreamInfo(name, "id", "", 3, 0.0, 0, ()) for name in WAITING]
        return [Streams(number, tuple(streams))]
    if isinstance(command, GetTransactions):
        return [Transactions(number, WAITING[command.stream])]
    assert isinstance(command, DecideTransaction)
    outcome = "committed" if command.commit or command.transaction == "old" else "rolled-back"
    return [TransactionState(number, outcome, "id")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeControl]:
    with FakeControl(tmp_path / "node", answer) as made:
        yield made


def test_all_streams_or_one_are_listed_and_the_parked_are_pointed_at(
    node: FakeControl, capsys: pytest.CaptureFixture[str]
) -> None:
    connect = ["--connect", str(node.data)]
    assert main(["tx", "ls", *connect]) == 0
    said = capsys.readouterr().out
    assert "shop.1" in said
    assert "1 transaction nobody could say anything of" in said
    assert main(["tx", "ls", "--json", *connect]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["stream"], one["transaction"], one["parked"]) for one in found] == [
        ("orders", "shop.1", False),
        ("orders", "shop.2", True),
    ]
    assert main(["tx", "ls", "bills", *connect]) == 0
    assert "every transaction is decided" in capsys.readouterr().out


def test_a_transaction_is_decided_and_an_earlier_decision_is_an_error(
    node: FakeControl, capsys: pytest.CaptureFixture[str]
) -> None:
    connect = ["--connect", str(node.data)]
    assert main(["tx", "resolve", "orders", "shop.2", "rollback", *connect]) == 0
    assert "shop.2 is rolled-back" in capsys.readouterr().out
    assert main(["tx", "resolve", "orders", "old", "rollback", *connect]) == 1
    assert "old was committed before, and stays so" in capsys.readouterr().err
    assert main(["tx", "resolve", "orders", "shop.2", "drop", *connect]) == 2
    decided = [one for one in node.commands if isinstance(one, DecideTransaction)]
    assert [(one.transaction, one.commit) for one in decided] == [("shop.2", False), ("old", False)]
