"""`canopy stream get` and `export`: rows of a stream, by offset and by content."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import NodeOptions, node_options, seal_option
from canopy.cli.display import Bars
from canopy.cli.errors import CommandError
from canopy.cli.extras import require
from canopy.cli.output import print_json
from canopy.cli.streams.read import place_of
from canopy.feeds.objects import stream_object
from overlay.phrases import counted, harmless, shown_json

if TYPE_CHECKING:
    from canopy.client.streams.reading import Reading
    from overlay.client import StreamEvent


# --- CSV (RFC 4180) of events: a column for each attribute ---

SPOOLED: Final = 1 << 20
"""Bytes of rows that are kept in memory before a CSV file is written; more go to a temporary
file."""


class CsvFile:
    """Writes a CSV table. The columns are known only at the end, so rows are kept as JSON lines in
    an unnamed file until then. `changed`: the number of texts that were escaped."""

    def __init__(self, file: IO[str], exact: bool) -> None:
        self.changed = 0
        self._file = file
        self._exact = exact
        self._rows = tempfile.SpooledTemporaryFile(SPOOLED, "w+", encoding="utf-8")  # noqa: SIM115
        self._columns: dict[str, None] = {}

    def add(self, event: StreamEvent) -> None:
        """Keep an event until all columns are known."""
        self._columns.update(dict.fromkeys(event.attributes))
        row = [event.shard, event.offset, event.time, event.attributes]
        self._rows.write(json.dumps(row, ensure_ascii=False) + "\n")

    def end(self) -> None:
        """Write the header and all added rows as CSV."""
        table = csv.writer(self._file)
        table.writerow(("shard", "offset", "time", *map(self._cell, self._columns)))
        self._rows.seek(0)
        for line in self._rows:
            *place, attributes = json.loads(line)
            table.writerow((*place, *(self._cell(attributes.get(name)) for name in self._columns)))
        self._rows.close()
        self._file.flush()

    def _cell(self, value: Any) -> Any:
        """Return a value as in CSV feeds: empty if the attribute is absent or NULL."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        if self._exact or not isinstance(value, str):
            return value
        text = harmless(value)
        self.changed += text != value
        return text


FORMATS: Final = ("jsonl", "csv", "parquet")


LOOK: Final = 0.5
"""Seconds between two updates of the bar while no rows arrive."""


@click.command()
@click.argument("name", metavar="STREAM", shell_complete=stream_names)
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--shard", default=0, help="The shard, of a stream that has several (0).")
@seal_option
@node_options
def get(name: str, offset: int, shard: int, node: NodeOptions) -> None:
    """Print the event with this offset, as a JSON object.

    Exit code 1 if there is none: it is no longer kept, or not appended yet.

    \b
    canopy stream get alarms 1200
    canopy stream get readings 7 --shard 3 | jq .attributes
    """
    with (
        node.open() as client,
        client.read(name, positions={shard: offset}, timeout=node.timeout) as reading,
    ):
        if shard not in reading.ends:
            raise CommandError(f"{name} has no shard {shard}")
        if offset >= reading.ends[shard]:
            last = reading.ends[shard] - 1
            raise CommandError(f"offset {offset} has not come yet: the last one is {last}")
        while reading.positions[shard] <= offset:
            for event in reading.take():
                if (event.shard, event.offset) == (shard, offset):
                    print_json(stream_object(name, event), None if node.as_json else 2)
                    return
    raise CommandError(f"the shard has no event with the offset {offset}")


class _Bound(NamedTuple):
    """The end of an export: an offset, or a time in seconds since 1970; None: no such bound."""

    offset: int | None
    time: float | None

    def takes(self, event: StreamEvent) -> bool:
        """Return whether the event lies before the bound."""
        before = self.offset is None or event.offset < self.offset
        return before and (self.time is None or event.time < self.time)


NO_BOUND: Final = _Bound(None, None)


def _bound(text: str | None) -> _Bound:
    if text is None:
        return NO_BOUND
    start, at = place_of(text)
    if isinstance(start, int):
        return _Bound(start, None)
    if start != "time":
        raise click.UsageError(f"--to takes an offset or a time, not {text}")
    return _Bound(None, at / 1e9)


@click.command()
@click.argument("name", metavar="STREAM", shell_complete=stream_names)
@click.argument("selector", default="")
@click.option(
    "--from", "start", default="first", metavar="WHERE", help="first, keys, OFFSET or TIME."
)
@click.option("--to", "end", metavar="WHERE", help="Before this OFFSET or TIME. [default: the end]")
@click.option("-o", "--output", metavar="FILE", default="-", help='The file; "-": standard output.')
@click.option("--overwrite", is_flag=True, help="Replace the file if there is one of its name.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="[default: by the file's name, or jsonl]"
)
@click.option("--exact", is_flag=True, help="CSV: leave all texts as they are.")
@seal_option
@node_options
def export(
    name: str,
    selector: str,
    start: str,
    end: str | None,
    output: str,
    overwrite: bool,
    kind: str | None,
    exact: bool,
    node: NodeOptions,
) -> None:
    """Write the events of a stream that SELECTOR matches (default: all) into a file.

    It ends with the last event that the stream had when the export began. JSON lines are the
    objects of `canopy sub --stream --json`. CSV has columns for shard, offset and time, and one for
    each attribute that occurs; a text that a spreadsheet would calculate is prefixed with ', and a
    control character is written as \\u001b, unless --exact is given. The file gets its name when it
    is complete; an existing file is kept, unless --overwrite is given. With --from keys the file
    has only the newest row of each key. A summary is printed on standard error, with --json as an
    object.

    With --format parquet the output is a folder. The first export writes all events, later ones add
    those that the folder lacks. Spark reads such files as the history of the stream (extra
    "spark").

    \b
    canopy stream export alarms -o alarms.jsonl
    canopy stream export users --from keys -o users.jsonl
    canopy stream export readings "value > 30" --from 2026-11-01 --to 2026-12-01 -o hot.csv
    canopy stream export orders --format parquet -o /data/orders
    """
    if kind == "parquet":
        if start != "first" or end is not None or output == "-":
            raise click.UsageError("--format parquet takes -o FOLDER, and no --from and --to")
        _parquet(name, selector, output, node)
        return
    bound = _bound(end)
    first, at = place_of(start)
    kind = kind or ("csv" if output.lower().endswith(".csv") else "jsonl")
    with Bars(quiet=node.as_json) as bars, _output(output, overwrite) as file:
        writer = CsvFile(file, exact) if kind == "csv" else _JsonLines(file, name)
        with (
            node.open(reconnect=node.timeout) as client,
            client.read(name, selector, start=first, at=at, timeout=node.timeout) as reading,
        ):
            count = 0
            bars.begin("exporting", None)
            for event in kept_events(reading, bars, bound):
                writer.add(event)
                count += 1
            bars.fill(counted(count, "event"))
        writer.end()
    if node.as_json:
        said = {"stream": name, "events": count, "file": output, "format": kind}
        sys.stderr.write(json.dumps(said | {"changed": writer.changed}) + "\n")
        return
    changed = f"; {counted(writer.changed, 'text')} changed (--exact: none)" * bool(writer.changed)
    click.echo(f"exported {counted(count, 'event')} of {name}{changed}", err=True)


def _parquet(name: str, selector: str, output: str, node: NodeOptions) -> None:
    """Add the stream's rows to a folder of Parquet files."""
    require("spark")
    from canopy.spark.history import export_history
    from canopy.spark.node import NodeRows
    from canopy.spark.rows import SparkSourceError

    with Bars(quiet=node.as_json) as bars:
        bars.begin("exporting", None)
        try:
            count = export_history(
                NodeRows(node.where, name, node.timeout),
                Path(output),
                selector,
                lambda done, total: bars.show(done, total, f"{done:,} of {total:,} offsets"),
            )
        except (SparkSourceError, OSError) as error:
            raise CommandError(f"{output}: {error}") from None
    if node.as_json:
        said = {"stream": name, "events": count, "file": output, "format": "parquet"}
        sys.stderr.write(json.dumps(said) + "\n")
    else:
        click.echo(f"added {counted(count, 'event')} of {name} to {output}", err=True)


def kept_events(reading: Reading, bars: Bars, bound: _Bound = NO_BOUND) -> Iterator[StreamEvent]:
    """Yield the events before the bound, up to those that were there when the reading began, and
    show on the present bar how far it is."""
    ends = dict(reading.ends)
    if bound.offset is not None:
        ends = {shard: min(end, bound.offset) for shard, end in ends.items()}
    begin = dict(reading.positions)
    total = sum(max(0, end - begin[shard]) for shard, end in ends.items())
    while any(reading.positions[shard] < end for shard, end in ends.items()):
        for event in reading.take(LOOK):
            if event.offset < ends[event.shard] and bound.takes(event):
                yield event
            elif event.offset < ends[event.shard]:
                ends[event.shard] = event.offset  # times do not go back
        done = sum(min(reading.positions[s], end) - begin[s] for s, end in ends.items())
        bars.show(done, total or 1, f"{done:,} of {total:,} offsets")


@contextlib.contextmanager
def _output(path: str, overwrite: bool) -> Iterator[IO[str]]:
    """Open the output file, which is renamed to `path` when the block ends without an error.
    CommandError if `path` exists, unless `overwrite` is set."""
    if path == "-":
        yield sys.stdout
        return
    part = f"{path}.part"
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device, as /dev/null
            with open(path, "w", encoding="utf-8", newline="") as file:
                yield file
            return
        _check_free(path, overwrite)
        with open(part, "w", encoding="utf-8", newline="") as file:
            yield file
        _check_free(path, overwrite)  # it may have come meanwhile
        os.replace(part, path)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _check_free(path: str, overwrite: bool) -> None:
    if os.path.lexists(path) and not overwrite:
        raise CommandError(f"{path} is there already: --overwrite replaces it")


class _JsonLines:
    changed = 0  # no text is

    def __init__(self, file: IO[str], stream: str) -> None:
        self._file, self._stream = file, stream

    def add(self, event: StreamEvent) -> None:
        text = json.dumps(stream_object(self._stream, event), ensure_ascii=False)
        self._file.write(shown_json(text) + "\n")

    def end(self) -> None:
        self._file.flush()
