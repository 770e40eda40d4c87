"""The three faces of the client library against one real node, which is killed and comes back."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import trio

import canopy
import canopy.aio
import canopy.trio
from canopy.client.client import AsyncClient
from canopy.client.consumer import AsyncSubscription
from canopy.wire.keys.seals import found_seals
from harness.real_overlay import PATIENCE, Overlay, wait_ready
from overlay.client import GetStatus, Status, Streams
from overlay.stream_client import AddStream

pytestmark = pytest.mark.process

RUN: dict[str, Callable[..., Any]] = {
    "trio": lambda main, *args: trio.run(main, *args, strict_exception_groups=True),
    "asyncio": lambda main, *args: asyncio.run(main(*args)),
}
CONNECT = {"trio": canopy.trio.connect, "asyncio": canopy.aio.connect}

both = pytest.mark.parametrize("kind", ["trio", "asyncio"])


UNFIT: list[Any] = [{"a": [1]}, {3: 3}, {"a": b"x"}, {"a": object()}, {"a": 2**70}]
REFUSING: list[Callable[[Any, Any], Any]] = [
    lambda client, event: client.publish(event),
    lambda client, event: client.append("kept", [event]),
    lambda client, event: client.transaction("kept", "p", "t").prepare([event]),
]
"""Ways in which a face takes events from a program."""


class Node:
    """A node that stays at its address and can be killed."""

    def __init__(self, folder: Path) -> None:
        self.overlay = Overlay(folder)
        wait_ready(self.overlay.start())
        self.data = folder / "0"

    def kill(self) -> None:
        self.overlay.kill(0)

    def delivered(self) -> int:
        """Deliveries that have left for programs since its start."""
        found = self.overlay.clients[0].ask(GetStatus(0), Status)
        return found.counters.get("delivered", 0)

    def await_delivered(self, count: int) -> None:
        until = time.monotonic() + PATIENCE
        while self.delivered() < count:
            assert time.monotonic() < until
            time.sleep(0.01)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It does not answer meanwhile."""
        self.overlay.processes[0].send_signal(signal.SIGSTOP)
        yield
        self.overlay.processes[0].send_signal(signal.SIGCONT)

    def start(self) -> None:
        self.overlay.restart(0)
        wait_ready(*self.overlay.clients)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("node"))
    yield made
    made.overlay.stop()


def answer_one(client: canopy.Client, asked: canopy.Subscription) -> None:
    event = next(iter(asked))
    client.answer(event, {"by": "thread"})


def numbers(events: list[canopy.Event]) -> list[object]:
    return [event.attributes["n"] for event in events]


def take(subscription: canopy.Subscription, count: int) -> list[canopy.Event | canopy.Gap]:
    """The next `count` events and gaps."""
    found = []
    for one in subscription.with_gaps():
        found.append(one)
        if len(found) == count:
            break
    return found


class TestSynchronous:
    def test_ten_lines(self, node: Node) -> None:
        with canopy.connect(node.data) as client, client.subscribe("n > 1") as some:
            assert client.publish({"n": 1}).count == 1
            result = client.publish({"n": 2, "id": "two"}, b"bytes", "text/plain", receipt=True)
            assert result.accepted
            (event,) = take(some, 1)
        assert isinstance(event, canopy.Event)
        assert event.identity == result.identities[0]
        assert event.attributes == {"n": 2, "id": "two", "type": "event"}
        assert (event.payload, event.payload_type) == (b"bytes", "text/plain")

    def test_many_events_and_their_result(self, node: Node) -> None:
        events: list[dict[str, Any]] = [{"n": n} for n in range(1_500)]
        events[700] = {"n": float("nan")}
        with canopy.connect(node.data) as client, client.subscribe("n >= 0") as all_:
            result = client.publish_many(events, receipt=True)
            assert result.count == 1_499
            ((place, reason),) = result.refused
            assert place == 700
            assert "n" in reason
            assert result.identities[700] == ""
            me = client.ask(GetStatus(0), Status).node
            assert result.hosts == tuple({} if n == 700 else {"n": me} for n in range(1_500))
            found = take(all_, 1_499)
            assert all_.gaps == all_.gaps.__class__()
        assert {e.identity for e in found if isinstance(e, canopy.Event)} == {
            identity for identity in result.identities if identity
        }

    def test_gathering_hands_each_event_out_once(self, node: Node) -> None:
        with canopy.connect(node.data) as client:
            with client.gather(["n > 1", "n > 2"]) as some:
                more = some.add("n = 0")
                client.publish_many({"n": n} for n in range(5))
                found = []
                for event in some:
                    found.append(event.attributes["n"])
                    if len(found) == 4:
                        break
                assert sorted(found) == [0, 2, 3, 4]
                some.remove(more)
                client.publish_many([{"n": 0}, {"n": 7}], receipt=True)
                assert [e.attributes["n"] for e in some.receive(PATIENCE)] == [7]
            status = client.ask(GetStatus(0), Status)
            assert status.subscriptions == 0

    def test_errors_say_what_is_wrong(self, node: Node, tmp_path: Path) -> None:
        with pytest.raises(canopy.UnreachableError, match="canopy node --data"):
            canopy.connect(tmp_path)
        with pytest.raises(canopy.AddressError, match="canopy access add NAME --address 1"):
            canopy.connect("1.2.3.4:4470")
        with canopy.connect(node.data) as client:
            with pytest.raises(canopy.SelectorRefusedError) as refused:
                client.subscribe("n > > 1")
            assert str(refused.value).splitlines()[-2:] == [
                "    ^",
                "write one of = <> < <= > >=, not >>",
            ]
            with pytest.raises(canopy.EventRefusedError, match="inf"):
                client.publish({"n": float("inf")})
            for event in UNFIT:
                for refuses in REFUSING:
                    with pytest.raises(canopy.EventRefusedError, match="attribute"):
                        refuses(client, event)
            with pytest.raises(canopy.CommandFailed, match="selector: "):
                client.subscribe(5)  # type: ignore[arg-type]
            with pytest.raises(canopy.EventRefusedError, match="event 600: attribute 'n'") as late:
                client.publish_many({"n": n if n != 600 else [n]} for n in range(700))
            assert late.value.answered + late.value.in_doubt == 512
            assert client.publish({"n": 1}).count == 1, "the connection is the same"
        with pytest.raises(canopy.UnreachableError, match="closed"):
            client.publish({"n": 1})

    def test_a_subscription_ends_when_another_thread_closes_it(self, node: Node) -> None:
        with canopy.connect(node.data) as client:
            some = client.subscribe("n > 1")
            seen: list[canopy.Event] = []
            reader = threading.Thread(target=lambda: seen.extend(some))
            reader.start()
            client.publish({"n": 2}, receipt=True)
            while not seen:
                pass
            client.close()
            reader.join(PATIENCE)
            assert not reader.is_alive()
        assert numbers(seen) == [2]
        assert some.receive(0.0) == []

    def test_a_slow_program_is_informed_of_its_gap(self, tmp_path: Path) -> None:
        overlay = Overlay(tmp_path, "clients: {queue: 20000}")
        wait_ready(overlay.start())
        try:
            with (
                canopy.connect(tmp_path / "0") as client,
                client.subscribe("n >= 0", credit=20_000) as slow,
            ):
                events = ({"n": n, "text": "x" * 100} for n in range(2_000))
                client.publish_many(events, receipt=True)
                came, gap = 0, None
                for one in slow.with_gaps():
                    if isinstance(one, canopy.Gap):
                        gap = one
                        break
                    came += 1
            assert gap is not None
            assert (gap.cause, gap.count) == ("overflow", 2_000 - came)
            assert "too slowly" in str(gap)
            assert list(slow.gaps) == [gap]
        finally:
            overlay.stop()

    def test_a_restarted_node_is_found_and_subscribed_to_again(self, node: Node) -> None:
        with (
            canopy.connect(node.data) as client,
            client.subscribe("n > 1") as some,
            client.gather(["n > 2"]) as gathered,
        ):
            before = node.delivered()
            client.publish({"n": 2}, receipt=True)
            node.await_delivered(before + 1)
            former = some.id
            node.kill()
            (event,) = some.receive(PATIENCE)
            assert isinstance(event, canopy.Delivery), "what came before is handed out"
            (gone,) = some.receive(PATIENCE)
            assert isinstance(gone, canopy.Disconnected)
            assert not some.is_live
            assert some.receive(0.05) == []
            node.start()
            (gap,) = some.receive(PATIENCE)
            assert isinstance(gap, canopy.Gap)
            assert gap.cause == "reconnected"
            assert 0 < gap.since < gap.until
            assert some.is_live
            (id_, start, _), (id_before, start_before, _) = some.id.split("."), former.split(".")
            assert id_ == id_before
            assert int(start) > int(start_before), "of the node's new start"
            assert [type(one) for one in gathered.receive(PATIENCE)] == [canopy.Disconnected]
            assert [type(one) for one in gathered.receive(PATIENCE)] == [canopy.Gap]
            client.publish({"n": 3}, receipt=True)
            assert numbers([d.event for d in some.receive(PATIENCE)]) == [3]
            assert [e.attributes["n"] for e in gathered.receive(PATIENCE)] == [3]

    def test_a_node_is_not_looked_for_longer_than_was_said(self, node: Node) -> None:
        impatient = canopy.connect(node.data, reconnect=0)
        patient = canopy.connect(node.data, reconnect=0.5)
        one, other = impatient.subscribe("n > 1"), patient.subscribe("n > 1")
        node.kill()
        try:
            with pytest.raises(canopy.UnreachableError):
                one.receive(PATIENCE)
            assert isinstance(other.receive(PATIENCE)[0], canopy.Disconnected)
            with pytest.raises(canopy.UnreachableError, match="gave up"):
                other.receive(PATIENCE)
            for client in (impatient, patient):
                with pytest.raises(canopy.UnreachableError):
                    client.publish({"n": 1})
        finally:
            node.start()
            impatient.close()
            patient.close()


async def next_event(subscription: AsyncSubscription) -> canopy.Event | canopy.Gap:
    async for one in subscription.with_gaps():
        return one
    raise AssertionError("it ended")


async def several(kind: str, *jobs: Callable[[], Awaitable[object]]) -> None:
    """Run the jobs at the same time."""
    if kind == "asyncio":
        await asyncio.gather(*(job() for job in jobs))
        return
    async with trio.open_nursery() as nursery:
        for job in jobs:
            nursery.start_soon(job)


@both
class TestAsynchronous:
    def test_ten_lines(self, kind: str, node: Node) -> None:
        async def main() -> None:
            async with CONNECT[kind](node.data) as client:
                async with client.subscribe("n > 1") as some:
                    result = await client.publish({"n": 2}, receipt=True)
                    async for event in some:
                        assert event.identity == result.identities[0]
                        break
                status = await client.ask(GetStatus(0), Status)
                assert status.subscriptions == 0

        RUN[kind](main)

    def test_a_call_gets_the_answers_to_it_alone(self, kind: str, node: Node) -> None:
        """Two programs answer, one twice; nobody answers what matches no selector."""

        async def main() -> None:
            async with (
                CONNECT[kind](node.data) as client,
                client.subscribe("n > 0") as asked,
                client.subscribe("TRUE") as everything,
            ):
                with canopy.connect(node.data) as other, other.subscribe("n > 0") as also:
                    answering = threading.Thread(target=answer_one, args=(other, also))
                    answering.start()
                    calls = [partial(client.call, {"n": 21}, most=3, timeout=PATIENCE)]
                    calls.append(partial(client.call, {"n": -1}, timeout=0.3))
                    found: list[list[canopy.Event]] = []

                    async def ask() -> None:
                        found.extend([await call() for call in calls])

                    async def answer() -> None:
                        event = await next_event(asked)
                        await client.answer(event, {"by": "task", "n": 1})
                        await client.answer(event, {"by": "task", "n": 2})

                    await several(kind, ask, answer)
                    answering.join()
                by = sorted(str(event.attributes["by"]) for event in found[0])
                assert (by, found[1]) == (["task", "task", "thread"], [])
                with pytest.raises(ValueError, match="asks for no answer"):
                    await client.answer(found[0][0], {})
                assert isinstance(await next_event(everything), canopy.Event)

        RUN[kind](main)

    def test_many_tasks_share_a_client(self, kind: str, node: Node) -> None:
        async def main() -> None:
            client: AsyncClient = await CONNECT[kind](node.data)
            some = await client.subscribe("n >= 0")
            seen: list[object] = []

            async def publish(start: int) -> None:
                await client.publish_many({"n": start + n} for n in range(600))

            async def read() -> None:
                async for event in some:
                    seen.append(event.attributes["n"])
                    if len(seen) == 3_000:
                        return

            await several(kind, read, *(lambda s=s: publish(600 * s) for s in range(5)))
            assert sorted(seen) == list(range(3_000))
            client.close()
            assert await some.receive() == []

        RUN[kind](main)

    def test_gathering(self, kind: str, node: Node) -> None:
        async def main() -> None:
            async with CONNECT[kind](node.data) as client, client.gather(["n > 1"]) as some:
                more = await some.add("n > 2")
                await client.publish_many({"n": n} for n in range(5))
                found: list[object] = []
                async for event in some:
                    found.append(event.attributes["n"])
                    if len(found) == 3:
                        break
                assert found == [2, 3, 4]
                await some.remove(more)

        RUN[kind](main)

    def test_errors(self, kind: str, node: Node, tmp_path: Path) -> None:
        async def main() -> None:
            with pytest.raises(canopy.UnreachableError):
                await CONNECT[kind](tmp_path)
            with pytest.raises(canopy.AddressError, match="canopy access add"):
                await CONNECT[kind]("1.2.3.4:4470")
            async with CONNECT[kind](node.data) as client:
                with pytest.raises(canopy.SelectorRefusedError, match=r"\^"):
                    await client.subscribe("n > > 1")
                with pytest.raises(canopy.EventRefusedError, match="'n'"):
                    await client.publish({"n": float("nan")})
                for event in UNFIT:
                    for refuses in REFUSING:
                        with pytest.raises(canopy.EventRefusedError, match="attribute"):
                            await refuses(client, event)
                assert (await client.publish({"n": 1})).count == 1, "the connection is the same"
                with node.stopped(), pytest.raises(canopy.CommandTimeoutError):
                    await client.subscribe("n > 1", timeout=0.05)

        RUN[kind](main)

    def test_cancelling_a_wait_loses_nothing(self, kind: str, node: Node) -> None:
        async def main() -> None:
            async with CONNECT[kind](node.data) as client, client.subscribe("n >= 0") as some:
                found: list[object] = []
                for n in range(30):
                    await client.publish({"n": n})
                    for one in await some.receive(0.002 * (n % 3)):
                        found.append(one)
                while len(found) < 30:
                    found += await some.receive()
                assert [d.event.attributes["n"] for d in found] == list(range(30))  # type: ignore[attr-defined]

        RUN[kind](main)

    def test_more_than_the_credit_flows(self, kind: str, node: Node) -> None:
        async def main() -> None:
            async with (
                CONNECT[kind](node.data) as client,
                client.subscribe("n >= 0", credit=50_000) as some,
            ):
                seen = 0

                async def read() -> None:
                    nonlocal seen
                    async for event in some:
                        seen += 1
                        assert event.payload == bytes(2_000)
                        if seen == 500:
                            return

                async def publish() -> None:
                    for n in range(500):
                        await client.publish({"n": n}, bytes(2_000))

                await several(kind, read, publish)
                assert not some.gaps

        RUN[kind](main)

    def test_a_restarted_node_is_found_and_subscribed_to_again(self, kind: str, node: Node) -> None:
        async def main() -> None:
            async with CONNECT[kind](node.data) as client, client.subscribe("n > 1") as some:
                before = node.delivered()
                await client.publish({"n": 2}, receipt=True)
                node.await_delivered(before + 1)
                node.kill()
                event = await next_event(some)
                assert isinstance(event, canopy.Event)
                (gone,) = await some.receive()
                assert isinstance(gone, canopy.Disconnected)
                assert await some.receive(0.05) == []
                node.start()
                gap = await next_event(some)
                assert isinstance(gap, canopy.Gap)
                assert gap.cause == "reconnected"
                await client.publish({"n": 3}, receipt=True)
                event = await next_event(some)
                assert isinstance(event, canopy.Event)
                assert event.attributes["n"] == 3

        RUN[kind](main)


class TestSeals:
    """Payloads are sealed before they reach the node, and opened behind it, by every face."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        path = tmp_path / "acme.seal"
        found_seals(path)
        return path

    @both
    def test_payloads_of_one_face_are_opened_by_another(
        self, kind: str, node: Node, file: Path
    ) -> None:
        async def main() -> None:
            async with (
                CONNECT[kind](node.data, seal=file) as client,
                client.subscribe("n > 1") as some,
                client.gather(["n > 1"]) as gathered,
            ):
                with canopy.connect(node.data, seal=file) as other:
                    other.publish({"n": 2}, b"secret", "text/plain")
                found = await next_event(some)
                assert isinstance(found, canopy.Event)
                assert (found.payload, canopy.seal_of(found)) == (b"secret", "opened")
                (one,) = await gathered.receive()
                assert (one.payload, canopy.seal_of(one)) == (b"secret", "opened")
                with canopy.connect(node.data) as plain, plain.subscribe("n > 1") as marked:
                    await client.publish({"n": 3}, b"secret", "text/plain")
                    (bare,) = take(marked, 1)
                assert isinstance(bare, canopy.Event)
                assert bare.payload_type == "application/vnd.canopy.sealed"
                assert b"secret" not in bare.payload
                assert canopy.seal_of(bare) is None

        RUN[kind](main)

    def test_rows_of_streams_are_kept_sealed(self, node: Node, file: Path) -> None:
        with canopy.connect(node.data, seal=file) as client, canopy.connect(node.data) as plain:
            client.ask(AddStream(0, "sealed", replicas=1), Streams, PATIENCE)
            draft = canopy.Draft({"id": "1", "n": 1}, b"secret", "text/plain")
            client.append("sealed", [draft])
            client.producer("sealed", "p").append([draft])
            with client.transaction("sealed", "p") as transaction:
                transaction.prepare([draft])
                transaction.commit()
            for reader, payload in ((client, b"secret"), (plain, None)):
                with reader.read("sealed", start="first") as reading:
                    rows = [row for _, row in zip(range(3), reading, strict=False)]
                assert [row.payload == payload for row in rows] == [reader is client] * 3
                assert not any(b"secret" in row.payload for row in rows if payload is None)
            with client.group("sealed", "g", start="first", name="m") as member:
                (taken, *_) = member.take(PATIENCE)
                assert (taken.payload, canopy.seal_of(taken)) == (b"secret", "opened")
        assert not [path for path in node.data.rglob("*") if path.is_file()
                    and b"secret" in path.read_bytes()]  # fmt: skip


def test_importing_the_library_loads_nothing_heavy() -> None:
    heavy = "('trio', 'asyncio', 'lark', 'msgspec', 'numpy', 'overlay', 'matching')"
    code = f"import sys, canopy; print([m for m in {heavy} if m in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=60)
    assert ended.stdout.strip() == b"[]"
    code = code.replace("; print", "; canopy.connect; print").replace("'lark', 'msgspec', ", "")
    code = code.replace(", 'overlay', 'matching'", "")
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=60)
    assert ended.stdout.strip() == b"[]"


def test_public_names_are_there() -> None:
    for name in canopy.__all__:
        assert getattr(canopy, name).__name__ == name
    assert canopy.__version__ == version("canopy-overlay")
    with pytest.raises(AttributeError, match="nothing"):
        canopy.nothing  # noqa: B018
