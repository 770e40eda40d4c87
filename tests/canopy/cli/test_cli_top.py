"""`canopy top` and `canopy status --watch`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from canopy.cli.display import paced
from canopy.cli.inspection.top import overview
from canopy.cli.main import main
from overlay.client import (
    Command,
    GetPeers,
    GetRing,
    GetStatus,
    Peers,
    Reply,
    RingClusters,
    Status,
)
from overlay.info import ClusterInfo, PeerInfo
from tests.support.real.fake_control import FakeControl

ME, B, C, D = (letter * 16 for letter in "abcd")
STATUS = Status(
    0, ME, "127.0.0.1:1", True, False, 1, "broker", "", "", 1, 1, 0, 3, 0, "pivot", {},
    {"published": 10, "never": 0}, pid=77,
)  # fmt: skip
RING = RingClusters(
    0,
    (
        ClusterInfo("11" * 20, "", 1, B, "", (ME, C), ("x", "y"), {B: "[b]:2"}, 90.0, (C,)),
        ClusterInfo("22" * 20, "", 1, B, "", (), ("z",), {}),
    ),
    complete=False,
)


def peers(sent: int) -> Peers:
    links = (
        PeerInfo(B, "b:2", "connected", 1, True, sent, 5),
        PeerInfo(D, "d:4", "connected", -1, False, 1, 1),
    )
    return Peers(0, links)


def test_all_that_is_known_is_listed_once_by_cluster_and_role() -> None:
    rows = overview(STATUS, RING, peers(100))
    assert [(r.node, r.role, r.link) for r in rows] == [
        (B, "primary", "connected"), (ME, "broker", "self"), (C, "broker", ""),
        (D, "none", "connected"),
    ]  # fmt: skip
    first, me, silent, other = rows
    assert (first.trees, first.led_for, first.address) == (2, 90.0, "[b]:2")
    assert (me.address, me.led_for) == ("127.0.0.1:1", -1.0)
    assert [r.silent for r in rows] == [False, False, True, False]
    assert (other.cluster, other.address, other.sent) == ("", "d:4", -1.0)
    assert silent.sent == -1.0


def test_rates_are_of_the_time_between_two_looks() -> None:
    first, _, third, other = overview(STATUS, RING, peers(150), peers(100), 2.0)
    assert (first.sent, first.received) == (25.0, 0.0)
    assert (third.sent, other.sent) == (-1.0, 0.0)
    renewed, *_ = overview(STATUS, RING, peers(3), peers(100), 2.0)
    assert renewed.sent == 0.0, "a link that was made again"


def test_the_pace_ends_with_the_last_look() -> None:
    assert list(paced(0.0, 3)) == [0, 1, 2]
    assert list(paced(3_600.0, 1)) == [0], "there is no waiting behind the last"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], FakeControl]]:
    """A node that goes away after so many answers to GetStatus."""
    monkeypatch.setenv("CANOPY_CONNECT", str(tmp_path / "n"))
    monkeypatch.setenv("CANOPY_WAIT", "0")
    started: list[FakeControl] = []

    def start(looks: int) -> FakeControl:
        def answer(command: Command) -> Iterator[Reply]:
            seen = sum(isinstance(one, GetStatus) for one in fake.commands)
            if isinstance(command, GetStatus):
                if seen > looks:
                    fake.hang_up()
                    return
                counters = {"published": 10 * seen, "never": 0}
                n = command.request
                yield msgspec.structs.replace(STATUS, request=n, counters=counters)
            elif isinstance(command, GetPeers):
                yield msgspec.structs.replace(peers(100 * seen), request=command.request)
            elif isinstance(command, GetRing):
                yield msgspec.structs.replace(RING, request=command.request)

        fake = FakeControl(tmp_path / "n", answer)
        started.append(fake.__enter__())
        return fake

    yield start
    for fake in started:
        fake.__exit__()


Start = Callable[[int], FakeControl]


def test_top_prints_one_look_into_a_pipe(
    node: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    fake = node(9)
    assert main(["top"]) == 0
    shown = capsys.readouterr().out
    assert "2 clusters, 4 nodes known, 1 silent; the ring was not traversed completely" in shown
    assert "[b]:2" in shown, "an address is no markup"
    assert sum(isinstance(one, GetStatus) for one in fake.commands) == 1


def test_top_cuts_nothing_at_80_characters(
    node: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    node(9)
    assert main(["top"]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()[2:]
    assert all(len(line) <= 80 for line in lines)
    for text in (ME, B, C, D, "primary", "up", "silent", "trees", "leads", "recv"):
        assert any(text in line for line in lines), text
    assert "b:2" not in shown, "the address is left out"


def test_top_as_json_has_a_line_for_each_look(
    node: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    node(9)
    assert main(["top", "--json", "--count", "2", "--interval", "0.1"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["node"], first["complete"], len(first["nodes"])) == (ME, False, 4)
    assert (first["nodes"][0]["sent"], second["nodes"][0]["sent"] > 0) == (-1.0, True)


def test_status_is_watched_until_the_node_goes(
    node: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    node(2)
    assert main(["status", "--watch=0.1", "--json"]) == 3
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [look["counters"]["published"] for look in looks] == [10, 20]


def test_a_watched_status_has_rates_of_what_is_counted(
    node: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    node(2)
    assert main(["status", "--watch=0.1"]) == 3
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    (first, second) = [row for row in rows if row[:1] == ["published"]]
    assert first == ["published", "10", "0.0"]
    assert second[1] == "20"
    assert float(second[2].replace(",", "")) > 0
    assert not [row for row in rows if row[:1] == ["never"]]
