"""The control socket and its client: answers, deliveries, back-pressure, bounds, bad input."""

from __future__ import annotations

import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from canopy.client.blocking import ControlClient
from canopy.client.errors import (
    CommandFailed,
    CommandTimeoutError,
    ControlError,
    EventRefusedError,
    UnreachableError,
)
from canopy.wire.constants import REGISTERED_TOGETHER, TURNS_TOGETHER
from canopy.wire.control import client_connection as control_client
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from matching import compile_in_steps
from overlay.client import (
    Command,
    Delivered,
    Done,
    Draft,
    Failed,
    GetPeers,
    GetStatus,
    Publish,
    Published,
    Reply,
    Status,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from tests.support.real.wire_rig import PATIENCE, Rig, rig

pytestmark = pytest.mark.trio
T = TypeVar("T")


async def outside(work: Callable[[], T]) -> T:
    """Run the blocking client in a thread, as a program would in its own process."""
    with trio.fail_after(PATIENCE):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


def drafts(count: int, size: int = 0) -> tuple[Draft, ...]:
    return tuple(Draft({"id": str(n), "type": "event"}, b"x" * size) for n in range(count))


async def raw(one: Rig) -> trio.SocketStream:
    stream = await trio.open_unix_socket(one.path)
    one.streams.append(stream)
    return stream


async def replies(stream: trio.SocketStream, count: int) -> list[Reply]:
    """The next `count` replies, or fewer if the node closes first."""
    reader, found = FrameReader(REPLY_FRAMES), []
    with trio.fail_after(PATIENCE):
        while len(found) < count:
            data = await stream.receive_some()
            if not data:
                break
            found += reader.feed(data)
    return found


def count_pauses(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """A list that grows with each checkpoint from now on."""
    pauses: list[None] = []
    pause = trio.lowlevel.checkpoint

    async def counted() -> None:
        pauses.append(None)
        await pause()

    monkeypatch.setattr(trio.lowlevel, "checkpoint", counted)
    return pauses


def note_turns(one: Rig) -> list[list[str]]:
    """A list that grows with the kinds of the commands of each turn."""
    turns: list[list[str]] = []
    carry_out = one.node.commands

    def noted(client: int, commands: Sequence[Command]) -> None:
        turns.append([type(command).__name__ for command in commands])
        carry_out(client, commands)

    one.node.commands = noted  # type: ignore[method-assign]
    return turns


async def test_the_socket_is_private(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        assert stat.S_IMODE(os.stat(one.path).st_mode) == 0o600


async def test_a_command_is_answered_and_a_refusal_raises(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock"):

        def work() -> None:
            with ControlClient.connect(tmp_path) as client:
                assert client.ask(GetStatus(0), Status).counters == {"data_messages": 7}
                assert isinstance(client.request(Unsubscribe(0, "s")), Done)
                with pytest.raises(CommandFailed, match="knows no overlay") as failed:
                    client.request(GetPeers(0))
                assert failed.value.code == "usage"
                with pytest.raises(ControlError, match="answered Status, not Done"):
                    client.ask(GetStatus(0), Done)

        await outside(work)


async def test_deliveries_come_to_who_subscribed_with_time_and_latency(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock"):

        def work() -> None:
            with ControlClient.connect(tmp_path) as reader, ControlClient.connect(
                tmp_path
            ) as writer:  # fmt: skip
                name = reader.ask(Subscribe(0, "a = 1"), Subscribed).subscription
                old = Draft({"id": "old"}, b"\x00\xff", "x", time=999.5)
                answer = writer.ask(Publish(0, (*drafts(2), old)), Published)
                found = []
                while len(found) < 3:
                    found += reader.deliveries(PATIENCE)
                assert [one.event.identity for one in found] == list(answer.identities)
                assert [one.subscription for one in found] == [name] * 3
                assert [one.event.time for one in found] == [1_000.0, 1_000.0, 999.5]
                assert [one.latency_ms for one in found] == [0.0, 0.0, 500.0]
                assert found[2].event.payload == b"\x00\xff"
                assert writer.deliveries(0) == []

        await outside(work)


async def test_deliveries_of_one_turn_come_in_one_frame(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        stream = await raw(one)
        await stream.send_all(COMMAND_FRAMES.encode(Subscribe(1, "a = 1")))
        assert await replies(stream, 1) == [Subscribed(1, "s0")]
        await stream.send_all(COMMAND_FRAMES.encode(Publish(2, drafts(300))))
        published, delivered = await replies(stream, 2)
        assert isinstance(published, Published)
        assert isinstance(delivered, Delivered)
        assert len(delivered.deliveries) == 300


async def test_large_deliveries_are_cut_into_frames_below_the_limit(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        one.node.subscriptions["s"] = 1
        stream = await raw(one)
        await stream.send_all(COMMAND_FRAMES.encode(Publish(1, drafts(9, 100_000))))
        reader, sizes = FrameReader(REPLY_FRAMES), []
        with trio.fail_after(PATIENCE):
            while sum(sizes) < 9:
                for reply in reader.feed(await stream.receive_some()):
                    if isinstance(reply, Delivered):
                        sizes.append(len(reply.deliveries))
        assert sizes == [3] * 3  # of 256 KiB


async def test_publications_that_are_read_together_are_one_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        turns = note_turns(one)
        monkeypatch.setattr(control_client, "CLIENT_EVENTS", 6)
        stream = await raw(one)
        asked = [Publish(1, drafts(2)), Publish(2, drafts(2)), GetStatus(3), Subscribe(4, "a = 1")]
        asked += [Publish(number, drafts(2)) for number in range(5, 10)]
        await stream.send_all(b"".join(map(COMMAND_FRAMES.encode, asked)))
        answers = await replies(stream, len(asked))
        assert [a.request for a in answers if a.request] == list(range(1, 10))
        assert turns == [
            ["Publish"] * 2, ["GetStatus"], ["Subscribe"], ["Publish"] * 3, ["Publish"] * 2,
        ], "not more than so many events without an answer"  # fmt: skip


async def test_a_program_that_asks_very_much_at_once_lets_others_be_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        pauses = count_pauses(monkeypatch)
        stream = await raw(one)
        asked = [GetStatus(number) for number in range(1, 10 * TURNS_TOGETHER + 2)]
        await stream.send_all(b"".join(map(COMMAND_FRAMES.encode, asked)))
        await replies(stream, len(asked))
        assert len(pauses) >= 10


async def test_a_long_selector_is_compiled_in_steps_between_which_others_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selector = " OR ".join(f"long{number} = 1" for number in range(900))
    steps_left: list[int] = []
    async with rig(socket=tmp_path / "control.sock") as one:
        carry_out = one.node.commands

        def noted(client: int, commands: Sequence[Command]) -> None:
            steps_left.append(sum(1 for _ in compile_in_steps(selector)))
            carry_out(client, commands)

        monkeypatch.setattr(one.node, "commands", noted)
        pauses = count_pauses(monkeypatch)
        stream = await raw(one)
        await stream.send_all(COMMAND_FRAMES.encode(Subscribe(1, selector)))
        assert isinstance((await replies(stream, 1))[0], Subscribed)
        assert steps_left == [0], "the node finds it compiled"
        assert len(pauses) >= 10


async def test_a_long_selector_that_does_not_compile_is_left_to_the_node(tmp_path: Path) -> None:
    selector = " OR ".join(["wrong = 1"] * 200) + " OR"
    async with rig(socket=tmp_path / "control.sock") as one:
        stream = await raw(one)
        await stream.send_all(COMMAND_FRAMES.encode(Subscribe(1, selector)))
        assert isinstance((await replies(stream, 1))[0], Subscribed), "a stand-in takes anything"


async def test_subscriptions_that_were_read_together_are_few_turns(tmp_path: Path) -> None:
    many = 2 * REGISTERED_TOGETHER
    async with rig(socket=tmp_path / "control.sock") as one:
        sizes: list[int] = []
        commands = one.node.commands

        def counted(client: int, together: Sequence[Command]) -> None:
            sizes.append(len(together))
            commands(client, together)

        one.node.commands = counted  # type: ignore[method-assign]
        stream = await raw(one)
        asked: list[Command] = [Subscribe(number, f"x > {number}") for number in range(1, many)]
        asked.insert(many // 2, GetStatus(many))
        await stream.send_all(b"".join(map(COMMAND_FRAMES.encode, asked)))
        answers = await replies(stream, many)
        assert sorted(answer.request for answer in answers) == list(range(1, many + 1))
        ids = [answer.subscription for answer in answers if isinstance(answer, Subscribed)]
        ends = [Unsubscribe(number, id_) for number, id_ in enumerate(ids, 1)]
        await stream.send_all(b"".join(map(COMMAND_FRAMES.encode, ends)))
        assert len(await replies(stream, len(ends))) == len(ends)
    assert max(sizes) <= REGISTERED_TOGETHER
    assert sum(sizes) == 2 * many - 1
    assert len(sizes) <= 9, "three parts of the first, and as many of the others as it was read in"


async def test_a_publisher_waits_while_the_node_is_full(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        one.node.hold = True
        stream = await raw(one)
        for number in range(1, 21):
            await stream.send_all(COMMAND_FRAMES.encode(Publish(number, drafts(1))))
        with trio.fail_after(PATIENCE):
            while len(one.node.held) < control_client.CLIENT_PUBLISHES:
                await trio.sleep(0.005)
        await trio.sleep(0.05)  # it must not read on
        assert len(one.node.held) == control_client.CLIENT_PUBLISHES
        other = await raw(one)  # and another client is not held up
        await other.send_all(COMMAND_FRAMES.encode(GetStatus(1)))
        assert isinstance((await replies(other, 1))[0], Status)
        one.driver.turn(one.node.release)
        answered = await replies(stream, 20)
        assert [reply.request for reply in answered] == list(range(1, 21))


BAD = {
    "garbage": b"GET / HTTP/1.1\r\n\r\n",
    "an oversized frame": struct.pack(">I", 9 << 20),
    "an unknown command": struct.pack(">I", 5) + b"\x92\xa3Foo",
    "a wrong type": struct.pack(">I", 14) + b"\x94\xa9Subscribe\x01\x02\xc0",
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_ends_that_client_only(tmp_path: Path, name: str) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        good, bad = await raw(one), await raw(one)
        await good.send_all(COMMAND_FRAMES.encode(Subscribe(1, "a = 1")))
        await replies(good, 1)
        await bad.send_all(COMMAND_FRAMES.encode(GetStatus(1)) + BAD[name])
        found = await replies(bad, 3)
        assert isinstance(found[0], Status)
        assert isinstance(found[1], Failed)
        assert len(found) == 2  # then it closed
        await good.send_all(COMMAND_FRAMES.encode(GetStatus(2)))
        assert isinstance((await replies(good, 1))[0], Status)


async def test_a_request_number_in_use_is_refused(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        one.node.hold = True
        stream = await raw(one)
        publish = COMMAND_FRAMES.encode(Publish(1, drafts(1)))
        await stream.send_all(publish + publish)
        (failed,) = await replies(stream, 1)
        assert isinstance(failed, Failed)
        assert "not answered yet" in failed.reason


async def test_the_subscriptions_of_a_client_that_goes_end(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:

        def work() -> None:
            with ControlClient.connect(tmp_path) as client:
                client.request(Subscribe(0, "a = 1"))

        await outside(work)
        await one.has("gone")
        assert one.node.subscriptions == {}


async def test_a_client_hears_when_the_node_goes(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        client = await outside(lambda: ControlClient.connect(tmp_path))
        await outside(lambda: client.request(GetStatus(0)))
        one.nursery.cancel_scope.cancel()
    for work in (lambda: client.deliveries(PATIENCE), lambda: client.request(GetStatus(0))):
        with pytest.raises(UnreachableError, match="has gone"):
            await outside(work)
    client.close()


async def test_no_answer_in_time_is_a_time_out_and_the_late_answer_is_ignored(
    tmp_path: Path,
) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        one.node.hold = True
        client = await outside(lambda: ControlClient.connect(tmp_path))

        def too_late() -> None:
            with pytest.raises(CommandTimeoutError, match=r"within 0\.05 s"):
                client.request(Publish(0, drafts(1)), timeout=0.05)

        await outside(too_late)
        one.driver.turn(one.node.release)
        assert isinstance(await outside(lambda: client.request(GetStatus(0))), Status)
        client.close()


async def test_many_requests_ahead_are_answered_in_order(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:

        def work() -> None:
            with ControlClient.connect(tmp_path) as client:
                wanted = [Subscribe(0, f"a = {number}") for number in range(200)]
                found = client.ask_many(wanted, Subscribed, PATIENCE, ahead=50)
                assert [answer.subscription for answer in found] == [f"s{n}" for n in range(200)]
                with pytest.raises(ControlError, match="answered Status, not Done"):
                    client.ask_many([GetStatus(0), GetStatus(0)], Done, ahead=2)
                assert client.ask(GetStatus(0), Status).counters == {"data_messages": 7}
                assert client._session._replies == {}, (
                    "none of those that were given up is waited for"
                )

        await outside(work)
        assert one.control._clients == {} or not next(iter(one.control._clients.values())).is_full


async def test_what_is_begun_together_is_sent_together(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock") as one:
        turns = note_turns(one)
        unfit = Draft({"a": object()})  # type: ignore[dict-item]

        def work() -> None:
            with ControlClient.connect(tmp_path) as client:
                numbers = client.begin_many([Publish(0, drafts(n)) for n in (1, 2, 3)])
                found = [client.finish(number, PATIENCE) for number in numbers]
                assert [len(r.identities) for r in found if isinstance(r, Published)] == [1, 2, 3]
                with pytest.raises(EventRefusedError, match="attribute '"):
                    client.begin_many([GetStatus(0), Publish(0, (unfit,))])
                assert client._session._replies == {}
                assert client.ask(GetStatus(0), Status).counters == {"data_messages": 7}

        await outside(work)
        assert turns == [["Publish"] * 3, ["GetStatus"]]


async def test_threads_share_one_client(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock"):

        def work() -> None:
            with ControlClient.connect(tmp_path) as client:
                client.request(Subscribe(0, "a = 1"))
                got: list[str] = []

                def read() -> None:
                    while len(got) < 400:
                        got.extend(one.event.identity for one in client.deliveries(PATIENCE))

                sent: list[str] = []

                def write() -> None:
                    for _ in range(10):
                        sent.extend(client.ask(Publish(0, drafts(20)), Published).identities)

                threads = [threading.Thread(target=job) for job in (read, write, write)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(PATIENCE)
                assert sorted(got) == sorted(sent)
                assert len(set(got)) == 400

        await outside(work)


async def test_closing_wakes_a_thread_that_waits(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock"):

        def work() -> None:
            client = ControlClient.connect(tmp_path)
            heard: list[BaseException] = []

            def wait() -> None:
                try:
                    client.deliveries(None)
                except UnreachableError as error:
                    heard.append(error)

            thread = threading.Thread(target=wait)
            thread.start()
            client.request(GetStatus(0))
            client.close()
            thread.join(PATIENCE)
            assert len(heard) == 1
            assert client.fileno() == -1

        await outside(work)


async def test_what_cannot_be_encoded_is_refused_here(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock"):

        def work() -> None:
            with ControlClient.connect(tmp_path) as client:
                for value in ("\ud800", 2**70):
                    with pytest.raises(EventRefusedError, match="attribute '"):
                        client.request(Publish(0, (Draft({"a": value}),)))
                with pytest.raises(CommandFailed, match="more than"):
                    client.request(Publish(0, drafts(9, 1_000_000)))
                assert isinstance(client.request(GetStatus(0)), Status)

        await outside(work)


async def test_a_missing_node_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="canopy node --data"):
        ControlClient.connect(tmp_path / "nowhere")
    with pytest.raises(UnreachableError, match="no node runs"):
        ControlClient.connect(tmp_path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "control.sock"))
    with pytest.raises(UnreachableError, match="does not run any more"):
        ControlClient.connect(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o600)
    with pytest.raises(ControlError, match="no access file"):
        ControlClient.connect(tmp_path / "file")
