"""A running process beside who watches it: reloads, the service manager, checks of readiness."""

from __future__ import annotations

import faulthandler
import io
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from canopy.client.blocking import ControlClient
from canopy.client.errors import CommandFailed
from canopy.wire.config import ConfigError, HealthConfig, LogConfig, MetricsConfig, NodeConfig
from canopy.wire.folder import DataFolder
from canopy.wire.log import Log
from canopy.wire.process.node_process import NodeProcess, build_node
from canopy.wire.process.reload import HOT, ConfigSource, adopt, compare, keys_of
from canopy.wire.process.supervision import ServiceManager, Watched
from overlay.operator_commands import Reload, Reloaded
from tests.support.real.echo_node import EchoNode

ROOT = Path(__file__).parents[4]
UNIT = ROOT / "deploy/systemd/canopy.service"


@contextmanager
def manager_socket(folder: Path) -> Iterator[socket.socket]:
    """A socket as systemd makes one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(folder / "notify"))
        found.setblocking(False)
        yield found


def heard(found: socket.socket) -> list[list[str]]:
    """What the service manager was told since the last look, without watchdog beats."""
    told = []
    while True:
        try:
            told.append(found.recv(4_096).decode().split("\n"))
        except BlockingIOError:
            return told


class Rig:
    """A process with a real node in this thread's trio, and a file that it is configured by."""

    def __init__(self, folder: Path) -> None:
        self.file = NodeConfig(
            listen="127.0.0.1:0", data=str(folder / "node"), directory=False,
            metrics=MetricsConfig(listen="127.0.0.1:0"),
        )  # fmt: skip
        self.error = ""
        self.output = io.StringIO()

    def read(self) -> NodeConfig:
        if self.error:
            raise ConfigError(self.error)
        return self.file

    def change(self, **changes: Any) -> None:
        self.file = msgspec.structs.replace(self.file, **changes)

    def metrics_address(self) -> str:
        return re.findall(r"metrics address=(\S+)", self.output.getvalue())[-1]

    async def get(self, path: str) -> tuple[str, str]:
        """Status and body."""
        host, _, port = self.metrics_address().rpartition(":")
        asked = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(asked.encode())
            data = b"".join([part async for part in stream])
        head, _, body = data.partition(b"\r\n\r\n")
        return head.split()[1].decode(), body.decode()

    async def until(self, text: str, count: int = 1) -> None:
        while self.output.getvalue().count(text) < count:
            await trio.sleep(0.01)


def reload(rig: Rig, process: NodeProcess, manager: socket.socket) -> None:
    """As a program, over the control socket."""
    with ControlClient.connect(process.folder.path) as client:
        rig.change(log=LogConfig("debug", "json"), drain_timeout=3.0, tier=7)
        found = client.ask(Reload(0), Reloaded)
        assert found.read == ("node.yaml",)
        assert {e.key: (e.before, e.after, e.effective) for e in found.changed} == {
            "drain_timeout": ("10.0", "3.0", "now"),
            "tier": ("0", "7", "restart"),
            "log.level": ("info", "debug", "now"),
            "log.format": ("logfmt", "json", "now"),
        }
        assert (process.config.drain_timeout, process.config.tier) == (3.0, 0)
        last = json.loads(rig.output.getvalue().splitlines()[-1])
        assert (last["event"], last["level"], last["changed"]) == ("reloaded", "info", 4)
        reloading, ready = (one for one in heard(manager) if one != ["WATCHDOG=1"])
        assert reloading[0] == "RELOADING=1"
        stamp = int(reloading[1].removeprefix("MONOTONIC_USEC="))
        assert 0 <= time.monotonic_ns() // 1_000 - stamp < 60_000_000
        assert ready == ["READY=1", "STATUS=serves"]
        rig.error = "node.yaml: tier: expected a whole number"
        with pytest.raises(CommandFailed, match="expected a whole number"):
            client.request(Reload(0))
        assert process.config.log.level == "debug", "what held goes on"
        rig.error = ""
        rig.change(log=LogConfig())
        assert [each.key for each in client.ask(Reload(0), Reloaded).changed] == [
            "tier", "log.level", "log.format",
        ]  # fmt: skip


def test_a_node_is_watched_reloads_and_tells_the_service_manager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig(tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "60000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)

    async def main(process: NodeProcess, manager: socket.socket) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(process.run)
            with trio.fail_after(60):
                await rig.until(" metrics ")
                await rig.until(" ready ")
                assert await rig.get("/livez") == ("200", "ok\n")
                assert await rig.get("/readyz") == ("200", "ok\n")
                code, text = await rig.get("/metrics")
                assert code == "200"
                assert "canopy_ready 1.0" in text
                await trio.sleep(0.1)
                told = heard(manager)
                assert ["READY=1", "STATUS=looks for its way into the overlay"] in told
                assert told.count(["WATCHDOG=1"]) >= 2
                await trio.to_thread.run_sync(reload, rig, process, manager)
                before = rig.metrics_address()
                rig.change(metrics=MetricsConfig(listen="127.0.0.1:0"))
                with socket.socket() as taken:
                    taken.bind(("127.0.0.1", 0))
                    taken.listen()
                    port = taken.getsockname()[1]
                    rig.change(metrics=MetricsConfig(listen=f"127.0.0.1:{port}"))
                    process.reload()
                    await rig.until("setting_refused")
                assert process.config.metrics.listen == "127.0.0.1:0", "what holds"
                assert await rig.get("/livez") == ("200", "ok\n")
                process.reload()  # the port is free now
                await rig.until(f"metrics address=127.0.0.1:{port}")
                assert rig.metrics_address() != before
                assert await rig.get("/livez") == ("200", "ok\n")
                heard(manager)
                process.drain("test")
                assert ["STOPPING=1", "STATUS=leaving: test"] in heard(manager)

    with manager_socket(tmp_path) as manager, closing(DataFolder(rig.file.folder)) as folder:
        log = Log("info", rig.output)
        source = ConfigSource("node.yaml", rig.read)
        process = NodeProcess(rig.file, folder, log, build_node, None, source)
        try:
            trio.run(main, process, manager)
        finally:
            faulthandler.cancel_dump_traceback_later()  # a drain that does not end is cut short
            process.close_shards()


def test_only_hot_keys_are_taken_on_and_all_of_them_exist() -> None:
    before, keys = NodeConfig(), set(keys_of(NodeConfig()))
    assert keys >= HOT
    after = NodeConfig(
        tier=3, peers=("a:1",), health=HealthConfig(file="h"), log=LogConfig("debug")
    )
    taken = adopt(before, after)
    assert keys_of(taken) == {
        **keys_of(before), "peers": ("a:1",), "health.file": "h", "log.level": "debug"
    }  # fmt: skip
    assert [(each.key, each.effective) for each in compare(after, before)] == [
        ("peers", "restart"), ("tier", "restart"), ("log.level", "now"), ("health.file", "now"),
    ]  # fmt: skip
    [secret] = compare(before, NodeConfig(join="token"))
    assert "token" not in secret.after


@pytest.mark.parametrize(
    ("change", "check", "reason"),
    [
        ({"ready": False}, "overlay", "looks for its way"),
        ({"ready": False, "draining": True}, "overlay", "the node leaves"),
        ({"way": "no lease"}, "owner", "no majority follows"),
        ({"way": ""}, "owner", "no way to an owner"),
        ({"way": "primary silent"}, "owner", "is not reached"),
    ],
)
def test_readiness_says_what_is_lacking(
    tmp_path: Path, change: dict[str, Any], check: str, reason: str
) -> None:
    with closing(DataFolder(tmp_path / "node")) as folder:
        node = EchoNode(None)
        node.ready = True
        good = msgspec.structs.replace(node.status(0), ready=True, way="known")
        now = time.time()
        log = Log("error", io.StringIO())

        def failing(status: Any, ends: float) -> dict[str, str]:
            watched = Watched(folder, None, log, lambda: status, lambda: ends)  # type: ignore[arg-type]
            found = {name: run() for name, run in watched._ready_checks().items()}
            return {name: text for name, text in found.items() if text}

        assert failing(good, 0.0) == failing(good, now + 60.0) == {}
        assert "expired" in failing(good, now - 60.0)["certificate"]
        [(name, text)] = failing(msgspec.structs.replace(good, **change), 0.0).items()
        assert name == check
        assert reason in text
        shutil.rmtree(folder.path)
        assert list(failing(good, 0.0)) == ["disk"]


def test_without_a_service_manager_nothing_is_sent_and_one_that_is_gone_does_no_harm() -> None:
    assert ServiceManager({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, pid=2).watchdog == 0.0
    assert ServiceManager({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "2"}, pid=2).watchdog == 3.0
    ServiceManager({"NOTIFY_SOCKET": "/nowhere/at/all"}).ready("x")


def test_an_abstract_socket_is_told_as_well() -> None:
    name = f"canopy-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(f"\0{name}")
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).status("two\nlines")
        assert found.recv(100) == b"STATUS=two lines"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """Its program is replaced by one that is there."""
    unit = tmp_path / "canopy.service"
    unit.write_text(UNIT.read_text(encoding="utf-8").replace("/opt/canopy/bin/canopy", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stderr) == (0, "")
