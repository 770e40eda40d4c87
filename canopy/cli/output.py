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
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

import click
import msgspec

from overlay.phrases import shown_json, visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table


WRAPPED: Final = 12
"""The characters of a line to which a column of texts may shrink before a table becomes records."""

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


class Markup(str):
    """A text with rich's markup. All other cells of tables are shown as they are."""


class TextTable:
    """A table in the project's style, which rich draws: row by row, or where the terminal is too
    narrow for its columns with one line for each cell, so that nothing is cut. False without
    rows."""

    def __init__(self, *columns: str) -> None:
        """`columns`: the headings. A column whose heading begins with ">" is right-aligned, for
        numbers; one with "=" is never wrapped. Without any heading there is no line of them."""
        self._columns = columns
        self._cells: list[list[str]] = []

    def __bool__(self) -> bool:
        return bool(self._cells)

    def add(self, *cells: str | int | None) -> None:
        """Add a row. Numbers get separators of thousands; None is an empty cell."""
        self._cells.append([self._shown(cell) for cell in cells])

    def of(self, rows: Iterable[Iterable[str | int | None]]) -> Self:
        """Add rows, and return this table."""
        for row in rows:
            self.add(*row)
        return self

    @staticmethod
    def _shown(cell: str | int | None) -> str:
        if isinstance(cell, Markup):
            return cell
        return "" if cell is None else f"{cell:,}" if isinstance(cell, int) else label(cell)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        from rich.box import SIMPLE_HEAD
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        headings = [column.lstrip(">=") for column in self._columns]
        least = 3 * len(headings) - 1  # between the columns and beside them
        for number, column in enumerate(self._columns):
            cells = (Text.from_markup(row[number]).cell_len for row in self._cells)
            widest = max(cell_len(headings[number]), *cells, 0)
            least += widest if column[:1] in (">", "=") else min(widest, WRAPPED)
        if least > options.max_width:
            yield from self._records(headings)
            return
        found = Table(box=SIMPLE_HEAD, pad_edge=False, show_header=any(headings))
        for column, heading in zip(self._columns, headings, strict=True):
            if column[:1] in (">", "="):
                side: Any = "right" if column.startswith(">") else "left"
                found.add_column(heading, justify=side, no_wrap=True)
            else:
                found.add_column(heading, overflow="fold")
        for row in self._cells:
            found.add_row(*row)
        yield found

    def _records(self, headings: list[str]) -> Iterator[Table]:
        from rich.table import Table

        for row in self._cells:
            found = Table.grid(padding=(0, 2, 0, 1))
            found.add_column(style="dim", no_wrap=True)
            found.add_column(overflow="fold")
            for heading, cell in zip(headings, row, strict=True):
                if cell:
                    found.add_row(heading, cell)
            found.add_row("")
            yield found


def show(value: Any, as_json: bool, *views: object, indent: int | None = None) -> None:
    """Print the result of a command: `value` as JSON for programs, else each of `views`, texts as
    they are and what rich draws. `indent`: that of the JSON (`print_json`)."""
    if as_json:
        print_json(value, indent)
        return
    for view in views:
        if isinstance(view, str) and not isinstance(view, Markup):
            click.echo(view)
        else:
            console().print(view, soft_wrap=isinstance(view, str))


def label(text: object) -> str:
    """Escape markup and control characters in a text from outside, for rich."""
    from rich.markup import escape

    return escape(visible(str(text)))


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
