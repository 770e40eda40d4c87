"""The fast matching engine is compiled in a thread, and only once some index has become large."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

import matching
from wire.log import Log
from wire.process import NodeProcess


@pytest.mark.trio
async def test_it_is_compiled_beside_the_node_when_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    wanted: list[bool] = []
    threads: list[int] = []
    monkeypatch.setattr(matching, "warm_wanted", lambda: bool(wanted))
    monkeypatch.setattr(matching, "warm", lambda: threads.append(threading.get_ident()))
    out = io.StringIO()
    process = cast(Any, SimpleNamespace(log=Log("info", out)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(NodeProcess._warm_matching, process)
        await trio.sleep(60)
        assert threads == []
        wanted.append(True)
    assert threads
    assert threads != [threading.get_ident()]
    assert "matching_warm" in out.getvalue()
