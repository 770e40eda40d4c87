"""Structured logs on standard error: time, level and event, then ``key=value`` pairs.

``2026-01-31T12:00:00.123Z info ready node=0123… address=127.0.0.1:4470``: readable for a person and
for log collectors (logfmt). In the format ``json`` each line is an object with the same fields, and
``time``, ``level`` and ``event``. The log is about the process and its connections; the traces are
about events.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

from canopy.wire.constants import LOG_VALUE_LIMIT
from overlay.bounded import BoundedDict
from overlay.phrases import visible

LEVELS: Final = ("debug", "info", "warning", "error")
PLAIN: Final = re.compile(r"[^\s\"=\\]+")
ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def logfmt(value: object) -> str:
    """Return a value in logfmt: quoted if needed, unprintable characters escaped, at most
    `LOG_VALUE_LIMIT` characters."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if len(text) > LOG_VALUE_LIMIT:
        text = text[:LOG_VALUE_LIMIT] + "…"
    if PLAIN.fullmatch(text) and text.isprintable():
        return text
    text = text.translate(ESCAPES)
    return f'"{visible(text)}"'


def json_line(stamp: str, level: str, event: str, fields: dict[str, Any]) -> str:
    """Return a line as one JSON object: numbers and truth values as such, other values as texts of
    at most `LOG_VALUE_LIMIT` characters. A field with the name of one of the first three gets an
    underscore as prefix."""
    line: dict[str, Any] = {"time": stamp, "level": level, "event": event}
    for name, value in fields.items():
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        if not isinstance(value, bool | int | float | None):
            text = str(value)
            value = text if len(text) <= LOG_VALUE_LIMIT else text[:LOG_VALUE_LIMIT] + "…"
        line[f"_{name}" if name in ("time", "level", "event") else name] = value
    # Escaped, so that neither a lone surrogate nor a terminal's control character is written.
    return json.dumps(line, ensure_ascii=True)


class Log:
    """Writes log lines of `level` and above to `out`, as ``logfmt`` or ``json``."""

    def __init__(
        self,
        level: str = "info",
        out: TextIO | None = None,
        clock: Callable[[], float] = time.time,
        format_: str = "logfmt",
    ) -> None:
        self.configure(level, format_)
        self._out = out if out is not None else sys.stderr
        self._clock = clock
        self._sparing = Sparing(time.monotonic)

    def configure(self, level: str, format_: str) -> None:
        """Write lines of `level` and above, in this format, from now on."""
        self._threshold = LEVELS.index(level)
        self._is_json = format_ == "json"

    def debug(self, event: str, **fields: Any) -> None:
        """Write a line for developers: connections, libraries."""
        self._write(0, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Write a line for operators: steps of the process's life."""
        self._write(1, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Write a line about a fault that the node survives."""
        self._write(2, event, fields)

    def seldom(self, event: str, **fields: Any) -> bool:
        """Write a warning that strangers can cause as often as they like: the first time, and then
        once in `EVERY` seconds, with the number of times since (`times`). Returns whether it was
        written."""
        times = self._sparing.due(event)
        if times:
            self._write(2, event, {**fields, "times": times})
        return bool(times)

    def error(self, event: str, **fields: Any) -> None:
        """Write a line about the fault that ends the process."""
        self._write(3, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if level < self._threshold:
            return
        now = self._clock()
        stamp = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03}Z"
        )
        if self._is_json:
            line = json_line(stamp, LEVELS[level], event, fields)
        else:
            line = " ".join(
                (stamp, LEVELS[level], event, *(f"{k}={logfmt(v)}" for k, v in fields.items()))
            )
        with contextlib.suppress(OSError, ValueError):  # a closed pipe must not end the node
            print(line, file=self._out, flush=True)


class Forward(logging.Handler):
    """Writes the `logging` records of libraries to a `Log`, as event ``library``."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record on level debug: a library's warning is not a warning of the node."""
        self._log.debug("library", name=record.name, message=record.getMessage())


# How often what strangers do is written down: else they write the disk full, and a line of the
# audit file, which is durable, is waited for by the whole node.

EVERY: Final = 10.0
"""Seconds between two lines of the same kind. Guess: often enough to be seen while it happens."""

KINDS_MOST: Final = 4_096
"""The most kinds that are remembered; beyond it the oldest is forgotten."""


class Sparing:
    """Decides which of many events are logged: the first of each kind, and one every `EVERY`
    seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns monotonic seconds."""
        self._clock = clock
        self._kept: BoundedDict[str, tuple[float, int]] = BoundedDict(KINDS_MOST)

    def due(self, kind: str) -> int:
        """Return how many events of this kind a line to be written now stands for, including this
        one; 0: no line is to be written."""
        now = self._clock()
        until, left_out = self._kept.get(kind, (now, 0))
        if now < until:
            self._kept[kind] = (until, left_out + 1)
            return 0
        self._kept.renew(kind, (now + EVERY, 0))
        return left_out + 1
