"""Real nodes as real processes: wire and overlay together, and bytes from foreign programs."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.wire.transport.framing import NODE_FRAMES, FrameReader
from harness.real_overlay import PATIENCE, Overlay, delivered, status, wait_ready
from overlay.client import Draft, DryRun, Publish, Recipients, Subscribe, Subscribed
from overlay.links.messages import Batch, Frame, Hello
from overlay.machine import Peer

pytestmark = pytest.mark.process


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Overlay]:
    found = Overlay(tmp_path)
    yield found
    found.stop()


def test_events_reach_the_subscriber_on_another_node(overlay: Overlay) -> None:
    founder = overlay.start()
    seed = status(founder).address
    publisher, subscriber = overlay.start(seed), overlay.start(seed)
    wait_ready(founder, publisher, subscriber)
    mine = subscriber.ask(Subscribe(0, "type = 'cpu' AND v >= 5"), Subscribed, PATIENCE)
    looked = (Draft({"type": "cpu", "v": 7}), Draft({"type": "cpu", "v": 3}))
    (found, none) = publisher.ask(DryRun(0, looked), Recipients, PATIENCE).events
    assert [(one.node, one.ids) for one in found.listed] == [
        (status(subscriber).node, (mine.subscription,))
    ]
    assert (none.nodes, found.unanswered, none.unanswered) == (0, (), ())
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


def test_a_peer_list_where_no_peer_answers(overlay: Overlay) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and without a listener
        deserted = f"127.0.0.1:{held.getsockname()[1]}"
        client = overlay.start(deserted)
        until = time.monotonic() + PATIENCE
        while "refused" not in status(client).seeds[deserted].lower():
            assert time.monotonic() < until, status(client).seeds
            time.sleep(0.05)
        wait_ready(client)  # it founds a ring of its own, and serves those who are here
        client.request(Subscribe(0, "a = 1"), PATIENCE)
        client.request(Publish(0, (Draft({"id": "x", "a": 1}),)), PATIENCE)
        assert delivered(client, 1) == ["x"]


def handshake(overlay_name: str = "canopy", protocol: int = 1) -> bytes:
    peer = Peer("00000000000000ff", "127.0.0.1:9")
    return NODE_FRAMES.encode(Hello(protocol, overlay_name, peer, 1, 0, 0, 1 << 20))


def foreign_bytes() -> dict[str, bytes]:
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


def test_foreign_connections_are_closed_with_a_reason_and_the_node_goes_on(
    overlay: Overlay,
) -> None:
    client = overlay.start()
    wait_ready(client)
    client.request(Subscribe(0, "a = 1"), PATIENCE)
    host, port = status(client).address.split(":")
    for name, words in foreign_bytes().items():
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
