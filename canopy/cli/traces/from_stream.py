"""Trace files from a stream that nodes send their records to (`trace.stream`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import click

from canopy.cli.bars import Bars
from canopy.cli.connect import open_client
from canopy.cli.errors import CommandError
from canopy.client.streams.reading import Reading
from overlay.client import StreamEvent
from overlay.wording import counted
from streams.log.names import TRACES

FILE: Final = re.compile(r"date=\d{4}-\d\d-\d\d/node=[\w%.~-]+/\d{6}-\d{4,}\.jsonl", re.ASCII)
"""Names of trace files below their folder; no path leads out of it."""

LOOK: Final = 0.5
"""Seconds between two looks at the bar where nothing comes."""


PATIENCE: Final = 30.0
"""Seconds for an answer, or for a node that comes back."""


def fetch(stream: str, folder: Path, connect: str | None = None, wait: float = 0.0) -> int:
    """Put the trace files together that are in a stream now, below `folder`. Returns how many these
    are. Raises CommandError, and ControlError."""
    files = _Files(folder)
    with (
        Bars(quiet=not sys.stderr.isatty()) as bars,
        open_client(connect, wait, reconnect=PATIENCE) as client,
        client.read(stream, start="first", timeout=PATIENCE) as reading,
    ):
        ends, begins = dict(reading.ends), dict(reading.positions)
        bars.begin("reading the stream", None)
        while any(reading.positions[shard] < end for shard, end in ends.items()):
            for event in reading.take(LOOK):
                if event.offset < ends[event.shard] and event.payload_type == TRACES:
                    files.add(event)
            _show(bars, reading, begins, ends)
    if not files.known:
        raise CommandError(
            f"the stream {stream} has no trace records: set trace.stream of the nodes"
        )
    if files.missing:
        click.echo(f"! {files.missing:,} bytes of trace files are not in the stream", err=True)
    return len(files.known)


def _show(bars: Bars, reading: Reading, begins: dict[int, int], ends: dict[int, int]) -> None:
    done = sum(min(reading.positions[s], end) - begins[s] for s, end in ends.items())
    total = sum(end - begins[s] for s, end in ends.items())
    bars.show(done, total or 1, counted(done, "event"))


class _Files:
    """The files that grow, by their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.known: dict[str, int] = {}
        """Up to which byte of the node's file each has come."""
        self.missing = 0
        """Bytes that the stream does not have (any more) between others."""

    def add(self, event: StreamEvent) -> None:
        """Lines of a file; those that are there already are passed over."""
        name, at = event.attributes.get("file"), event.attributes.get("at")
        if not isinstance(name, str) or type(at) is not int or FILE.fullmatch(name) is None:
            place = f"shard {event.shard}, offset {event.offset}"
            raise CommandError(f"the event at {place} names no trace file: {name}")
        known = self.known.get(name, 0)
        self.missing += max(0, at - known)
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(event.payload[max(0, known - at) :])
        self.known[name] = max(known, at + len(event.payload))
