"""The output of commands: JSON for programs, tables for people.

JSON objects are the replies of `overlay.client` with their field names, without `request`, the
number that only the socket needs. Every line is flushed, so that a pipe gets it at once.
"""

from __future__ import annotations

import json
import os
import select
import stat
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from overlay.phrases import shown_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


PIPE_WIDTH: Final = 1_000
"""The characters of a line where no terminal says how many there are: a file is not narrow, and a
name that were broken in a table would not be found by grep."""


def plain(value: Any) -> Any:
    """Return a reply as dicts, lists and scalars, without `request`."""
    if isinstance(value, msgspec.Struct):
        names = (name for name in value.__struct_fields__ if name != "request")
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    return value


def print_json(value: Any, indent: int | None = None) -> None:
    """Print one JSON value, on one line unless `indent` is given. Control characters are
    escaped."""
    try:
        text = shown_json(json.dumps(value, ensure_ascii=False, indent=indent))
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # a terminal without these characters: use JSON escapes
        text = json.dumps(value, indent=indent)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def console() -> Console:
    """Return a console of rich, which is imported here since most commands do not need it."""
    from rich.console import Console

    class PipedConsole(Console):
        """Leaves a closed pipe to canopy/cli/errors.py, where rich would exit with 1."""

        def on_broken_pipe(self) -> None:
            raise

    found = PipedConsole(highlight=False, soft_wrap=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = PIPE_WIDTH
    return found


def on_reader_gone(call: Callable[[], None]) -> None:
    """Call `call` in a thread when the reader of standard output, a pipe, closes it. A command that
    has nothing to write would not notice."""
    try:
        descriptor = sys.stdout.fileno()
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return
    except (OSError, ValueError):
        return
    poll = select.poll()
    poll.register(descriptor, 0)  # errors only: POLLERR or POLLHUP when no reader is left

    def watch() -> None:
        poll.poll()
        call()

    threading.Thread(target=watch, daemon=True, name="pipe watcher").start()


def table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table in the project's style.

    A column whose name begins with ">" is right-aligned, for numbers; one with "=" is never
    wrapped.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    found = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        if column.startswith(">"):
            found.add_column(column[1:], justify="right", no_wrap=True)
        elif column.startswith("="):
            found.add_column(column[1:], no_wrap=True)
        else:
            found.add_column(column, overflow="fold")
    return found


def label(text: object) -> str:
    """Escape markup and control characters in a text from outside, for rich."""
    from rich.markup import escape

    return escape(visible(str(text)))


def visible(text: str) -> str:
    """Escape unprintable characters, which could move the terminal's cursor."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def printable(value: object) -> str:
    """Return a value as a selector has it, except that texts without spaces are not quoted."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float | int):
        return repr(value)
    shown = visible(str(value))
    return shown if shown and " " not in shown else f"'{shown}'"


def when(seconds: float) -> str:
    """Return a point in time in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
