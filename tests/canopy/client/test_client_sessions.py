"""The three faces at a node that keeps their sessions (M5): a lost connection loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import canopy
import canopy.aio
import canopy.trio
from canopy.client.async_link import AsyncLink
from canopy.client.resubscription import KeptSelector, Resubscription
from canopy.client.session import ControlSession, SessionPosition
from canopy.wire.transport.framing import REPLY_FRAMES
from overlay.client import (
    Delivered,
    Delivery,
    Draft,
    Event,
    Failed,
    Publish,
    SessionOpened,
    SessionResumed,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from overlay.info import SubscriptionInfo
from tests.support.real.wire_rig import PATIENCE, Rig, rig

MANY = 40  # events

Found = list[int | canopy.Gap]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(socket=tmp_path / "control.sock") as one:
        yield one


def cut(one: Rig) -> None:
    """Break the connections of all subscribers, as seen from the node."""
    for client in list(one.control._clients.values()):
        if client.session and client.parked_at is None:
            client.scope.cancel()


def publish(one: Rig, number: int) -> None:
    one.driver.turn(one.node.publish, 0, Publish(0, (Draft({"n": number}),)))


async def publish_and_cut(one: Rig, ready: threading.Event) -> None:
    """Publish `MANY` events one by one and break the connection at each fifth."""
    with trio.fail_after(PATIENCE):
        while not ready.is_set():
            await trio.sleep(0.005)
        for number in range(1, MANY + 1):
            publish(one, number)
            if number % 5 == 3:
                while one.control._parked:
                    await trio.sleep(0.005)
                cut(one)
            await trio.sleep(0.002)


def noted(found: Found, received: list[Any]) -> bool:
    """Take what a subscription has received; whether the last event is there."""
    for one in received:
        if isinstance(one, Delivery):
            found.append(one.event.sequence)
        elif isinstance(one, canopy.Gap):
            found.append(one)
    return bool(found) and found[-1] == MANY


def synchronous(data: Path, ready: threading.Event) -> Found:
    found: Found = []
    with canopy.connect(data) as client, client.subscribe("a = 1") as some:
        ready.set()
        while not noted(found, some.receive(PATIENCE)):
            pass
    return found


def asynchronous(
    connect: Callable[..., Any], run: Callable[[Callable[[], Awaitable[Found]]], Found]
) -> Callable[[Path, threading.Event], Found]:
    def face(data: Path, ready: threading.Event) -> Found:
        async def main() -> Found:
            found: Found = []
            async with connect(data) as client, client.subscribe("a = 1") as some:
                ready.set()
                while not noted(found, await some.receive(PATIENCE)):
                    pass
            return found

        return run(main)

    return face


FACES = {
    "synchronous": synchronous,
    "trio": asynchronous(canopy.trio.connect, trio.run),
    "asyncio": asynchronous(canopy.aio.connect, lambda main: asyncio.run(main())),  # type: ignore[arg-type]
}


@pytest.mark.trio
@pytest.mark.parametrize("face", FACES)
async def test_nothing_is_lost_and_nothing_comes_twice_when_connections_break(
    face: str, running: Rig, tmp_path: Path
) -> None:
    found: Found = []
    ready = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish_and_cut, running, ready)
        with trio.fail_after(3 * PATIENCE):
            found = await trio.to_thread.run_sync(
                FACES[face], tmp_path, ready, abandon_on_cancel=True
            )
    assert found == list(range(1, MANY + 1)), "in order, each once, and no gap"
    assert running.control.sessions_resumed >= MANY // 5 - 1
    assert running.node.subscriptions == {}, "unsubscribed at the end"
    with trio.fail_after(PATIENCE):
        while running.control.clients:
            await trio.sleep(0.005)  # closed, and not parked


@pytest.mark.trio
async def test_a_closed_program_leaves_no_session(running: Rig, tmp_path: Path) -> None:
    def close_without_unsubscribing() -> None:
        client = canopy.connect(tmp_path)
        client.subscribe("a = 1")
        client.close()

    with trio.fail_after(PATIENCE):
        await trio.to_thread.run_sync(close_without_unsubscribing)
        while running.control.clients:
            await trio.sleep(0.005)
    assert running.node.subscriptions == {}


@pytest.mark.trio
async def test_after_its_time_the_program_subscribes_again_and_hears_of_the_gap(
    running: Rig, tmp_path: Path
) -> None:
    ready, lost = threading.Event(), threading.Event()

    def follow() -> list[Any]:
        found: list[Any] = []
        with canopy.connect(tmp_path) as client, client.subscribe("a = 1") as some:
            ready.set()
            lost.wait(PATIENCE)
            while not (found and isinstance(found[-1], Delivery)):
                found += some.receive(PATIENCE)
        return found

    async def lose() -> None:
        with trio.fail_after(PATIENCE):
            while not ready.is_set():
                await trio.sleep(0.005)
            cut(running)
            while not running.control._parked:
                await trio.sleep(0.005)
            publish(running, 1)
            await running.advance(31.0)
            lost.set()
            while not any(not isinstance(one, str) for one in running.node.subscriptions.values()):
                await trio.sleep(0.005)
            publish(running, 2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lose)
        with trio.fail_after(3 * PATIENCE):
            found = await trio.to_thread.run_sync(follow, abandon_on_cancel=True)
    kinds = [type(one) for one in found]
    assert kinds == [canopy.Disconnected, canopy.Gap, Delivery]
    assert found[1].cause == "reconnected"
    assert found[2].event.attributes["n"] == 2


def killed(client: canopy.Client) -> None:
    """End a program's connections without a goodbye, as its end by a signal does."""
    links: list[Any] = [one._link for one in client._node.consumers.values()]  # type: ignore[attr-defined]
    for link in (client._node.link, *links):
        link.client._sock.close()


def first_life(data: Path, publish: Callable[[int], None]) -> str:
    """Take two of four events one by one, and die; the token behind them."""
    client = canopy.connect(data)
    some = client.subscribe("a = 1")
    for number in range(1, 5):
        publish(number)
    events = iter(some)
    assert [next(events).sequence for _ in range(2)] == [1, 2]
    token = some.token
    killed(client)
    return token


@pytest.mark.trio
async def test_a_program_that_is_started_again_goes_on_behind_its_token(
    running: Rig, tmp_path: Path
) -> None:
    def on_node(number: int) -> None:
        trio.from_thread.run_sync(publish, running, number)

    def second_life(token: str) -> list[int]:
        with canopy.connect(tmp_path) as client:
            some = client.subscribe("a = 1", resume=token)
            on_node(6)
            found: list[int] = []
            while found[-1:] != [6]:
                found += [one.event.sequence for one in some.receive(PATIENCE)]  # type: ignore[union-attr]
            assert some.id == "s0"
            assert not some.gaps
            some.unsubscribe()
        return found

    with trio.fail_after(3 * PATIENCE):
        token = await trio.to_thread.run_sync(first_life, tmp_path, on_node)
        while not running.control._parked:
            await trio.sleep(0.005)
        publish(running, 5)
        assert await trio.to_thread.run_sync(second_life, token) == [3, 4, 5, 6]
    assert running.node.subscriptions == {}


@pytest.mark.trio
async def test_the_asynchronous_faces_go_on_behind_a_token_too(
    running: Rig, tmp_path: Path
) -> None:
    with trio.fail_after(PATIENCE):
        client = await canopy.trio.connect(tmp_path)
        some = await client.subscribe("a = 1")
        for number in range(1, 4):
            publish(running, number)
        events = aiter(some)
        assert (await anext(events)).sequence == 1
        token = some.token
        for link in (client._node.link, some._link):
            assert isinstance(link, AsyncLink)
            link._stream.close()
        while not running.control._parked:
            await trio.sleep(0.005)
        async with (
            canopy.trio.connect(tmp_path) as again,
            again.subscribe("a = 1", resume=token) as more,
        ):
            events = aiter(more)
            assert [(await anext(events)).sequence for _ in range(2)] == [2, 3]
            assert not more.gaps
    assert running.node.subscriptions == {}


@pytest.mark.trio
async def test_a_program_that_comes_too_late_hears_of_the_gap_first(
    running: Rig, tmp_path: Path
) -> None:
    def late(token: str) -> list[Any]:
        with canopy.connect(tmp_path) as client, client.subscribe("a = 1", resume=token) as some:
            return some.receive(PATIENCE)

    def on_node(number: int) -> None:
        trio.from_thread.run_sync(publish, running, number)

    with trio.fail_after(3 * PATIENCE):
        token = await trio.to_thread.run_sync(first_life, tmp_path, on_node)
        while not running.control._parked:
            await trio.sleep(0.005)
        await running.advance(31.0)
        (gap,) = await trio.to_thread.run_sync(late, token)
    assert gap.cause == "reconnected"
    assert "the session has ended" in gap.reason


def test_a_text_that_is_no_token_is_refused() -> None:
    state = Resubscription(gathers=False)
    state.add(KeptSelector("a = 1"))
    for text in ("x", "a:b:c:d", "a:1:2"):
        with pytest.raises(ValueError, match="no token"):
            state.succeed(text)


class TestControlSession:
    def events(self, *numbers: int) -> bytes:
        made = tuple(Delivery("s", Event("p", 1, n, 0.0, {}), "", "", "", 0) for n in numbers)
        return REPLY_FRAMES.encode(Delivered(0, made))

    def session(self) -> ControlSession:
        made = ControlSession("here")
        made.receive(self.events(1) + REPLY_FRAMES.encode(SessionOpened(made.number(), "t", 30.0)))
        return made

    def test_deliveries_and_notices_are_numbered_from_the_opening_on(self) -> None:
        session = self.session()
        assert session.position == SessionPosition("t", 0, 1)
        notice = REPLY_FRAMES.encode(Failed(0, "leaving", "soon"))
        session.receive(self.events(2, 3) + notice + self.events(4))
        assert session.position == SessionPosition("t", 4, 1)

    def test_what_it_has_of_a_frame_that_is_sent_again_is_cut_off(self) -> None:
        session = ControlSession("here")
        session.go_on(SessionPosition("t", 12, 7))
        number = session.number()
        assert number == 8, "no number is used twice in a session"
        session.receive(REPLY_FRAMES.encode(SessionResumed(number, (), after=10)))
        session.receive(self.events(11, 12, 13) + self.events(14))
        found = [one.event.sequence for one in session.take()]
        assert found == [13, 14]
        assert session.position == SessionPosition("t", 14, 8)


class TestResubscription:
    def test_the_subscriptions_of_a_resumed_session_are_those_that_are_wanted(self) -> None:
        state = Resubscription(gathers=True)
        state.add(KeptSelector("a = 1"), "s1")
        state.add(KeptSelector("b = 1"), "s2")
        state.left_at(SessionPosition("t", 5))
        state.lost(canopy.UnreachableError("gone"), 1.0, 100.0)
        infos = [SubscriptionInfo(id_, "", "", True, 0, ()) for id_ in ("s1", "s3")]
        gap, commands = state.resumed(SessionResumed(0, tuple(infos), after=5), 101.0)
        assert gap is None
        assert commands == [Unsubscribe(0, "s3")], "asked for, and the answer was lost"
        assert list(state.ids) == ["s1", "s2"], "another program has ended s2: a notice says so"
        assert state.position is None

    def test_what_the_node_no_longer_has_is_a_gap(self) -> None:
        state = Resubscription(gathers=False)
        state.add(KeptSelector("a = 1"))
        state.opened([Subscribed(0, "s1")], 50.0)
        state.left_at(SessionPosition("t", 5), 93.0)
        state.lost(canopy.UnreachableError("gone"), 1.0, 100.0)
        gap, _ = state.resumed(SessionResumed(0, (), after=8), 101.0)
        assert gap is not None
        assert (gap.cause, gap.count, gap.since, gap.until) == ("reconnected", 3, 93.0, 101.0)

    def test_where_a_successor_s_gap_begins_is_not_known(self) -> None:
        state = Resubscription(gathers=False)
        state.add(KeptSelector("a = 1"))
        state.succeed("t:5:0:s1")
        gap, _ = state.resumed(SessionResumed(0, (), after=8), 101.0)
        assert gap is not None
        assert (gap.count, gap.since, gap.until) == (3, 0.0, 101.0)

    def test_a_session_that_has_ended_is_made_again(self) -> None:
        state = Resubscription(gathers=False)
        state.add(KeptSelector("a = 1"), "s1")
        state.left_at(SessionPosition("t", 5))
        state.session_ended()
        assert state.position is None
        assert state.opening() == [Subscribe(0, "a = 1", marks=True)]

    def test_who_does_not_look_for_a_lost_node_wants_no_session(self) -> None:
        assert not Resubscription(gathers=False, patience=0.0).wants_session
        assert Resubscription(gathers=False).wants_session
