"""Small writes of shards that the node's own thread carries out."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from canopy.wire.shards import log_disk, shard_files
from harness.logs import SHARD
from streams.disk import Written
from tests.support.shards.disk_rig import Gate, Rig, piece_of, small_log


def test_a_small_write_of_an_idle_node_is_durable_and_answered_at_once(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, idle: float
) -> None:
    """In the node's own thread; what is not small, or comes while something is not answered, is
    the other thread's, and its answers come first."""
    one, log = rigs(tmp_path), small_log(chunks=12)
    one.opened()
    one.answer(one.disk.write(SHARD, *piece_of(log, 1)), Written)  # the segment is made
    written = os.pwritev
    durably: list[bool] = []

    def noted(file: int, data: Sequence[bytes], at: int, flags: int = 0) -> int:
        durably.append(bool(flags & shard_files.DURABLY))
        return written(file, data, at, flags)

    monkeypatch.setattr(os, "pwritev", noted)
    for number in (2, 3):
        tickets = [one.disk.write(SHARD, *piece_of(log, number))]
        assert one.disk.hand_over(idle) == [Written(SHARD, tickets[-1])]
    assert durably == [True, True]
    tickets.append(one.disk.write(SHARD, *piece_of(log, 4)))
    tickets.append(one.disk.put(SHARD, b"promise"))
    assert not one.disk.hand_over(idle)
    tickets.append(one.disk.write(SHARD, *piece_of(log, 5)))
    assert not one.disk.hand_over(idle)
    one.answer(tickets[-1], Written)
    gate = Gate(monkeypatch)
    tickets.append(one.disk.write(SHARD, *piece_of(log, 6)))
    one.disk.hand_over()
    gate.entered()
    tickets.append(one.disk.write(SHARD, *piece_of(log, 7)))
    assert not one.disk.hand_over(idle)
    gate.open()
    one.answer(tickets[-1], Written)
    one.disk.write(SHARD, *piece_of(log, 8))
    one.disk.hand_over()
    while one.disk._pace.is_given:
        threading.Event().wait(0.001)
    tickets.append(one.disk.write(SHARD, *piece_of(log, 9)))
    assert not one.disk.hand_over(idle), "an answer before it was not taken yet"
    one.answer(tickets[-1], Written)
    assert one.opened().found.log.end == log.chunks[8].id


def test_a_node_without_time_or_with_a_slow_disk_leaves_writes_to_the_thread(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(log_disk, "time", clock)
    monkeypatch.setattr(log_disk, "FIRST_TOOK", 0.001)
    one, log = rigs(tmp_path), small_log(chunks=9)
    one.opened()
    one.answer(one.disk.write(SHARD, *piece_of(log, 1)), Written)
    one.disk._pace.took, number = 0.001, 1

    def is_own(idle: float, passed: float, took: float = 0.0) -> bool:
        nonlocal now, number
        number += 1
        now += passed
        written = os.pwritev

        def slow(*arguments: Any) -> int:
            nonlocal now
            now += took
            return written(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", slow)
            ticket = one.disk.write(SHARD, *piece_of(log, number))
            own = bool(one.disk.hand_over(idle))
            if not own:
                one.answer(ticket, Written)
        return own

    assert not is_own(0.1, passed=0.005)
    assert is_own(0.5, passed=0.005)
    assert not is_own(0.5, passed=0.0001), "it has just waited for the disk"
    assert is_own(1.0, passed=0.1, took=0.5)
    assert not is_own(1.0, passed=60.0), "the disk may be slow again"
    one.disk._pace.took = 0.0001
    assert is_own(1.0, passed=1.0)
