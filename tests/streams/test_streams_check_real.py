"""`canopy stream check` at real nodes, of which one has a damaged file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from canopy.cli.streams.group import stream
from canopy.client.client import connect
from harness.real_overlay import PATIENCE, Overlay, status
from overlay.client import GetStreams, Streams
from overlay.info import StreamInfo
from overlay.stream_client import AddStream
from streams.log.shard_log import parse_name

pytestmark = pytest.mark.process


def log(folder: Path, made: StreamInfo) -> Path:
    """The only segment of a stream's shard."""
    found = folder / "streams" / made.id / "0"
    (path,) = (each for each in found.iterdir() if parse_name(each.name))
    return path


def flip(path: Path) -> None:
    """A bit in the middle of a file."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes((byte[0] ^ 4,)))


def check(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(stream, ["check", "--connect", str(folder), *arguments])


def test_a_node_checks_its_logs_and_has_a_damaged_file_mended(overlay: Overlay) -> None:
    first = overlay.clients[0]
    made = first.ask(AddStream(0, "checked"), Streams, PATIENCE).streams[0]
    alone = first.ask(AddStream(0, "alone", replicas=1), Streams, PATIENCE).streams[0]
    nodes = {
        status(client).node: overlay.folder / str(n) for n, client in enumerate(overlay.clients)
    }
    with connect(overlay.folder / "0") as client:
        for _ in range(10):
            client.append("checked", [{"n": n, "text": "x" * 1_000} for n in range(100)])
            client.append("alone", [{"n": n, "text": "x" * 1_000} for n in range(100)])
        until = time.monotonic() + PATIENCE
        while True:
            shard = client.ask(GetStreams(0, "checked"), Streams, PATIENCE).streams[0].shards[0]
            if len({replica.committed for replica in shard.replicas}) == 1:
                break
            assert time.monotonic() < until
            time.sleep(0.1)
    leader = shard.leader
    follower = next(nodes[each.node] for each in shard.replicas if each.node != leader)
    before = log(follower, made).read_bytes()
    whole = check(follower, "checked", "--json")
    assert whole.exit_code == 0
    found = json.loads(whole.output)
    assert found["whole"]
    assert found["shards"][0]["bytes"] >= len(before)
    flip(log(follower, made))
    mended = check(follower)
    assert mended.exit_code == 0, mended.output
    name = next(node for node, folder in nodes.items() if folder == follower)
    assert name in mended.output
    assert "checked/0 is whole again" in mended.output
    assert log(follower, made).read_bytes()[: len(before)] == before
    keeper = next(
        folder for node, folder in nodes.items() if (folder / "streams" / alone.id).exists()
    )
    flip(log(keeper, alone))
    left = check(keeper, "alone", "--rate", "1M", "--json")
    assert left.exit_code == 1, left.output
    (shard_check,) = json.loads(left.output)["shards"]
    assert (shard_check["state"], shard_check["left"]) == ("damaged", 1)
    unknown = check(keeper, "nothing")
    assert "no shard of a stream nothing" in str(unknown.exception)
    assert check(keeper, "--rate", "1").exit_code == 2
