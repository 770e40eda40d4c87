"""Transactions with the asynchronous faces of the library, at a node that answers by a script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import canopy
from canopy.client.errors import CommandFailed
from tests.canopy.client.test_client_reading import CONNECT, RUN, both
from tests.support.real.scripted_stream import ScriptedStream


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[ScriptedStream]:
    with ScriptedStream(tmp_path / "node", []) as made:
        yield made


@both
def test_a_task_commits_what_it_says_and_the_rest_is_rolled_back(
    stream: ScriptedStream, kind: str
) -> None:
    async def main() -> list[str]:
        async with CONNECT[kind](stream.data) as client:
            async with client.transaction("s", "shop", "a") as one:
                await one.prepare([{"n": 1}])
                stream.hang_up()  # every request is repeated by the library
                assert (await one.commit()).outcome == "committed"
            async with client.transaction("s", "shop", "b") as other:
                await other.prepare([{"n": 2}])
            async with client.transaction("s", "shop", "never"):
                pass
            with pytest.raises(CommandFailed):
                await client.transaction("s", "shop", "never").commit()
            stream.reviews = ["c"]
            reviews = client.reviews("s", "shop")
            asked = await reviews.take(30)
            await reviews.not_known(asked[0])
            assert await reviews.take(0.01) == ()
            return list(asked)

    assert RUN[kind](main) == ["c"]
    assert stream.outcomes == {"a": "committed", "b": "rolled-back"}
    assert stream.unknown == ["c"]
    assert stream.shards[0] == [1]


def test_an_error_inside_is_not_hidden_by_a_node_that_is_away(stream: ScriptedStream) -> None:
    with canopy.connect(stream.data, reconnect=0) as client:
        away = pytest.raises(ZeroDivisionError)
        with away, client.transaction("s", "shop", "a") as one:
            one.prepare([{"n": 1}])
            stream.hang_up()
            raise ZeroDivisionError
    assert stream.halves == {"a": [1]}, "it stays, and is asked about"
