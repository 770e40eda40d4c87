"""A node as a process: its life in the log, its signals, and starts that cannot be."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed, UnreachableError
from canopy.wire.config import NodeConfig
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from canopy.wire.process.listener import listen
from canopy.wire.process.node_process import NodeProcess, build_node
from overlay.client import Done, Drain, Feed, GetStatus, Status, Subscribe
from overlay.machine import Peer
from tests.support.real.echo_node import EchoNode

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[4]
PATIENCE = 30.0


class Processes:
    """Starts echo processes and ends what a test left running."""

    def __init__(self, tmp_path: Path) -> None:
        self.data = tmp_path / "node"
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *more: str, **config: Any) -> subprocess.Popen[str]:
        config = {"listen": "127.0.0.1:0", "data": str(self.data), "directory": False, **config}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.real.echo_process", json.dumps(config), *more],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def client(self, data: Path | None = None) -> ControlClient:
        """A client of a process that may still be starting."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return ControlClient.connect(data or self.data)
            except UnreachableError:
                if time.monotonic() > until or self.started[-1].poll() is not None:
                    raise
                time.sleep(0.02)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    for process in found.started:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Wait for the end; exit code and log lines."""
    _, log = process.communicate(timeout=PATIENCE)
    return process.returncode, log.splitlines()


def events(log: list[str]) -> list[str]:
    """The third word of each line."""
    return [line.split()[2] for line in log]


def records(data: Path) -> list[dict[str, Any]]:
    """All trace records of a process, in the order of their files."""
    files = sorted((data / "traces").rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines() if line]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_log_shows_each_step(
    processes: Processes, number: signal.Signals
) -> None:
    process = processes.start(name="it")
    with processes.client() as client:
        status = client.ask(GetStatus(0), Status)
        assert status.pid == process.pid
        assert status.uptime > 0
        assert status.address == (processes.data / "address").read_text().strip()
        process.send_signal(signal.SIGHUP)  # which does not end it
        client.ask(GetStatus(0), Status)
        process.send_signal(number)
        code, log = end(process)
    assert code == 0
    assert [word for word in events(log) if word not in ("feed", "reloading")] == [
        "listening", "ready", "joined", "draining", "left",
    ]  # fmt: skip
    (draining,) = [line for line in log if " draining " in line]
    assert f"reason={number.name}" in draining
    assert "reloading" in events(log)
    (stop,) = [record for record in records(processes.data) if record["kind"] == "stop"]
    assert (stop["data_messages"], stop["reason"]) == (7, "drained")
    assert not (processes.data / "address").exists()
    assert not (processes.data / "control.sock").exists()


def test_the_command_drain_is_answered_before_the_process_ends(processes: Processes) -> None:
    process = processes.start()
    with processes.client() as client:
        assert isinstance(client.request(Drain(0)), Done)
    assert end(process)[0] == 0


def test_a_drain_that_does_not_end_has_a_time_out(processes: Processes) -> None:
    process = processes.start("stubborn", drain_timeout=0.1)
    processes.client().close()
    process.terminate()
    code, log = end(process)
    assert code == 0
    assert events(log)[-3:] == ["drain_timeout", "unfinished", "left"]
    assert "reason=time-out events=3" in log[-2]
    assert "drained=False reason=time-out" in log[-1]
    assert records(processes.data)[-1]["reason"] == "time-out"


def test_a_process_that_does_not_come_to_its_end_is_ended_and_says_where_it_stood(
    processes: Processes,
) -> None:
    process = processes.start("stubborn", "hanging", drain_timeout=0.1)
    processes.client().close()
    process.terminate()
    code, log = end(process)
    assert code == 1
    assert any("Timeout" in line for line in log)
    assert any("echo_process.py" in line and "in leave" in line for line in log)


def test_what_comes_after_the_node_was_drained_is_waited_for(tmp_path: Path) -> None:
    config = NodeConfig(data=str(tmp_path / "node"))
    ended: list[bool] = []

    async def main(process: NodeProcess, node: EchoNode) -> None:
        async def serve() -> None:
            await process.end_of_service()
            ended.append(node.drained)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            await wait_all_tasks_blocked()
            for drained in (True, False):  # two turns before the process looks
                node.drained = drained
                process.end_turn()
            await wait_all_tasks_blocked()
            assert not ended
            node.drained = True
            process.end_turn()

    with closing(DataFolder(config.folder)) as folder:
        process = NodeProcess(config, folder, Log(config.log.level, io.StringIO()), build_node)
        node = EchoNode(process.driver)
        process.driver.attach(node, process)
        trio.run(main, process, node)
    assert ended == [True]


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        ((), 'alone reason="the first node of its overlay"'),
        (("127.0.0.1:9",), 'peers="127.0.0.1:9: connection refused"'),
    ],
)
def test_a_node_says_that_it_is_alone_and_that_it_has_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peers: tuple[str, ...], expected: str
) -> None:
    monkeypatch.setattr("canopy.wire.process.node_process.ALONE_AFTER", 0.0)
    config = NodeConfig(data=str(tmp_path / "node"), peers=peers)
    output = io.StringIO()
    with closing(DataFolder(config.folder)) as folder:
        process = NodeProcess(config, folder, Log(config.log.level, output), build_node)
        node = EchoNode(process.driver)
        node.unreached = {"127.0.0.1:9": "connection refused"}
        process.driver.attach(node, process)
        process.end_turn()
        assert output.getvalue() == "", "it is not ready yet"
        node.ready = True
        for node.neighbours in (0, 0, 3, 4, 0):
            process.end_turn()
    _, alone, joined, again = output.getvalue().splitlines()
    assert expected in alone
    assert (" warning " in alone) is bool(peers)
    assert joined.endswith("joined neighbours=3")
    assert expected in again


def test_a_node_whose_peers_are_still_dialled_does_not_say_that_it_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("canopy.wire.process.node_process.ALONE_AFTER", inf)
    config = NodeConfig(data=str(tmp_path / "node"), peers=("127.0.0.1:9",))
    output = io.StringIO()
    with closing(DataFolder(config.folder)) as folder:
        process = NodeProcess(config, folder, Log(config.log.level, output), build_node)
        node = EchoNode(process.driver)
        process.driver.attach(node, process)
        node.ready = True
        for node.neighbours in (0, 0, 3):
            process.end_turn()
    assert "alone" not in output.getvalue()
    assert output.getvalue().splitlines()[-1].endswith("joined neighbours=3")


def test_a_second_signal_ends_it_at_once(processes: Processes) -> None:
    process = processes.start("stubborn", drain_timeout=3_600.0)
    with processes.client() as client:
        client.request(Drain(0))
        process.terminate()
        code, log = end(process)
    assert code == 130
    assert "interrupted" in events(log)
    assert "drained=False reason=interrupted" in log[-1]


def test_a_node_names_its_region_and_tier_with_its_address() -> None:
    async def named() -> Peer:
        config = NodeConfig(listen="127.0.0.1:0", region="eu/de", tier=3)
        listeners, me = await listen(config, "a" * 16)
        for listener in listeners:
            await listener.aclose()
        return me

    me = trio.run(named)
    assert (me.id, me.region, me.tier) == ("a" * 16, "eu/de", 3)
    assert me.address.startswith("127.0.0.1:")


def test_a_port_in_use_is_reported_with_what_to_do(processes: Processes) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        code, log = end(processes.start(listen=f"127.0.0.1:{port}"))
    assert code == 1
    assert len(log) == 1
    assert "start_failed" in log[0]
    assert f"127.0.0.1:{port}" in log[0]
    assert "--listen" in log[0]


def test_an_address_of_another_machine_cannot_be_listened_on(processes: Processes) -> None:
    code, log = end(processes.start(listen="192.0.2.1:0", insecure=True))
    assert (code, len(log)) == (1, 1)
    assert "does not have that address" in log[0]


def test_a_folder_in_use_is_reported_with_what_to_do(processes: Processes) -> None:
    first = processes.start()
    processes.client().close()
    code, log = end(processes.start())
    assert (code, len(log)) == (6, 1)
    assert f"process {first.pid}" in log[0]
    processes.client().close()  # the first one still serves


def test_a_killed_process_leaves_nothing_that_stops_the_next(processes: Processes) -> None:
    first = processes.start()
    with processes.client() as client:
        before = client.ask(GetStatus(0), Status)
    first.kill()
    end(first)
    processes.start()
    with processes.client() as client:
        after = client.ask(GetStatus(0), Status)
    assert after.node == before.node
    assert json.loads((processes.data / "node.json").read_text())["incarnation"] > 1


def test_a_long_data_folder_works(processes: Processes) -> None:
    processes.data = processes.data / ("x" * 100) / ("y" * 100)
    process = processes.start()
    with processes.client() as client:
        assert client.ask(GetStatus(0), Status).pid == process.pid
    process.terminate()
    assert end(process)[0] == 0
    assert not (processes.data / "control").exists()


def test_an_own_fault_ends_the_process_visibly(processes: Processes) -> None:
    process = processes.start("buggy")
    with processes.client() as client, pytest.raises(UnreachableError):
        client.request(GetStatus(0))
    code, log = end(process)
    assert code == 1
    assert "error crashed" in log[-1]
    assert "a bug of ours" in log[-1]


def test_the_feed_publishes_until_it_is_stopped(processes: Processes) -> None:
    processes.start(name="it")
    with processes.client() as client:
        client.request(Subscribe(0, "TRUE"))
        client.request(Feed(0, "telemetry", 0.1))
        found = []
        while len({one.event.attributes.get("sample") for one in found}) < 3:
            found += client.deliveries(PATIENCE)
        client.request(Feed(0, "telemetry", 0.0))
        client.request(GetStatus(0))
        client.deliveries(0)
        kinds = {one.event.attributes["type"] for one in found}
        assert {"cpu", "memory", "load"} <= kinds
        ids = [one.event.attributes["id"] for one in found]
        assert len(ids) == len(set(ids))
        assert {one.event.attributes["node_name"] for one in found} == {"it"}
        assert client.deliveries(0.3) == []  # it has stopped
        for wrong in (Feed(0, "weather", 1.0), Feed(0, "telemetry", 0.001)):
            with pytest.raises(CommandFailed) as failed:
                client.request(wrong)
            assert failed.value.code == "usage"
