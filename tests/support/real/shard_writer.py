"""A process that appends to a shard without end, for tests that kill it: prints the number of each
chunk whose write was answered."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from canopy.wire.log import Log
from canopy.wire.shards.log_disk import FileLogDisk
from harness.logs import SHARD, LogWriter, batch
from streams.disk import Written


def main() -> None:
    """Append chunks of the log that `LogWriter` makes, some at a time, a new segment now and
    then."""
    disk, answered = FileLogDisk(Path(sys.argv[1]), "a" * 16, Log()), threading.Event()
    disk.on_answers(answered.set)
    disk.open(SHARD)
    disk.put(SHARD, b"promise")
    log, sent, asked = LogWriter(), 0, dict[int, int]()
    while True:
        if len(asked) < 8:
            if len(log.chunks) % 50 == 0:
                log.begin_segment()
            log.events(batch("p", 1, len(log.chunks), 3, 500))
        for chunk in log.chunks[sent:]:
            line = log.log.line(chunk.number)
            assert line is not None
            asked[disk.write(SHARD, line.segment, line.at, chunk.data)] = chunk.number
            sent = chunk.number
        disk.hand_over()
        if len(asked) >= 8:
            answered.wait()
            answered.clear()
        for event in disk.take():
            if isinstance(event, Written) and event.ticket in asked:
                print(asked.pop(event.ticket), flush=True)


if __name__ == "__main__":
    main()
