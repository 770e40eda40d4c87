"""Prepares the parts of matching that take long to load while the node runs: the parser, and the
compiled engine.

Building the parser takes 0.1 s, too long for a turn of the node (measured): a thread does it before
a program subscribes.

Compiling the engine, once per machine and version, takes seconds, holds up this process's other
threads and leaves 200 MB allocated. So another process compiles and keeps the result on disk
(docs/design/matching.md), and a thread of this one loads it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Final

import trio

import matching
from canopy.wire.constants import WARM_CHECK
from canopy.wire.log import Log

COMPILE: Final = "import matching; matching.warm()"  # the program of the compiling process


async def prepare_matching(log: Log) -> None:
    """Build the parser; then wait until an index has become large, compile the engine if needed,
    and load it."""
    await trio.to_thread.run_sync(matching.prepare_parser, abandon_on_cancel=True)
    while not matching.warm_wanted():
        await trio.sleep(WARM_CHECK)
    begun = trio.current_time()
    if await trio.to_thread.run_sync(matching.warm_is_slow):
        await compile_apart()
    await trio.to_thread.run_sync(matching.warm, abandon_on_cancel=True)
    log.info("matching_warm", seconds=round(trio.current_time() - begun, 1))


async def compile_apart() -> None:
    """Fill the cache of compiled kernels from another process. If that fails, `matching.warm`
    compiles them in this one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with contextlib.suppress(OSError):
        await trio.run_process(
            [sys.executable, "-c", COMPILE],
            env=environment,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
