"""The core of the client library and its faces, without a node."""

from __future__ import annotations

import asyncio
import inspect
import math
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import trio

import canopy
import canopy.aio
import canopy.trio
from canopy.client import client, consumer
from canopy.client.blocking import ControlClient
from canopy.client.errors import UnreachableError
from canopy.client.faces import run
from canopy.client.link import pipelined
from canopy.client.node import ClientNode
from canopy.client.resubscription import KeptSelector
from canopy.client.streams import membership, producer, reading, transaction
from overlay.client import GetStatus


class Requests:
    """Requests by number, of which those in `failing` raise when they are finished."""

    def __init__(self, *failing: int) -> None:
        self.failing = failing
        self.open: list[int] = []
        self.most = 0
        self.abandoned: list[int] = []

    async def begin(self, number: int) -> int:
        self.open.append(number)
        self.most = max(self.most, len(self.open))
        return number

    async def finish(self, number: int) -> str:
        self.open.remove(number)
        if number in self.failing:
            raise ValueError(number)
        return f"reply {number}"

    def run(self, count: int, ahead: int) -> list[str]:
        given = range(count), self.begin, self.finish, self.abandoned.append
        return run(pipelined(*given, ahead))


@pytest.mark.parametrize("ahead", [1, 3, 20])
def test_replies_come_in_order_and_only_so_many_requests_are_open(ahead: int) -> None:
    requests = Requests()
    assert requests.run(10, ahead) == [f"reply {number}" for number in range(10)]
    assert requests.most == min(ahead, 10)
    assert requests.abandoned == []


def test_an_error_abandons_what_was_begun() -> None:
    requests = Requests(4)
    with pytest.raises(ValueError, match="4"):
        requests.run(10, 3)
    assert requests.abandoned == requests.open == [5, 6]


def test_a_coroutine_that_suspends_is_no_part_of_the_blocking_face() -> None:
    with pytest.raises(RuntimeError, match="suspended"):
        run(asyncio.sleep(0.0))


def test_a_subscription_that_is_closed_while_its_node_is_away_opens_no_connection() -> None:
    async def connect(credit: int) -> Any:
        raise AssertionError("it was closed")

    async def main() -> list[Any]:
        node = ClientNode(canopy.aio._Runtime(), connect, math.inf)
        subscription = consumer.AsyncSubscription(node, [KeptSelector("x = 1")])
        asyncio.get_running_loop().call_soon(subscription.close)
        subscription._state._next_try = math.inf
        return await subscription.receive()

    assert asyncio.run(main()) == []


FACES = [
    (client.Client, client.AsyncClient),
    (consumer.Subscription, consumer.AsyncSubscription),
    (consumer.Gathering, consumer.AsyncGathering),
    (producer.Producer, producer.AsyncProducer),
    (reading.Reading, reading.AsyncReading),
    (membership.Member, membership.AsyncMember),
    (transaction.Transaction, transaction.AsyncTransaction),
    (transaction.Reviews, transaction.AsyncReviews),
]
ASYNC_ONLY = {"in_thread"}
"""What a program that blocks does by itself."""


@pytest.mark.parametrize("timeout", [math.inf, 1e12, 3e6])
def test_a_wait_may_be_longer_than_the_system_waits(timeout: float) -> None:
    """`poll` takes less than a month, and no infinity."""
    ours, theirs = socket.socketpair()
    with ControlClient(ours, "node") as client:
        number = client.begin(GetStatus(0), timeout)
        theirs.close()
        with pytest.raises(UnreachableError):
            client.finish(number, timeout)


def methods(face: type) -> dict[str, FunctionType]:
    """Its public methods by name, as `help` finds them."""
    return {
        name: value
        for name, value in inspect.getmembers(face)
        if not name.startswith("_") and not isinstance(value, property)
    }


@pytest.mark.parametrize(("blocking", "asynchronous"), FACES)
def test_faces_have_the_same_methods_with_the_same_signatures(
    blocking: type, asynchronous: type
) -> None:
    there, too = methods(blocking), methods(asynchronous)
    assert set(there) == set(too) - ASYNC_ONLY
    for name, method in there.items():
        assert isinstance(method, FunctionType), name
        assert not inspect.iscoroutinefunction(method), name
        mine, other = inspect.signature(method), inspect.signature(too[name])
        assert list(mine.parameters.values()) == list(other.parameters.values()), name
        assert method.__doc__, name
        assert method.__doc__ == too[name].__doc__, name
    assert inspect.signature(canopy.Client.read).return_annotation == "Reading"
    assert inspect.iscoroutinefunction(client.AsyncClient.publish)


def test_a_coroutine_is_the_same_object_in_the_asynchronous_face() -> None:
    """It costs no more than one that was written for it."""
    made: Coroutine[Any, Any, Any] = client.AsyncClient.publish(None, {})
    assert made.cr_code.co_name == "publish"
    made.close()


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[Path]:
    """The folder of a node that reads nothing of what is sent to it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "control.sock"))
        listening.listen()
        yield tmp_path


LARGE: Any = {"payload": bytes(4 << 20), "timeout": 0.05}


async def publish_large(connect: Any, folder: Path) -> None:
    async with connect(folder) as made:
        await made.publish({"n": 1}, **LARGE)


def in_thread(folder: Path) -> None:
    with canopy.connect(folder) as made:
        made.publish({"n": 1}, **LARGE)


FULL: dict[str, Callable[[Path], object]] = {
    "threads": in_thread,
    "trio": lambda folder: trio.run(publish_large, canopy.trio.connect, folder),
    "asyncio": lambda folder: asyncio.run(publish_large(canopy.aio.connect, folder)),
}


@pytest.mark.parametrize("kind", FULL)
def test_a_node_that_reads_nothing_does_not_hold_a_program_up(kind: str, deaf: Path) -> None:
    with pytest.raises(canopy.CommandTimeoutError, match="takes no commands"):
        FULL[kind](deaf)
