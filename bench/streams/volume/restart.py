"""How long a node with much of a stream takes to start again.

    python -m bench.streams.volume.restart                   # 0.1, 1 and 10 GB: 11 GB on the disk
    python -m bench.streams.volume.restart --gigabytes 0.1 0.5 --json

One node has the only replica of a stream of one shard. It appends a row, is killed, and rows of a
KiB are added to its log by the log's own code, in chunks of 256 KiB, until there are so many
gigabytes; the system is told to keep none of it in memory. Then the node is started. Seconds from
the begin of its process: `answers_s` until it answers at all, of which the interpreter takes most;
`leads_s` until it leads the shard; `appends_s` until it has acknowledged one more row, whose offset
is checked: it follows on all rows that are there. Each is the median of `--trials`, between which
the node is killed. The first line is the same node with next to nothing in its log.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from canopy.client.blocking import ControlClient
from canopy.wire.shards.shard_files import ShardFiles
from harness.real_overlay import Overlay, status, wait_ready
from overlay.client import AppendEvents, Draft, EventsAppended, GetStreams, Streams
from overlay.stream_client import AddStream
from streams.log.batches import BatchHead, Row, encode_rows, join_batches
from streams.log.chunk import BEGINS, CHUNK_TARGET, COMPLETES, EVENTS, STATE, Chunk, pack
from streams.log.zones import encode_zones, zone_map

STREAM: Final = "bench"
PATIENCE: Final = 120.0
SYNC_BYTES: Final = 64 * 1024 * 1024
"""Written between two syncs."""


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


class Filler:
    """Adds to a shard's log as its leader does."""

    def __init__(self, folder: Path, shard: str) -> None:
        self.folder = folder
        self._files = ShardFiles(folder, shard)
        found = self._files.open().recovered
        assert not found.holes
        assert not found.torn
        self.log, self._state = found.log, found.state
        rows = [
            Row({"id": f"e{n}", "value": n / 7, "level": n % 7}, b"x" * 980) for n in range(250)
        ]
        encoded = encode_rows(rows)
        assert len(encoded) < CHUNK_TARGET
        self._count = len(rows)
        self._body = join_batches([BatchHead("", 0, 0, len(rows))], [encoded])
        self._zones = encode_zones(zone_map(rows))

    def fill(self, size: int) -> None:
        """Until the folder has so many bytes, durably."""
        written = sum(segment.size for segment in self.log.segments)
        synced = written
        while written < size:
            written += self._append()
            if written - synced > SYNC_BYTES:
                self._files.sync()
                synced = written
        self._files.sync()
        self._files.close()
        for path in self.folder.iterdir():
            file = os.open(path, os.O_RDONLY)
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)

    def _append(self) -> int:
        size, time_ = 0, max(time.time_ns(), self.log.time)
        if self.log.should_roll(len(self._body) + len(self._zones), time_):
            for place, piece in enumerate(self._state.pieces()):
                flags = (BEGINS if place == 0 else 0) | (COMPLETES if piece.completes else 0)
                size += self._add(STATE, piece.rows, 0, b"", time_, flags)
        return size + self._add(EVENTS, self._body, self._count, self._zones, time_, 0)

    def _add(
        self, kind: int, rows: bytes, offsets: int, zones: bytes, time_: int, flags: int
    ) -> int:
        log = self.log
        chunk: Chunk = pack(
            *(kind, log.epoch, log.end, log.next_offset, offsets, time_, rows),
            zones=zones,
            flags=flags,
            committed=log.end.number,
        )
        line = log.add(chunk)
        self._state.apply(chunk)
        self._files.write(line.segment, line.at, chunk.data)
        return len(chunk.data)


class Node:
    """One node, and what was measured of its starts."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.overlay = Overlay(folder, "trace: {enabled: false}")
        stack.callback(self.overlay.stop)
        client = self.overlay.start()
        wait_ready(client)
        self.address = status(client).address
        client.ask(AddStream(0, STREAM, replicas=1), Streams, PATIENCE)
        self.shard = self.append(client)[0]
        self.overlay.kill(0)

    def append(self, client: ControlClient) -> tuple[str, int]:
        """Append a row, as soon as it can be. Its shard, and its offset there."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            reply = client.request(AppendEvents(0, STREAM, (Draft({"n": 1}),)), PATIENCE)
            if isinstance(reply, EventsAppended):
                return f"{reply.stream}/0", reply.receipts[0].first
            time.sleep(0.01)
        raise AssertionError("nothing could be appended")

    def start(self) -> tuple[float, float, float, int]:
        """Start it, and kill it. Seconds until it answers, leads, and has appended a row; the
        row's offset."""
        began = time.monotonic()
        self.overlay.start_again(0, self.address)
        client = self.overlay.client_again(0)
        answers = time.monotonic() - began
        end = began + PATIENCE
        while all(
            each.here is None or each.here.state != "leads" for each in status(client).shards
        ):
            assert time.monotonic() < end, self.overlay.log(0)
            time.sleep(0.01)
        leads = time.monotonic() - began
        offset = self.append(client)[1]
        appends = time.monotonic() - began
        there = client.ask(GetStreams(0, STREAM), Streams, PATIENCE).streams[0]
        assert len(there.shards) == 1
        self.overlay.kill(0)
        return answers, leads, appends, offset


def measure(sizes: Sequence[float], trials: int) -> list[dict[str, Any]]:
    """All sizes, one after the other."""
    found = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-bench-")))
        node = Node(folder, stack)
        for gigabytes in (0.0, *sorted(sizes)):
            say(f"{gigabytes:g} GB")
            filler = Filler(folder / "0" / "streams" / node.shard, node.shard)
            filler.fill(round(gigabytes * 1e9))
            starts, expected = [], filler.log.next_offset
            for _ in range(trials):
                starts.append(node.start())
                assert starts[-1][3] == expected, "the row follows on all that are there"
                expected += 1
            found.append(
                {
                    "gigabytes": gigabytes,
                    "rows": expected,
                    "segments": len(filler.log.segments),
                    "trials": trials,
                    "answers_s": _median(starts, 0),
                    "leads_s": _median(starts, 1),
                    "appends_s": _median(starts, 2),
                    "worst_s": round(max(start[2] for start in starts), 2),
                }
            )
    return found


def _median(starts: Sequence[tuple[float, float, float, int]], place: int) -> float:
    return round(statistics.median(start[place] for start in starts), 2)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.streams.volume.restart` and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.streams.volume.restart",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--gigabytes", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--trials", type=int, default=5, help="starts of each size (5)")
    options = parser.parse_args(args)
    found = measure(options.gigabytes, options.trials)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for row in found:
            print(", ".join(f"{key}: {value}" for key, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
