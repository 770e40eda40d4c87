"""A node whose wall clock is set forward and back while it runs.

    python -m bench.processes.set_clock FILE --listen 127.0.0.1:0 --data DATA

FILE has the nanoseconds by which the clock is ahead (`set_ahead`); all further arguments are those
of `canopy node`. Shifted is what Python's `time` says, before any module of a node is read; the
monotonic clocks are not. So nothing is asked of the system, whose own clock everybody else uses.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Final

AHEAD: Final = struct.Struct("<q")


def set_ahead(path: Path, seconds: float) -> None:
    """Let the wall clock of the node with this file be ahead by so many seconds."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.write(AHEAD.pack(round(seconds * 1e9)))


def shift(path: Path) -> None:
    """Let `time.time` and `time.time_ns` follow this file."""
    with path.open("rb") as file:
        ahead = mmap.mmap(file.fileno(), AHEAD.size, access=mmap.ACCESS_READ)
    real = time.time_ns

    def time_ns() -> int:
        return int(real() + AHEAD.unpack_from(ahead)[0])

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


def main() -> None:
    shift(Path(sys.argv[1]))
    sys.argv[:2] = ["canopy node"]
    from canopy.cli.process.node import main as run

    run()


if __name__ == "__main__":
    main()
