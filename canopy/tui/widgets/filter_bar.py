"""The line above the events: the filter, and how many events are shown, kept and waiting."""

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
    """The filter (words that a shown event must contain), and the numbers of the list."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Clear filter"),
    ]

    class Changed(Message):
        """Posted when the text of the filter has changed."""

    class Left(Message):
        """The user has left the filter; the focus may return to the list."""

    @property
    def words(self) -> str:
        """The text of the filter."""
        return self.query_one(Input).value

    def compose(self) -> ComposeResult:
        """Yield the input, and the numbers beside it."""
        entry = Input(placeholder="filter: words that an event must contain ( / )", compact=True)
        entry.can_focus = False  # Tab passes by: the next key would be a letter, not a command
        entry.cursor_blink = False  # each blink is a redraw, also over a slow line
        yield entry
        yield Static("", id="numbers", markup=False)

    def show(self, log: EventLog) -> None:
        """Show the numbers of `log`."""
        text = Text(no_wrap=True, overflow="ellipsis", justify="right")
        shown, held = len(log.view), len(log.rows)
        text.append(f"{shown:,}" if shown == held else f"{shown:,} of {held:,}")
        text.append(" events")
        if log.paused:
            text.append("  ‖ PAUSED", "bold")
            if log.held:
                text.append(f" +{log.held:,}")
        if log.skipped:
            text.append(f"  {log.skipped:,} too fast to show")
        self.query_one("#numbers", Static).update(text)

    def action_leave(self) -> None:
        """Clear the filter and leave it."""
        self.query_one(Input).value = ""
        self.post_message(self.Left())

    def enter(self) -> None:
        """Focus the input at once, so that it receives the next key."""
        entry = self.query_one(Input)
        entry.can_focus = True
        self.screen.set_focus(entry)

    def on_click(self) -> None:
        """Focus the filter, as its key does."""
        self.enter()

    def on_descendant_blur(self) -> None:
        """Prevent that Tab focuses the filter; only the return of the terminal's own focus may."""
        self.query_one(Input).can_focus = not self.app.app_focus

    def on_input_changed(self, event: Input.Changed) -> None:
        """Post that the words changed."""
        event.stop()
        self.post_message(self.Changed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the words and leave the filter."""
        event.stop()
        self.post_message(self.Left())
