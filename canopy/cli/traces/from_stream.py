"""Trace files from a stream to which nodes send their records (`trace.stream`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import click

from canopy.cli.connect import json_option, open_client
from canopy.cli.display import Bars
from canopy.cli.errors import OK, UNDECIDED, WRONG, CommandError
from canopy.cli.extras import require
from canopy.cli.output import Markup, TextTable, plain, show
from canopy.cli.streams.export import kept_events
from overlay.client import StreamEvent
from streams.log.names import TRACES

# --- `canopy trace streams`: were the rows of streams consumed once? ---


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--master", metavar="URL", help="A Spark cluster; by default this machine.")
@json_option
def streams(folder: str, master: str | None, as_json: bool) -> int:
    """Have Spark prove from the trace records under DIR that each committed row of a stream was
    consumed once by each durable consumer whose selector is true for it.

    The exit code is 0 if every confirmed row was consumed once; 9 if a consumer confirmed rows that
    it did not take, or took or confirmed rows twice; 5 if there is nothing to judge.

    \b
    canopy trace streams traces
    canopy trace streams traces --json | jq .consumed
    """
    require("analysis")
    from canopy.traces.analysis import named
    from canopy.traces.analysis.streams import judge_streams

    found = judge_streams(named(folder), master)
    rows = TextTable("", ">").of(
        (name, getattr(found, name)) for name in found.__struct_fields__[1:-1]
    )
    examples = (f"  {example}" for example in found.examples)
    verdict = Markup(f"consumption: [bold]{found.result}[/]")
    show(plain(found), as_json, rows, *examples, verdict, indent=2)
    return {"exact": OK, "wrong": WRONG}.get(found.result, UNDECIDED)


FILE: Final = re.compile(r"date=\d{4}-\d\d-\d\d/node=[\w%.~-]+/\d{6}-\d{4,}\.jsonl", re.ASCII)
"""The paths of trace files below their folder. None of them leads out of it."""

PATIENCE: Final = 30.0
"""Seconds to wait for an answer, and for a node that is away."""


def fetch(stream: str, folder: Path, connect: str | None = None, wait: float = 0.0) -> int:
    """Write the trace files that are in a stream now below `folder`. Returns their number. Raises
    CommandError, and ControlError."""
    files = _Files(folder)
    with (
        Bars(quiet=not sys.stderr.isatty()) as bars,
        open_client(connect, wait, reconnect=PATIENCE) as client,
        client.read(stream, start="first", timeout=PATIENCE) as reading,
    ):
        bars.begin("reading the stream", None)
        for event in kept_events(reading, bars):
            if event.payload_type == TRACES:
                files.add(event)
    if not files.known:
        raise CommandError(
            f"the stream {stream} has no trace records: set trace.stream of the nodes"
        )
    if files.missing:
        click.echo(f"! {files.missing:,} bytes of trace files are not in the stream", err=True)
    return len(files.known)


class _Files:
    """The trace files that are being written, by their names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.known: dict[str, int] = {}
        """The number of bytes of each node's file that have been read."""
        self.missing = 0
        """Bytes between others that the stream does not have."""

    def add(self, event: StreamEvent) -> None:
        """Add an event's lines to their file; lines that it has already are skipped."""
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
