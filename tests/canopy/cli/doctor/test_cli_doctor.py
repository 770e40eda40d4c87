"""`canopy doctor`: each check on what is right and on what is wrong; `canopy completion`."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from canopy.cli.doctor import live_node, machine
from canopy.cli.doctor.live_node import look_at_streams
from canopy.cli.doctor.machine import Finding, carry_out
from canopy.cli.main import main
from canopy.wire.config import NodeConfig
from overlay.client import Status
from overlay.info import PeerInfo, ReplicaInfo, ShardInfo, StreamInfo
from overlay.operator_commands import ClockOffset
from tests.support.real.keys import Keys

GOOD = Status(
    *(0, "ab" * 8, "a:1", True, False, 1, "none", "", "", 3, 2, 1, 0, 4, "pivot"),
    {"b:1": "reached"}, {}, way="known",
)  # fmt: skip


def levels(findings: Iterable[Finding]) -> list[str]:
    return [found.level for found in findings]


def test_a_private_folder_on_a_disk_is_fine_and_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "node"
    [absent] = machine.look_at_folder(folder)
    assert (absent.level, "first start" in absent.what) == ("note", True)
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(machine, "filesystem", lambda path: "ext4")
    assert levels(machine.look_at_folder(folder)) == ["ok"]
    folder.chmod(0o755)
    [found] = machine.look_at_folder(folder)
    assert (found.level, found.do[:9]) == ("warning", "chmod 700")
    folder.chmod(0o700)
    for kind in ("nfs4", "tmpfs"):
        monkeypatch.setattr(machine, "filesystem", lambda path, kind=kind: kind)
        assert levels(machine.look_at_folder(folder)) == ["ok", "warning"]
    [file] = machine.look_at_folder(Path(__file__))
    assert file.level == "error"


def test_the_file_system_is_that_of_the_deepest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    inner = tmp_path / "a b"
    mounted = str(inner).replace(" ", "\\040")
    mounts.write_text(f"x / ext4 rw 0 0\ny {mounted} nfs4 rw 0 0\nz {tmp_path}/a tmpfs rw 0 0\n")
    assert machine.filesystem(inner / "c", mounts) == "nfs4"
    assert machine.filesystem(tmp_path / "ab", mounts) == "ext4"
    assert machine.filesystem(inner, tmp_path / "none") == ""


@pytest.mark.parametrize(("seconds", "level"), [(0.001, "ok"), (0.1, "warning"), (1.0, "error")])
def test_a_slow_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, level: str
) -> None:
    assert 0 < machine.sync_time(tmp_path) < 60
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(machine, "sync_time", lambda folder: seconds)
    assert levels(machine.look_at_disk(tmp_path))[-1] == level


def test_a_folder_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **named: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)  # root may write where nobody else may
    last = list(machine.look_at_disk(tmp_path))[-1]
    assert last.level == "error"
    assert last.what == f"cannot write in {tmp_path}: Permission denied"


def test_a_port_that_is_in_use_and_a_peer_that_is_not_there_are_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = NodeConfig(listen=address, peers=(address, "127.0.0.1:9"))
        [port] = machine.look_at_port(config)
        assert (port.level, "in use" in port.what) == ("error", True)
        assert levels(machine.look_at_peers(config)) == ["ok", "warning"]
    assert levels(machine.look_at_port(config)) == ["ok"]


def test_keys_are_there_private_and_in_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = NodeConfig(data=str(tmp_path / "bare"))
    assert levels(machine.look_at_keys(bare)) == ["ok"]
    open_to_others = msgspec.structs.replace(bare, listen="192.0.2.1:4470")
    assert levels(machine.look_at_keys(open_to_others)) == ["error"]
    keys = Keys(tmp_path / "overlay").folder("node")
    config = NodeConfig(data=str(keys.path.parent))
    [fine] = machine.look_at_keys(config)
    assert fine.level == "ok", fine
    (keys.path / "root.key").touch(0o600)
    assert levels(machine.look_at_keys(config)) == ["ok", "note"]
    (keys.path / "root.key").unlink()
    certificate = keys.certificate()
    assert certificate is not None
    for now, level, word in (
        (certificate.ends - 3_600.0, "warning", "was not renewed"),
        (certificate.ends + 60.0, "error", "has ended"),
        (certificate.begins - 600.0, "error", "begins in 10 minutes"),
    ):
        monkeypatch.setattr(machine.time, "time", lambda now=now: now)
        [found] = machine.look_at_keys(config)
        assert (found.level, word in found.what) == (level, True), found
    (keys.path / "node.key").chmod(0o644)
    [readable] = machine.look_at_keys(config)
    assert (readable.level, "chmod" in readable.what) == ("error", True)


@pytest.mark.parametrize(
    ("change", "level", "word"),
    [
        ({"ready": False}, "error", "looks for its way"),
        ({"way": "no lease"}, "error", "no majority"),
        ({"counters": {"deliveries_lost": 3}}, "warning", "deliveries_lost 3"),
        ({"counters": {"identity_refused": 1}}, "warning", "identity_refused 1"),
        ({"counters": {"longest_turn": 5_000, "longest_turn_cpu": 4_000}}, "warning", "computed"),
        ({"counters": {"shard_forks": 1}}, "error", "shard_forks"),
        ({"replaced": "cd" * 8}, "warning", "was damaged"),
        ({"health": "sub-healthy: disk"}, "warning", "sub-healthy: disk"),
    ],
)
def test_a_node_that_lacks_something_says_so(
    change: dict[str, object], level: str, word: str
) -> None:
    assert levels(live_node.look_at_status(GOOD)) == ["ok"]
    status = msgspec.structs.replace(GOOD, **change)
    found = [*live_node.look_at_status(status), *live_node.look_at_losses(status)]
    [wrong] = [each for each in found if each.level != "ok"]
    assert (wrong.level, word in wrong.what) == (level, True), wrong


def test_neighbours_that_are_silent_or_older_are_named() -> None:
    near = PeerInfo("ab" * 8, "a:1", "CONNECTED", 1, True, 1, 1, protocol=11)
    assert levels(live_node.look_at_links((near,))) == ["ok"]
    older = msgspec.structs.replace(near, protocol=10)
    assert levels(live_node.look_at_links((near, older))) == ["ok", "note"]
    silent = msgspec.structs.replace(near, state="CONNECTING", protocol=0)
    assert levels(live_node.look_at_links((near, silent))) == ["warning"]
    refused = msgspec.structs.replace(GOOD, seeds={"b:1": "connection refused"})
    assert levels(live_node.look_at_seeds(refused)) == ["warning"]


def test_a_stream_without_a_majority_is_an_error_and_says_what_programs_are_told() -> None:
    there, silent = (ReplicaInfo(node, f"{node}:1", node) for node in ("leads", "silent"))

    def stream(*replicas: ReplicaInfo) -> StreamInfo:
        return StreamInfo("quakes", "id", "", 3, 0.0, 0, (ShardInfo(0, "leads", replicas),))

    assert not list(look_at_streams([]))
    [well] = look_at_streams([stream(there)])
    assert (well.level, well.what) == ("ok", "1 stream with replicas here")
    [wrong] = look_at_streams([stream(there, silent)])
    assert wrong.level == "error"
    assert wrong.what.startswith("no majority: 1 of 2 replicas of quakes answer;")
    [away] = look_at_streams(["quakes: the ring does not answer"])
    assert (away.level, away.what) == ("warning", "quakes: the ring does not answer")


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        ((0.01, -0.02), [("ok", "within 20 ms")]),
        ((3.0, 0.0, 0.0), [("warning", "3.0 s ahead")]),
        ((-3.0, -3.1, 0.0), [("warning", "ahead of 2 of 3")]),
        ((90.0, 91.0), [("error", "91.0 s behind 2 of 2")]),
        ((), [("note", "no neighbour")]),
    ],
)
def test_a_clock_that_is_off_is_told_from_neighbours_that_are(
    offsets: tuple[float, ...], found: list[tuple[str, str]]
) -> None:
    clocks = [ClockOffset(f"{n:016x}", "a:1", "answered", o, 0.02) for n, o in enumerate(offsets)]
    clocks.append(ClockOffset("ff" * 8, "b:1", "older"))
    said = list(live_node.look_at_clocks(tuple(clocks)))
    assert [each.level for each in said] == [level for level, _ in found]
    for each, (_, word) in zip(said, found, strict=True):
        assert word in each.what


def test_a_check_that_cannot_look_is_a_finding_and_not_the_end() -> None:
    def broken() -> Iterable[Finding]:
        raise PermissionError(13, "Permission denied")
        yield

    [found] = carry_out("disk", broken)  # type: ignore[arg-type]
    assert (found.check, found.level) == ("disk", "warning")


def test_the_command_says_what_is_wrong_by_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "look_at_limits", lambda: iter(()))
    file = tmp_path / "node.yaml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file.write_text(f"listen: 127.0.0.1:{port}\ndata: {tmp_path / 'node'}\n")
        assert main(["doctor", "--config", str(file), "--json"]) == 1
        found = json.loads(capsys.readouterr().out)
        assert [each["check"] for each in found["findings"] if each["level"] == "error"] == [
            "ports"
        ]
        assert main(["doctor", "--config", str(file)]) == 1
        assert "1 error" in capsys.readouterr().out
    assert main(["doctor", "--config", str(file)]) == 0
    file.write_text("listen: nonsense\n")
    assert main(["doctor", "--config", str(file)]) == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_by_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_CANOPY_COMPLETE" in script
    if shell != "bash" or not shutil.which("bash"):
        return
    program = tmp_path / "canopy"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m canopy "$@"\n')
    program.chmod(0o755)
    (tmp_path / "c").write_text(script)
    line = (
        f"PATH={tmp_path}:$PATH; source {tmp_path / 'c'}; COMP_WORDS=(canopy relo); COMP_CWORD=1; "
        "_canopy_completion canopy; echo ${COMPREPLY[@]}"
    )
    root = Path(__file__).parents[4]
    run = subprocess.run(["bash", "-c", line], cwd=root, capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "reload", run.stderr
