"""The fault proxy: it knows who speaks to whom, and spoils just that."""

from __future__ import annotations

import fcntl
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from canopy.wire.transport.framing import NODE_FRAMES
from harness.fault_proxy import FaultProxy, Faults, poll
from overlay.links.messages import Hello
from overlay.machine import Peer

PATIENCE = 20.0


class Rig:
    """Two listeners behind a proxy, and connections between them."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.proxy = stack.enter_context(FaultProxy())
        self.listeners: dict[str, socket.socket] = {}
        self.entrances: dict[str, str] = {}
        for name in ("a", "b"):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.settimeout(PATIENCE)
            self.listeners[name] = listener
            self.entrances[name] = self.proxy.enter(name, listener.getsockname()[1])

    def dial(self, dialler: str, receiver: str) -> tuple[socket.socket, socket.socket]:
        """Both ends, after the Hello."""
        host, _, port = self.entrances[receiver].partition(":")
        near = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.stack.enter_context(near)
        hello = Hello(1, "canopy", Peer(f"{dialler}id", self.entrances[dialler]), 1, 0, 0, 1 << 20)
        frame = NODE_FRAMES.encode(hello)
        near.sendall(frame)
        far, _ = self.listeners[receiver].accept()
        self.stack.enter_context(far)
        far.settimeout(PATIENCE)
        assert read(far, len(frame)) == frame
        return near, far


def read(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        data = sock.recv(size - len(found))
        assert data, f"closed after {found!r}"
        found += data
    return found


@pytest.fixture
def rig() -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(stack)


def is_silent(sock: socket.socket) -> bool:
    sock.settimeout(0.15)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(PATIENCE)
    return False


def test_bytes_are_counted_by_who_sends_them_to_whom(rig: Rig) -> None:
    near, far = rig.dial("a", "b")
    greeted = rig.proxy.passed["a", "b"]
    near.sendall(b"123")
    assert read(far, 3) == b"123"
    far.sendall(b"12345")
    assert read(near, 5) == b"12345"
    assert rig.proxy.passed == {("a", "b"): greeted + 3, ("b", "a"): 5}
    assert greeted > 0


@pytest.mark.parametrize("dialler", ["a", "b"])
def test_a_held_direction_is_silent_and_loses_nothing_whichever_side_dialled(
    rig: Rig, dialler: str
) -> None:
    other = "b" if dialler == "a" else "a"
    near, far = rig.dial(dialler, other)
    of = {dialler: near, other: far}
    rig.proxy.spoil("a", "b", Faults(hold=True))
    of["b"].sendall(b"from b")
    assert read(of["a"], 6) == b"from b"
    of["a"].sendall(b"1")
    of["a"].sendall(b"2")
    assert is_silent(of["b"])
    rig.proxy.heal()
    assert read(of["b"], 2) == b"12"


def test_delay_rate_and_damage(rig: Rig) -> None:
    near, far = rig.dial("a", "b")
    rig.proxy.spoil("a", "b", Faults(delay=0.1, rate=10_000.0))
    began = time.monotonic()
    near.sendall(bytes(3_000))
    assert read(far, 3_000) == bytes(3_000)
    assert time.monotonic() - began >= 0.29
    rig.proxy.spoil("a", "b", Faults(damage=1.0))
    near.sendall(bytes(100))
    assert sum(byte.bit_count() for byte in read(far, 100)) == 1


def test_closing_resets_both_ends_of_that_pair(rig: Rig) -> None:
    near, far = rig.dial("a", "b")
    assert rig.proxy.close("b", "a") == 1
    with pytest.raises(ConnectionResetError):
        read(near, 1)
    with pytest.raises(ConnectionResetError):
        read(far, 1)
    assert rig.proxy.close("b", "a") == 0


def test_a_node_that_has_left_is_refused(rig: Rig) -> None:
    host, _, port = rig.entrances["b"].partition(":")
    rig.proxy.leave("b")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=PATIENCE)


def test_datagrams_find_back_and_are_lost_where_the_direction_is_held(rig: Rig) -> None:
    ends = {}
    for name in ("a", "b"):
        end = rig.stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        end.bind(rig.listeners[name].getsockname())
        end.settimeout(PATIENCE)
        ends[name] = end
    host, _, port = rig.entrances["b"].partition(":")
    ends["a"].sendto(b"question", (host, int(port)))
    data, sender = ends["b"].recvfrom(100)
    assert data == b"question"
    assert f"{sender[0]}:{sender[1]}" == rig.entrances["a"]
    ends["b"].sendto(b"answer", sender)
    assert ends["a"].recv(100) == b"answer"
    rig.proxy.spoil("a", "b", Faults(hold=True))
    ends["a"].sendto(b"lost", (host, int(port)))
    assert is_silent(ends["b"])
    rig.proxy.heal()
    ends["a"].sendto(b"heard", (host, int(port)))
    assert ends["b"].recv(100) == b"heard"


def test_sockets_are_polled_whatever_their_number() -> None:
    """`select` refuses descriptors from 1,024 on."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        one, other = socket.socketpair()
        with one, other, socket.socket(fileno=fcntl.fcntl(one, fcntl.F_DUPFD, 1_500)) as high:
            assert poll([high], [high], 0.0) == (set(), {high})
            other.send(b"!")
            assert poll([high], [], PATIENCE) == ({high}, set())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
