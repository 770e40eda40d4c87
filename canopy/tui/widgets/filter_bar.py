"""The line between the list and its borders: what is shown, what is held back; and the filter."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from canopy.tui.model.log import EventLog


class FilterBar(Horizontal):
    """Words that an event must have to be shown, beside the numbers of the list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Clear filter"),
    ]

    class Changed(Message):
        """Other words."""

    class Left(Message):
        """The person is done here."""

    @property
    def words(self) -> str:
        """What is typed."""
        return self.query_one(Input).value

    def compose(self) -> ComposeResult:
        """The input takes what the numbers leave."""
        entry = Input(placeholder="filter: words that an event must have ( / )", compact=True)
        entry.cursor_blink = False  # each blink is a redraw, also over a slow line
        yield entry
        yield Static("", id="numbers", markup=False)

    def show(self, log: EventLog) -> None:
        """The numbers of the list."""
        text = Text(no_wrap=True, overflow="ellipsis", justify="right")
        shown, held = len(log.view), len(log.rows)
        text.append(f"{shown:,}" if shown == held else f"{shown:,} of {held:,}")
        text.append(" events")
        if log.paused:
            text.append("  ‖ ON HOLD", "bold")
            if log.held:
                text.append(f" +{log.held:,}")
        if log.skipped:
            text.append(f"  {log.skipped:,} too fast to show")
        self.query_one("#numbers", Static).update(text)

    def action_leave(self) -> None:
        """Forget the words."""
        self.query_one(Input).value = ""
        self.post_message(self.Left())

    def enter(self) -> None:
        """Begin to type."""
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the words on."""
        event.stop()
        self.post_message(self.Changed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the words, go on."""
        event.stop()
        self.post_message(self.Left())
