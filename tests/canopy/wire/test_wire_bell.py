"""A bell wakes the task that listens, from any thread (canopy/wire/driver.py)."""

from __future__ import annotations

import os
import threading

import pytest
import trio

from canopy.wire.driver import Bell

pytestmark = pytest.mark.trio


async def test_a_thread_wakes_the_task_that_listens() -> None:
    bell = Bell()
    with trio.fail_after(20):
        threading.Timer(0.01, bell.ring).start()
        await bell.heard()
    bell.close()


async def test_what_was_rung_before_is_heard_once() -> None:
    bell = Bell()
    for _ in range(100_000):  # more than a pipe has room for
        bell.ring()
    with trio.fail_after(20):
        await bell.heard()
        while not await _is_silent(bell):
            pass
    bell.ring()
    assert not await _is_silent(bell)
    bell.close()


async def _is_silent(bell: Bell) -> bool:
    with trio.move_on_after(0.01) as waiting:
        await bell.heard()
    return waiting.cancelled_caught


async def test_a_closed_bell_writes_into_no_file_that_was_opened_since() -> None:
    bell = Bell()
    bell.close()
    ends = [os.pipe() for _ in range(4)]
    for _, rope in ends:
        os.set_blocking(rope, False)
    bell.ring()
    for end, rope in ends:
        os.set_blocking(end, False)
        with pytest.raises(BlockingIOError):
            os.read(end, 1)
        os.close(end)
        os.close(rope)
