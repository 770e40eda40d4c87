"""Sessions at the control socket: what a program has when it comes back, and what ends (M5)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from canopy.client.session import items_of
from canopy.wire.config import ClientConfig
from canopy.wire.control.client_connection import ReplayBuffer
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from overlay.client import (
    CREDIT,
    CloseSession,
    Command,
    Delivered,
    Done,
    Draft,
    Dropped,
    Failed,
    Grant,
    OpenSession,
    Publish,
    Published,
    Reply,
    ResumeSession,
    SessionOpened,
    SessionResumed,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from tests.support.real.wire_rig import PATIENCE, Rig, rig

KEPT = 30.0


class Program:
    """A program that speaks the protocol itself, so that it can lose its connection anywhere."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.reader = FrameReader(REPLY_FRAMES)
        self.frames: list[Reply] = []  # not asked for
        self.replies: dict[int, Reply] = {}
        self.received = 0

    async def ask(self, command: Command) -> Reply:
        await self.stream.send_all(COMMAND_FRAMES.encode(command))
        with trio.fail_after(PATIENCE):
            while command.request not in self.replies:
                await self.read()
        return self.replies[command.request]

    async def read(self) -> None:
        data = await self.stream.receive_some(1 << 20)
        assert data, "the node has closed the connection"
        for frame in self.reader.feed(data):
            if frame.request:
                self.replies[frame.request] = frame
            else:
                self.frames.append(frame)
                self.received += items_of(frame)

    async def read_all(self) -> None:
        """Read until nothing more comes."""
        with trio.move_on_after(0.1):
            while True:
                await self.read()

    @property
    def numbers(self) -> list[int]:
        """The sequence numbers of the events, and minus the count of each gap."""
        found: list[int] = []
        for frame in self.frames:
            if isinstance(frame, Delivered):
                found += [one.event.sequence for one in frame.deliveries]
            elif isinstance(frame, Dropped):
                found.append(-frame.count)
        return found

    async def open(self) -> str:
        """Subscribe and open a session; its name."""
        assert isinstance(await self.ask(Subscribe(1, "a = 1")), Subscribed)
        opened = await self.ask(OpenSession(2))
        assert isinstance(opened, SessionOpened)
        assert opened.kept_for == KEPT
        return opened.session

    async def lose(self) -> None:
        """Lose the connection without a goodbye, as a process that is killed."""
        await trio.aclose_forcefully(self.stream)


async def program(one: Rig) -> Program:
    stream = await trio.open_unix_socket(one.path)
    one.streams.append(stream)
    return Program(stream)


async def resumed(one: Rig, session: str, received: int) -> tuple[Program, SessionResumed]:
    back = await program(one)
    reply = await back.ask(ResumeSession(9, session, received))
    assert isinstance(reply, SessionResumed), reply
    return back, reply


async def publish(writer: Program, first: int, last: int, size: int = 10) -> None:
    """Events whose sequence numbers are these."""
    for number in range(first, last + 1):
        draft = Draft({"id": number}, bytes(size))
        reply = await writer.ask(Publish(number + 100, (draft,)))
        assert isinstance(reply, Published)
        assert reply.first == number


async def parked(one: Rig, count: int = 1) -> None:
    """Wait until so many sessions are parked."""
    with trio.fail_after(PATIENCE):
        while sum(info.parked_for >= 0 for info in one.control.clients) != count:
            await trio.sleep(0.005)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Rig]:
    clients = ClientConfig(resume=KEPT)
    async with rig(socket=tmp_path / "control.sock", clients=clients) as one:
        yield one


@pytest.mark.trio
async def test_a_program_that_comes_back_goes_on_with_nothing_lost_and_nothing_twice(
    running: Rig,
) -> None:
    reader, writer = await program(running), await program(running)
    session = await reader.open()
    await publish(writer, 1, 5)
    await reader.read_all()
    await publish(writer, 6, 8)  # these are in the socket when it is lost
    received, found = reader.received, reader.numbers
    await reader.lose()
    await parked(running)
    await publish(writer, 9, 12)
    back, reply = await resumed(running, session, received)
    assert reply.after == received == 5
    assert [one.subscription for one in reply.subscriptions] == ["s0"]
    await publish(writer, 13, 14)
    await back.read_all()
    assert found + back.numbers == list(range(1, 15))
    assert running.control.sessions_resumed == 1
    assert not any(made[0] == "gone" for made in running.node.inputs)


@pytest.mark.trio
async def test_a_session_can_be_resumed_again_and_again(running: Rig) -> None:
    reader, writer = await program(running), await program(running)
    session, found, received = await reader.open(), list[int](), 0
    for number in range(1, 20, 3):
        await publish(writer, number, number)
        await reader.lose()
        await parked(running)
        await publish(writer, number + 1, number + 2)
        reader, reply = await resumed(running, session, received)
        assert reply.after == received
        if number % 2:
            await reader.read_all()
            found += reader.numbers
            received += reader.received
    await reader.read_all()
    assert found + (reader.numbers if not number % 2 else []) == list(range(1, number + 3))


@pytest.mark.trio
async def test_what_overflows_while_it_is_away_is_reported_in_its_place(tmp_path: Path) -> None:
    async with rig(
        socket=tmp_path / "control.sock", clients=ClientConfig(queue=50_000, resume=KEPT)
    ) as one:
        reader, writer = await program(one), await program(one)
        session = await reader.open()
        await reader.lose()
        await parked(one)
        await publish(writer, 1, 30, size=10_000)
        back, _ = await resumed(one, session, 0)
        await publish(writer, 31, 32)
        await back.read_all()
        (gap,) = [found for found in back.numbers if found < 0]
        before = back.numbers.index(gap)
        assert before == 4
        assert back.numbers == [*range(1, before + 1), gap, *range(before + 1 - gap, 33)]
        assert one.control.dropped == -gap


@pytest.mark.trio
async def test_it_learns_how_much_the_node_no_longer_has(running: Rig) -> None:
    reader, writer = await program(running), await program(running)
    session = await reader.open()
    await publish(writer, 1, 6)
    await reader.read_all()
    size = running.control.clients[0].under_way
    await reader.stream.send_all(COMMAND_FRAMES.encode(Grant(0, size, CREDIT)))
    await running_has_consumed(running)
    await reader.lose()
    await parked(running)
    _, reply = await resumed(running, session, 2)
    assert reply.after == 6, "the program has consumed six, and says that it has two"


async def running_has_consumed(one: Rig) -> None:
    with trio.fail_after(PATIENCE):
        while one.control.clients[0].under_way:
            await trio.sleep(0.005)


@pytest.mark.trio
async def test_a_session_ends_when_its_time_is_over_and_not_before(running: Rig) -> None:
    reader = await program(running)
    session = await reader.open()
    await reader.lose()
    await parked(running)
    await running.advance(KEPT - 0.5)
    assert not any(made[0] == "gone" for made in running.node.inputs)
    assert running.control.clients[0].parked_for == KEPT - 0.5
    await running.advance(0.5)
    await running.has("gone", 1, KEPT)
    assert running.control.clients == ()
    assert running.node.subscriptions == {}
    late = await program(running)
    refused = await late.ask(ResumeSession(1, session, 0))
    assert isinstance(refused, Failed)
    assert refused.code == "unknown"
    assert running.control.sessions_ended == 1
    assert isinstance(await late.ask(Subscribe(2, "a = 1")), Subscribed), "the connection serves"


@pytest.mark.trio
async def test_a_goodbye_ends_a_session_with_its_connection(running: Rig) -> None:
    reader = await program(running)
    await reader.open()
    await reader.stream.send_all(COMMAND_FRAMES.encode(CloseSession(0)))
    await reader.lose()
    await running.has("gone", 1, 0.0)
    assert running.control.clients == ()


@pytest.mark.trio
async def test_a_client_without_a_session_ends_with_its_connection(running: Rig) -> None:
    reader = await program(running)
    await reader.ask(Subscribe(1, "a = 1"))
    await reader.lose()
    await running.has("gone", 1, 0.0)


@pytest.mark.trio
async def test_garbage_ends_the_session_as_well(running: Rig) -> None:
    reader = await program(running)
    await reader.open()
    await reader.stream.send_all(b"\xff\xff\xff\xff garbage")
    await running.has("gone", 1, 0.0)


@pytest.mark.trio
async def test_of_too_many_parked_sessions_the_oldest_ends(tmp_path: Path) -> None:
    async with rig(
        socket=tmp_path / "control.sock", clients=ClientConfig(resume=KEPT, parked=2)
    ) as one:
        sessions = []
        for count in range(1, 4):
            reader = await program(one)
            sessions.append(await reader.open())
            await reader.lose()
            await parked(one, min(count, 2))
        await one.has("gone", 1)
        late = await program(one)
        refused = await late.ask(ResumeSession(1, sessions[0], 0))
        assert isinstance(refused, Failed)
        await resumed(one, sessions[1], 0)
        await resumed(one, sessions[2], 0)


@pytest.mark.trio
async def test_parked_sessions_take_no_place_of_programs(tmp_path: Path) -> None:
    async with rig(
        socket=tmp_path / "control.sock", clients=ClientConfig(resume=KEPT, programs=1)
    ) as one:
        reader = await program(one)
        session = await reader.open()
        await reader.lose()
        await parked(one)
        back, _ = await resumed(one, session, 0)
        assert isinstance(await back.ask(Unsubscribe(10, "s0")), Done)


@pytest.mark.trio
async def test_a_connection_that_resumes_takes_the_session_from_one_that_still_seems_to_be_there(
    running: Rig,
) -> None:
    reader, writer = await program(running), await program(running)
    session = await reader.open()
    await publish(writer, 1, 3)
    back, _ = await resumed(running, session, 1)
    with trio.fail_after(PATIENCE):
        while await reader.stream.receive_some(1 << 16):
            pass  # to the end: its connection is closed
    await publish(writer, 4, 5)
    await back.read_all()
    assert back.numbers == [2, 3, 4, 5]
    assert len(running.control.clients) == 2
    assert not any(made[0] == "gone" for made in running.node.inputs)


@pytest.mark.trio
async def test_replies_of_the_connection_before_do_not_reach_the_next(running: Rig) -> None:
    reader, writer = await program(running), await program(running)
    session = await reader.open()
    running.node.hold = True
    draft = Draft({"id": 1})
    await reader.stream.send_all(COMMAND_FRAMES.encode(Publish(7, (draft,))))
    with trio.fail_after(PATIENCE):
        while not running.node.held:
            await trio.sleep(0.005)
    await reader.lose()
    await parked(running)
    back, _ = await resumed(running, session, 0)
    running.driver.turn(running.node.release)
    await back.read_all()
    assert 7 not in back.replies, "whoever asked under 7 now asked for something else"
    assert back.numbers == [1]
    await publish(writer, 2, 2)


@pytest.mark.trio
async def test_only_the_first_command_of_a_connection_may_resume(running: Rig) -> None:
    reader = await program(running)
    session = await reader.open()
    other = await program(running)
    await other.ask(Subscribe(1, "a = 1"))
    for one in (reader, other):
        refused = await one.ask(ResumeSession(5, session, 0))
        assert isinstance(refused, Failed)
        assert refused.code == "usage"
    more = await program(running)
    refused = await more.ask(ResumeSession(5, session, 77))
    assert isinstance(refused, Failed)
    assert "77 items are more than the 0" in refused.reason


@pytest.mark.trio
async def test_sessions_may_be_turned_off(tmp_path: Path) -> None:
    clients = ClientConfig(resume=0.0)
    async with rig(socket=tmp_path / "control.sock", clients=clients) as one:
        reader = await program(one)
        await reader.ask(Subscribe(1, "a = 1"))
        assert await reader.ask(OpenSession(2)) == SessionOpened(2, "", 0.0)
        await reader.lose()
        await one.has("gone", 1, 0.0)


class TestReplayBuffer:
    def test_what_is_consumed_is_kept_no_longer(self) -> None:
        buffer = ReplayBuffer()
        buffer.add(b"aaaa", 2, end=4)
        buffer.add(b"bb", 3, end=6)
        buffer.add(b"n", 1, end=6, is_notice=True)
        buffer.add(b"cc", 1, end=8)
        assert (buffer.sent, buffer.size) == (7, 9)
        buffer.consumed(5)
        assert len(buffer) == 3
        buffer.consumed(6)
        assert [one.frame for one in buffer.take_after(5)[1]] == [b"n", b"cc"], (
            "a notice takes none"
        )

    def test_a_frame_of_which_a_part_was_received_is_sent_again_whole(self) -> None:
        buffer = ReplayBuffer()
        buffer.add(b"a", 10, end=1)
        buffer.add(b"b", 10, end=2)
        after, again = buffer.take_after(13)
        assert (after, [one.frame for one in again]) == (10, [b"b"])
        assert (buffer.sent, len(buffer)) == (10, 0), "it counts again from there"

    def test_a_program_that_has_all_gets_nothing_again(self) -> None:
        buffer = ReplayBuffer()
        buffer.add(b"a", 10, end=1)
        assert buffer.take_after(10) == (10, [])
        with pytest.raises(ValueError, match="11 items"):
            buffer.take_after(11)
