"""Programs name a node by one of the user's contexts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

import canopy
import canopy.aio
import canopy.trio
from canopy.client.contexts import contexts_path
from overlay.client import Command, Done, GetPeers, Reply
from tests.support.real.fake_control import FakeControl


def answer(command: Command) -> Iterator[Reply]:
    yield Done(command.request)


@pytest.fixture(autouse=True)
def _lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeControl]:
    """Contexts `lab`, where a node answers, and `off`, where none does."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with FakeControl(tmp_path / "n", answer) as fake:
        use("", lab=fake.data, off=tmp_path / "off")
        yield fake


def use(current: str, **folders: Path) -> None:
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = {"current": current, "folders": {name: str(where) for name, where in folders.items()}}
    path.write_text(json.dumps(text))


def ask(context: str) -> Reply:
    with canopy.connect(context=context) as client:
        return client.request(GetPeers(0))


def ask_by_trio(context: str) -> Reply:
    async def main() -> Reply:
        async with canopy.trio.connect(context=context) as client:
            return await client.request(GetPeers(0))

    return trio.run(main)


def ask_by_asyncio(context: str) -> Reply:
    async def main() -> Reply:
        async with canopy.aio.connect(context=context) as client:
            return await client.request(GetPeers(0))

    return asyncio.run(main())


@pytest.mark.parametrize("asks", [ask, ask_by_trio, ask_by_asyncio])
def test_a_context_names_the_node(asks: Callable[[str], Reply], tmp_path: Path) -> None:
    assert isinstance(asks("lab"), Done)
    with pytest.raises(canopy.UnreachableError, match="off"):
        asks("off")
    with pytest.raises(canopy.UnknownContextError, match="'labs'; there are: lab, off"):
        asks("labs")
    use("lab", lab=tmp_path / "n")
    assert isinstance(asks(""), Done), "the current one"


def test_without_a_current_one_it_is_the_default_folder(tmp_path: Path) -> None:
    with pytest.raises(canopy.UnreachableError, match=str(tmp_path / "data")):
        ask("")


def test_a_folder_and_a_context_are_not_both_given(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not both"):
        canopy.connect(tmp_path, context="lab")


def test_a_damaged_file_is_named() -> None:
    contexts_path().write_text("[]")
    with pytest.raises(canopy.ContextError, match=r"contexts\.json"):
        ask("lab")
