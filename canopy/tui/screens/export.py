"""The dialog that saves the selected event, or all shown events, to a file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.widgets import Checkbox, Input, Label, Static

from canopy.feeds.objects import delivery_object
from canopy.tui.model.log import LogRow
from canopy.tui.screens.dialog import Dialog
from overlay.client import Delivery
from overlay.phrases import counted, shown_json

# --- events as JSON text, and files of them ---


def delivery_of(row: LogRow, key: int | None) -> Delivery:
    """Return the delivery of `row` to the subscription `key`, else its first one."""
    found = row.deliveries.get(key) if key is not None else None
    return found or next(iter(row.deliveries.values()))


def event_json(row: LogRow, key: int | None) -> str:
    """Return the event as it was delivered to the subscription `key`, as a line of `canopy sub
    --json`."""
    return shown_json(json.dumps(delivery_object(delivery_of(row, key)), ensure_ascii=False))


def file_name(row: LogRow) -> str:
    """Return a name for the file of an event: its id, without characters with a meaning in shells
    or paths."""
    name = re.sub(r"[^\w.-]+", "-", str(row.event.attributes.get("id", ""))).strip("-.")
    return f"{name[:60] or 'event'}.json"


def write_new(path: Path, lines: Sequence[str]) -> None:
    """Write `lines` to a new file. Raises OSError, and then leaves no part of the file."""
    with path.open("x", encoding="utf-8") as file:
        try:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise


class ExportDialog(Dialog[str]):
    """Saves events, and returns a line about them. `key`: the subscription whose deliveries are
    saved (None: the first delivery of each event)."""

    def __init__(self, row: LogRow, shown: Sequence[LogRow], key: int | None) -> None:
        super().__init__("Save as JSON", "Enter save · Esc cancel", "Save")
        self._row = row
        self._shown = shown
        self._key = key

    def fields(self) -> ComposeResult:
        """Yield the file's name, and the choice of events."""
        yield Label("The file (an existing one is not replaced)")
        path = Input(file_name(self._row), id="path", select_on_focus=False)
        path.cursor_blink = False
        yield path
        count = counted(len(self._shown), "shown event")
        every = Checkbox(f"all {count}, one on each line", id="all")
        every.BUTTON_INNER = " "
        yield every
        yield Static(id="verdict", markup=False)

    def on_mount(self) -> None:
        """Put the cursor into the field for the file's name."""
        self.query_one("#path", Input).focus()

    def on_checkbox_changed(self, event: Checkbox.Changed) -> None:
        """Propose another name, unless one was typed; show the mark only if it is set."""
        event.checkbox.BUTTON_INNER = "X" if event.value else " "
        entry = self.query_one("#path", Input)
        names = (file_name(self._row), "events.jsonl")
        if entry.value in names:
            entry.value = names[event.value]

    def finish(self) -> None:
        """Save the events, and return a line about them."""
        rows = self._shown if self.query_one("#all", Checkbox).value else [self._row]
        path = Path(self.query_one("#path", Input).value.strip()).expanduser()
        try:
            write_new(path, [event_json(row, self._key) for row in rows])
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: ~ of no user
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            self.query_one("#verdict", Static).update(f"✗ {reason}")
            return
        self.dismiss(f"saved {counted(len(rows), 'event')} to {path.absolute()}")
