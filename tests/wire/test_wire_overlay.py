"""Real nodes as real processes: wire and overlay together, and what a stranger can do to them."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from overlay.client import Draft, GetStatus, Publish, Status, Subscribe
from overlay.links.messages import Batch, Frame, Hello
from overlay.machine import Peer
from wire.client import ControlClient, UnreachableError
from wire.framing import NODE_FRAMES, FrameReader

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
PATIENCE = 40.0


class Overlay:
    """Some node processes and a client of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.clients: list[ControlClient] = []

    def start(self, *peers: str) -> ControlClient:
        """One more node; its client."""
        data = self.folder / str(len(self.processes))
        arguments = ["--listen", "127.0.0.1:0", "--data", str(data), "--log", "debug"]
        for peer in peers:
            arguments += ["--peer", peer]
        log = (self.folder / f"{len(self.processes)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "node.py", *arguments], cwd=ROOT, stderr=log
            )
        self.processes.append(process)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.clients.append(ControlClient.connect(data))
                return self.clients[-1]
            except UnreachableError:
                assert process.poll() is None, self.log(-1)
                assert time.monotonic() < until, self.log(-1)
                time.sleep(0.02)

    def log(self, number: int) -> str:
        number = range(len(self.processes))[number]
        return (self.folder / f"{number}.log").read_text()

    def stop(self) -> None:
        for client in self.clients:
            client.close()
        for process in self.processes:
            process.kill()
            process.wait()


def status(client: ControlClient) -> Status:
    return client.ask(GetStatus(0), Status)


def wait_ready(*clients: ControlClient) -> None:
    until = time.monotonic() + PATIENCE
    while not all(status(client).ready for client in clients):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Overlay]:
    found = Overlay(tmp_path)
    yield found
    found.stop()


def delivered(client: ControlClient, count: int) -> list[str]:
    """The ids of the next `count` deliveries."""
    found: list[str] = []
    while len(found) < count:
        news = client.deliveries(PATIENCE)
        assert news, f"{len(found)} of {count} came"
        found += [str(one.event.attributes["id"]) for one in news]
    return found


def test_events_reach_the_subscriber_on_another_node(overlay: Overlay) -> None:
    founder = overlay.start()
    seed = status(founder).address
    publisher, subscriber = overlay.start(seed), overlay.start(seed)
    wait_ready(founder, publisher, subscriber)
    subscriber.request(Subscribe(0, "type = 'cpu' AND v >= 5"), PATIENCE)
    drafts = tuple(
        Draft({"id": str(n), "type": "cpu" if n % 2 else "disk", "v": n % 10}) for n in range(400)
    )
    publisher.request(Publish(0, drafts), PATIENCE)
    expected = [str(n) for n in range(400) if n % 2 and n % 10 >= 5]
    assert sorted(delivered(subscriber, len(expected))) == sorted(expected)
    assert subscriber.deliveries(0.3) == []
    for process in overlay.processes:
        process.terminate()
    assert [process.wait(PATIENCE) for process in overlay.processes] == [0, 0, 0]
    assert "drained=True" in overlay.log(0)


def test_a_peer_list_where_nobody_answers(overlay: Overlay) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and nobody listens
        nobody = f"127.0.0.1:{held.getsockname()[1]}"
        client = overlay.start(nobody)
        until = time.monotonic() + PATIENCE
        while "refused" not in status(client).seeds[nobody].lower():
            assert time.monotonic() < until, status(client).seeds
            time.sleep(0.05)
        wait_ready(client)  # it founds a ring of its own, and serves those who are here
        client.request(Subscribe(0, "a = 1"), PATIENCE)
        client.request(Publish(0, (Draft({"id": "x", "a": 1}),)), PATIENCE)
        assert delivered(client, 1) == ["x"]


def handshake(overlay_name: str = "canopy", protocol: int = 1) -> bytes:
    peer = Peer("00000000000000ff", "127.0.0.1:9")
    return NODE_FRAMES.encode(Hello(protocol, overlay_name, peer, 1, 0, 0, 1 << 20))


def strangers() -> dict[str, bytes]:
    rng = random.Random(11)
    batch = Batch(0, 0, 1 << 20, 0, False, b"garbage")
    deep = struct.pack(">I", 60_000) + b"\x91" * 60_000
    return {
        "nothing": b"",
        "http": b"GET / HTTP/1.1\r\n\r\n",
        "noise": rng.randbytes(5_000),
        "an oversized frame": struct.pack(">I", 1 << 31),
        "depth": deep,
        "another overlay": handshake("another"),
        "another protocol": handshake(protocol=99),
        "a batch before the handshake": NODE_FRAMES.encode(batch),
        "a batch that is garbage": handshake() + NODE_FRAMES.encode(batch),
        "depth after the handshake": handshake() + deep,
        "half a frame": handshake()[:-3],
    }


def test_strangers_are_closed_with_a_reason_and_the_node_is_unharmed(overlay: Overlay) -> None:
    client = overlay.start()
    wait_ready(client)
    client.request(Subscribe(0, "a = 1"), PATIENCE)
    host, port = status(client).address.split(":")
    for name, words in strangers().items():
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
            sock.sendall(words)
            sock.shutdown(socket.SHUT_WR)
            reader: FrameReader[Frame] = FrameReader(NODE_FRAMES)
            while data := sock.recv(65_536):  # until the node closes
                reader.feed(data)
            assert reader.error is None, name
    client.request(Publish(0, (Draft({"id": "x", "a": 1}),)), PATIENCE)
    assert delivered(client, 1) == ["x"]
    assert status(client).counters["wire_errors"] >= 4
    assert "crashed" not in overlay.log(0)
