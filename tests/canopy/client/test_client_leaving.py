"""What the faces do at a node that is leaving: nothing is lost in silence, nothing sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import trio

import canopy
import canopy.aio
import canopy.trio
from canopy.client.publication import BATCH
from overlay.client import (
    Command,
    Failed,
    Publish,
    Published,
    Reply,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from tests.support.real.fake_control import FakeControl

PublishMany = Callable[..., canopy.PublishResult]


def with_client(
    data: Path, events: Iterable[dict[str, Any]], **options: Any
) -> canopy.PublishResult:
    with canopy.connect(data, **options) as client:
        return client.publish_many(events)


def with_trio(data: Path, events: Iterable[dict[str, Any]], **options: Any) -> canopy.PublishResult:
    async def main() -> canopy.PublishResult:
        async with canopy.trio.connect(data, **options) as client:
            return await client.publish_many(events)

    return trio.run(main)


def with_asyncio(
    data: Path, events: Iterable[dict[str, Any]], **options: Any
) -> canopy.PublishResult:
    async def main() -> canopy.PublishResult:
        async with canopy.aio.connect(data, **options) as client:
            return await client.publish_many(events)

    return asyncio.run(main())


faces = pytest.mark.parametrize("publish", [with_client, with_trio, with_asyncio])


class LeavingNode:
    """Takes `taken` publications, refuses the next `refused` and takes all others."""

    def __init__(self, taken: int, refused: int) -> None:
        self.taken = taken
        self.refused = refused
        self.numbers: list[object] = []

    def answer(self, command: Command) -> Iterable[Reply]:
        if isinstance(command, Subscribe):
            notice = Failed(0, "leaving", "the node is leaving")
            return [Subscribed(command.request, "s"), notice]
        if isinstance(command, Unsubscribe):
            return [Failed(command.request, "unknown", "it has ended")]
        assert isinstance(command, Publish)
        if not self.taken and self.refused:
            self.refused -= 1
            return [Failed(command.request, "leaving", "the node is leaving")]
        self.taken -= self.taken > 0
        first = len(self.numbers) + 1
        self.numbers += [draft.attributes["n"] for draft in command.events]
        return [Published(command.request, len(command.events), "p", 1, first)]


@faces
def test_what_a_leaving_node_refused_is_sent_again_once(
    tmp_path: Path, publish: PublishMany
) -> None:
    node = LeavingNode(taken=1, refused=3)
    with FakeControl(tmp_path, node.answer):
        result = publish(tmp_path, ({"n": n} for n in range(4 * BATCH)))
    assert result.count == 4 * BATCH
    assert sorted(node.numbers, key=str) == sorted(range(4 * BATCH), key=str)


@faces
def test_the_error_says_which_events_are_published(tmp_path: Path, publish: PublishMany) -> None:
    node = LeavingNode(taken=2, refused=1_000)
    with (
        FakeControl(tmp_path, node.answer),
        pytest.raises(canopy.NodeLeavingError, match="the node is leaving") as failed,
    ):
        publish(tmp_path, ({"n": n} for n in range(9 * BATCH)), reconnect=0)
    assert failed.value.answered == 2 * BATCH == len(node.numbers)
    assert failed.value.in_doubt <= BATCH, "the one that was sent behind the refused one"
    assert f"the first {2 * BATCH} events are published" in failed.value.__notes__[0]


def test_a_subscription_learns_at_once_that_its_node_is_leaving(tmp_path: Path) -> None:
    node = LeavingNode(taken=0, refused=0)
    with (
        FakeControl(tmp_path, node.answer),
        canopy.connect(tmp_path) as client,
        client.subscribe("n > 1") as some,
    ):
        assert some.receive() == [canopy.Disconnected("the node is leaving")]
