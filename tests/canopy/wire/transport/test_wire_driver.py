"""The trio driver over real sockets: batches in, order out, and no peer can harm the node."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from canopy.wire import driver as driver_module
from canopy.wire.folder import DataFolder
from canopy.wire.transport import connection as connection_module
from canopy.wire.transport.framing import NODE_FRAMES, FrameReader
from overlay.links.messages import Ack, Batch, Bye, Frame
from tests.support.real.wire_rig import PATIENCE, Rig, rig

pytestmark = pytest.mark.trio


async def frames_until_closed(stream: trio.SocketStream) -> list[Frame]:
    """All frames that come before the other side closes."""
    reader, found = FrameReader(NODE_FRAMES), []
    reader.open()
    with trio.fail_after(PATIENCE):
        while data := await stream.receive_some():
            found += reader.feed(data)
    assert reader.error is None
    assert reader.buffered == 0
    return found


def write(one: Rig, connection: int, *frames: Frame) -> None:
    """A turn that writes these."""

    def turn() -> None:
        for frame in frames:
            one.driver.write(connection, frame)

    one.driver.turn(turn)


async def test_two_drivers_exchange_frames_in_order() -> None:
    async with rig() as one, rig() as two:
        connection = one.driver.dial(two.address)
        await one.has("opened", connection)
        (_, accepted) = await two.has("accepted")
        sent = [Batch(n, 0, 0, 0, False, bytes([n % 256]) * (n * 37 % 5_000)) for n in range(500)]
        write(one, connection, *sent)
        write(two, accepted, Ack(1, 2))
        with trio.fail_after(PATIENCE):
            while len(two.node.frames) < len(sent) or not one.node.frames:
                await trio.sleep(0.005)
        assert two.node.frames == sent
        assert one.node.frames == [Ack(1, 2)]


async def test_the_longest_turn_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as one:
        now = 1e9

        def work(seconds: float) -> None:
            nonlocal now
            now += seconds

        with monkeypatch.context() as patch:
            patch.setattr(one.driver, "clock", lambda: now)
            for seconds in (0.5, 2.5, 1.0):
                one.driver.turn(work, seconds)
        assert one.driver.longest_turn == 2.5


async def test_frames_of_a_turn_leave_and_arrive_together() -> None:
    async with rig() as one, rig() as two:
        connection = one.driver.dial(two.address)
        await one.has("opened", connection)
        await two.has("accepted")
        write(one, connection, *[Ack(number, 0) for number in range(100)])
        with trio.fail_after(PATIENCE):
            while len(two.node.frames) < 100:
                await trio.sleep(0.005)
        assert one.driver.counters.sends == 1
        assert len([found for found in two.node.inputs if found[0] == "frames"]) == 1


async def test_what_was_written_before_close_still_leaves() -> None:
    async with rig() as one:
        stream = await one.dial()
        (_, connection) = await one.has("accepted")
        write(one, connection, Ack(0, 0))  # the first frame has a smaller limit
        body = b"x" * 900_000
        write(one, connection, *[Batch(number, 0, 0, 0, False, body) for number in range(5)])
        write(one, connection, Bye("enough"))
        one.driver.close(connection, "enough")
        found = await frames_until_closed(stream)
        assert [type(frame) for frame in found] == [Ack] + [Batch] * 5 + [Bye]
        with trio.fail_after(PATIENCE):
            while one.driver.connections:
                await trio.sleep(0.005)
        assert not any(found[0] == "closed" for found in one.node.inputs)


async def test_after_close_nothing_of_the_connection_reaches_the_node() -> None:
    async with rig() as one:
        stream = await one.dial()
        (_, connection) = await one.has("accepted")
        write(one, connection, Ack(0, 0))
        write(one, connection, Batch(0, 0, 0, 0, False, b"x" * 1_000_000))
        one.driver.close(connection, "enough")
        await stream.send_all(NODE_FRAMES.encode(Ack(1, 2)) * 10)
        await frames_until_closed(stream)
        assert one.node.frames == []


async def test_a_peer_that_closes_is_reported_with_a_reason() -> None:
    async with rig() as one:
        stream = await one.dial()
        (_, connection) = await one.has("accepted")
        await stream.send_all(NODE_FRAMES.encode(Ack(1, 2)) + b"\x00")
        await stream.aclose()
        found = await one.has("closed", connection)
        assert "middle of a frame" in str(found[2])
        assert one.node.frames == [Ack(1, 2)]


async def test_a_dial_that_fails_is_reported_with_a_reason() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and without a listener
        port = held.getsockname()[1]
        async with rig() as one:
            connection = one.driver.dial(f"127.0.0.1:{port}")
            found = await one.has("closed", connection)
            assert "refused" in str(found[2])


@pytest.mark.parametrize(
    "address", ["", "x", "127.0.0.1:99999", "127.0.0.1:-1", "\x00:1", "a" * 300 + ":1", "[::1:5"]
)
async def test_an_address_that_is_none_is_a_failed_dial(address: str) -> None:
    async with rig() as one:
        connection = one.driver.dial(address)
        await one.has("closed", connection)


async def test_a_dial_that_is_closed_before_it_succeeds_is_never_opened() -> None:
    async with rig() as one, rig() as two:
        one.driver.close(one.driver.dial(two.address), "changed my mind")
        with trio.fail_after(PATIENCE):
            while one.driver.connections:
                await trio.sleep(0.005)
        assert one.node.inputs == [("start",)]


GARBAGE = {
    "an oversized frame": struct.pack(">I", 1 << 30) + b"x" * 100,
    "another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "an unknown type": struct.pack(">I", 3) + b"\x92\xa1X",
    "depth": struct.pack(">I", 60_000) + b"\x91" * 60_000,
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_ends_its_connection_with_a_reason_and_harms_nothing(name: str) -> None:
    async with rig() as one:
        good, bad = await one.dial(), await one.dial()
        await one.has("accepted", 2)
        await bad.send_all(NODE_FRAMES.encode(Ack(1, 2)) + GARBAGE[name])
        (_, connection, reason) = await one.has("garbage")
        (bye,) = await frames_until_closed(bad)
        assert bye == Bye(str(reason))
        assert one.driver.counters.errors == 1
        assert one.node.frames == [Ack(1, 2)]
        await good.send_all(NODE_FRAMES.encode(Ack(3, 4)))
        with trio.fail_after(PATIENCE):
            while len(one.node.frames) < 2:
                await trio.sleep(0.005)
        await one.has("closed", connection)


async def test_a_peer_that_does_not_read_is_closed_and_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "QUEUE_LIMIT", 1 << 20)
    async with rig() as one:
        await one.dial()
        (_, connection) = await one.has("accepted")
        with trio.fail_after(PATIENCE):
            while not any(found[0] == "closed" for found in one.node.inputs):
                write(one, connection, Batch(0, 0, 0, 0, False, b"x" * 500_000))
                await trio.sleep(0)
        found = await one.has("closed", connection)
        assert "does not read" in str(found[2])


async def test_a_send_that_stalls_has_a_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "SEND_TIMEOUT", 0.05)
    async with rig() as one:
        await one.dial()
        (_, connection) = await one.has("accepted")
        # More than the sockets' buffers hold:
        write(one, connection, *[Batch(0, 0, 0, 0, False, b"x" * 1_000_000)] * 12)
        found = await one.has("closed", connection)
        assert "took nothing" in str(found[2])


async def test_the_timer_ticks_at_the_deadline_and_moves_forward() -> None:
    async with rig() as one:
        start = one.driver.clock()
        one.node.alarm = start + 3_600
        one.driver.turn(lambda: None)
        await trio.sleep(0.01)
        assert ("tick",) not in one.node.inputs
        one.node.alarm = start + 0.02  # an input moved it forward: the timer must wake
        one.driver.turn(lambda: None)
        await one.has("tick")
        assert one.driver.clock() >= start + 0.02


async def test_what_is_stored_is_on_disk_before_the_frames_of_the_turn_leave(
    tmp_path: Path,
) -> None:
    folder = DataFolder(tmp_path)
    async with rig(folder) as one:
        stream = await one.dial()
        await one.has("accepted")
        seen: list[bool] = []
        state = tmp_path / "state"

        def promise(number: int, frame: Frame) -> None:
            one.driver.write(number, Ack(1, 2))  # written before the store, in the same turn
            one.driver.store(b"promised")
            seen.append(b"promised" in state.read_bytes())

        one.node.on_frame = promise
        await stream.send_all(NODE_FRAMES.encode(Ack(0, 0)))
        with trio.fail_after(PATIENCE):
            await stream.receive_some()
        assert seen == [False]
        assert b"promised" in state.read_bytes()
    folder.close()


async def test_frames_for_other_nodes_leave_before_what_is_for_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as one:
        await one.dial()
        (_, connection) = await one.has("accepted")
        left: list[str] = []
        send = connection_module.Connection.send_now

        def send_now(self: connection_module.Connection) -> None:
            left.append("frames")
            send(self)

        with monkeypatch.context() as patch:
            patch.setattr(connection_module.Connection, "send_now", send_now)
            patch.setattr(one, "end_turn", lambda: left.append("replies"))
            write(one, connection, Ack(1, 2))
        assert left == ["frames", "replies"]


async def test_an_own_fault_is_not_swallowed() -> None:
    def broken(connection: int, frame: Frame) -> None:
        raise AssertionError("a bug of ours")

    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        async with rig() as one:
            one.node.on_frame = broken
            stream = await one.dial()
            await stream.send_all(NODE_FRAMES.encode(Ack(0, 0)))
            await trio.sleep(PATIENCE)


async def test_ticks_that_work_follow_each_other_and_those_that_do_not_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that is behind works in its ticks; a timer that is always due must not eat the CPU."""
    monkeypatch.setattr(driver_module, "TICK_LEAST", 1_000.0)
    async with rig() as one:
        ticks, now = 0, 5.0

        def on_tick() -> None:
            nonlocal ticks, now
            ticks += 1
            now += 1_001.0 if ticks <= 50 else 0.0

        monkeypatch.setattr(one.driver, "clock", lambda: now)
        monkeypatch.setattr(one.node, "on_tick", on_tick)
        await wait_all_tasks_blocked()  # the timer's task sleeps
        monkeypatch.setattr(one.node, "deadline", lambda: 0.0)
        one.driver.turn(lambda: None)
        with trio.fail_after(PATIENCE):
            while ticks < 51:
                await trio.sleep(0.001)
        for _ in range(20):
            await trio.sleep(0.001)
        assert ticks == 51
