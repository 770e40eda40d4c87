"""The options of `format("canopy")`, read from Spark's map of texts (docs/guide/spark.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from canopy.client.streams.reading import parse_start
from canopy.spark.rows import SparkSourceError
from matching import SelectorError, compile_selector

Mode = Literal["failfast", "permissive"]

KNOWN: Final = (
    *("stream", "node", "path", "selector", "startingoffsets", "endingoffsets", "history"),
    *("maxrowspertrigger", "rowsperpartition", "mode", "failondataloss", "samplerows", "timeout"),
    *("pushfilters", "producer", "batch", "order", "checkpointlocation", "queryname"),
)
"""In lower case, as Spark compares them; the last two are Spark's own."""

ROWS_PER_TRIGGER: Final = 250_000
"""Offsets of one trigger at most: less than a second's work on two cores."""

ROWS_PER_PARTITION: Final = 100_000
"""Offsets of one partition at most: a task of a third of a second. (With another number here a
batch that is done again after an upgrade would have other partitions, and sinks other producers.)
"""

SAMPLE: Final = 1_000
"""Rows at each end of a shard from which the columns are inferred."""


class ReadingBound(NamedTuple):
    """The bound at which reading begins or ends: "first", "new" (what is there now), "time"
    (nanoseconds since 1970 in `at`), an offset of each shard in `at`, or those of `offsets` by
    shard, in the stream with the id `stream` ("": in any)."""

    kind: str
    at: int = 0
    offsets: tuple[tuple[int, int], ...] = ()
    stream: str = ""


class SourceOptions(NamedTuple):
    """The options of `spark.read.format("canopy")`, checked."""

    stream: str
    node: str | None
    folders: tuple[str, ...]
    selector: str
    start: ReadingBound
    end: ReadingBound
    history: str
    trigger_rows: int
    partition_rows: int
    mode: Mode
    fails_on_loss: bool
    sample: int
    timeout: float
    pushes: bool


class SinkOptions(NamedTuple):
    """The stream to write to, and the name to write under."""

    stream: str
    node: str | None
    producer: str
    batch: int
    keeps_order: bool
    timeout: float


def source_options(given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Return the options of a reader. Raises SparkSourceError, which names the invalid option."""
    options = _lower(given)
    folders = tuple(each.strip() for each in options.get("path", "").split(",") if each.strip())
    stream = options.get("stream", "")
    if not stream and not folders:
        raise SparkSourceError('name the stream: .option("stream", NAME)')
    if folders and "node" in options:
        raise SparkSourceError("rows come from a node or from a path: give one of the two")
    selector = options.get("selector", "").strip()
    if selector:
        try:
            compile_selector(selector)
        except SelectorError as error:
            raise SparkSourceError(f"option selector:\n{error.caret()}") from None
    mode = options.get("mode", "failfast").lower()
    if mode not in ("failfast", "permissive"):
        raise SparkSourceError(f"option mode is failfast or permissive, not {mode}")
    start = _place(options, "startingOffsets", "new" if is_stream else "first")
    end = _place(options, "endingOffsets", "new")
    if end.kind == "first":
        raise SparkSourceError("option endingOffsets: nothing lies before the first row")
    return SourceOptions(
        stream,
        options.get("node"),
        folders,
        selector,
        start,
        end,
        options.get("history", ""),
        _count(options, "maxRowsPerTrigger", ROWS_PER_TRIGGER),
        _count(options, "rowsPerPartition", ROWS_PER_PARTITION),
        "permissive" if mode == "permissive" else "failfast",
        _flag(options, "failOnDataLoss", True),
        _count(options, "sampleRows", SAMPLE),
        _seconds(options),
        _flag(options, "pushFilters", False),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a writer. Raises SparkSourceError."""
    options = _lower(given)
    if not options.get("stream"):
        raise SparkSourceError('name the stream: .option("stream", NAME)')
    order = options.get("order", "any").lower()
    if order not in ("any", "kept"):
        raise SparkSourceError(f"option order is any or kept, not {order}")
    if ("producer" in options) != ("batch" in options):
        raise SparkSourceError("options producer and batch go together: the job and its number")
    batch = _count(options, "batch", 0, least=0)
    return SinkOptions(
        options["stream"],
        options.get("node"),
        options.get("producer", ""),
        batch,
        order == "kept",
        _seconds(options),
    )


def _lower(given: Mapping[str, str]) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items()}
    strange = [name for name in options if name not in KNOWN]
    if strange:
        raise SparkSourceError(f"there is no option {strange[0]}; there are: {', '.join(KNOWN)}")
    return options


def _place(options: Mapping[str, str], name: str, default: str) -> ReadingBound:
    text = options.get(name.lower(), default).strip()
    text = {"earliest": "first", "latest": "new"}.get(text, text)  # as Spark's Kafka source says
    if text.startswith("{"):
        stream = ""
        try:
            said = json.loads(text)
            stream = str(said.pop("stream", ""))
            found = {int(shard): offset for shard, offset in said.items()}
        except (ValueError, AttributeError):
            found = {-1: -1}
        if any(type(o) is not int or o < 0 or s < 0 for s, o in found.items()):
            raise SparkSourceError(f'option {name}: {{"SHARD": OFFSET, …}} is wanted, not {text}')
        return ReadingBound("offsets", 0, tuple(sorted(found.items())), stream)
    try:
        start, at = parse_start(text)
    except ValueError as error:
        raise SparkSourceError(f"option {name}: {error}") from None
    return ReadingBound("offset", start) if isinstance(start, int) else ReadingBound(start, at)


def _count(options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = options.get(name.lower(), str(default))
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise SparkSourceError(f"option {name} is a number from {least} on, not {text}")
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise SparkSourceError(f"option {name} is true or false, not {text}")
    return text == "true"


def _seconds(options: Mapping[str, str]) -> float:
    text = options.get("timeout", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise SparkSourceError(f"option timeout is a number of seconds, not {text}")
    return seconds
