"""The live list of events, which draws only the visible lines.

It either *follows* (the newest event is at the bottom) or has a cursor on one event. Moving up sets
the cursor, End follows again. It is redrawn by `update_view`, which the app calls at most once per
tick.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from canopy.tui.constants import SIDEWAYS
from canopy.tui.model.log import EventLog, LogRow
from canopy.tui.widgets.event_columns import REST, EventColumns


class EventStream(ScrollView, can_focus=True):
    """The list of an `EventLog`'s events, one line each; it follows the newest unless it is
    scrolled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Earlier event", show=False),
        Binding("down,j", "move(1)", "Later event", show=False),
        Binding("pageup", "page(-1)", "A page up", show=False),
        Binding("pagedown", "page(1)", "A page down", show=False),
        Binding("home,g", "oldest", "Oldest event", show=False),
        Binding("end,G,f", "follow", "Follow", tooltip="Follow the newest event"),
        Binding("left", "sideways(-1)", "Columns to the left", show=False),
        Binding("right", "sideways(1)", "Columns to the right", show=False),
        Binding("enter", "open", "Details", tooltip="Show the whole selected event"),
    ]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "event-stream--header",
        "event-stream--row",
        "event-stream--odd",
        "event-stream--row-dim",
        "event-stream--odd-dim",
        "event-stream--cursor",
    }

    @dataclass
    class Selected(Message):
        """The cursor is on `row`; None while following."""

        row: LogRow | None

    class NearEviction(Message):
        """The selected event will soon be evicted from the log."""

    @dataclass
    class SortRequested(Message):
        """The title of the column `attribute` was clicked; "" is the time's column."""

        attribute: str

    class Opened(Message):
        """The user wants to see the whole event under the cursor."""

    def __init__(self, log: EventLog, id: str | None = None) -> None:
        super().__init__(id=id)
        self.log_of_events = log
        self.columns = EventColumns((), False, {})
        self.place: int | None = None  # of the cursor; None while following
        self._row: LogRow | None = None  # at that place, which changes while the view is sorted
        self.updates = 0  # how often the list was brought up to date

    @property
    def selected(self) -> LogRow | None:
        """The event under the cursor; None while following."""
        return None if self.place is None else self.log_of_events.at(self.place)

    @property
    def _page(self) -> int:
        return max(1, self.scrollable_content_region.height - 1)

    def set_columns(self, columns: EventColumns) -> None:
        """Replace the columns and draw."""
        self.columns = columns
        self.update_view()

    def new_view(self) -> None:
        """Follow the newest event again: the log's view was rebuilt (filter, clear)."""
        self._select(None)
        self.update_view()

    def update_view(self) -> None:
        """Draw the log's present content; nothing else redraws this widget."""
        self.updates += 1
        log = self.log_of_events
        if self._row is not None and self.selected is not self._row:
            self.place = log.place_of(self._row)  # sorted: others came before it
            self._row = self.selected
            if self._row is None:
                self.post_message(self.Selected(None))
        elif self.place is not None and self.selected is None:
            self._select(None)  # it was evicted, and the list follows again
        if self.selected is not None and not log.paused and log.near_eviction(self.selected):
            self.post_message(self.NearEviction())
        rows = len(log.view)
        newest = 0 if log.order is not None else rows - self._page
        top = newest if self.place is None else self.scroll_offset.y
        self.columns.measure(islice(log.view, max(0, top), max(0, top) + self._page))
        self.virtual_size = Size(self.columns.width + REST, rows + 1)
        if self.place is None:
            self._scroll_top(newest)
        else:
            self._show_cursor()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return the line `y` of the widget: the header, then rows from the scroll position on."""
        width = self.scrollable_content_region.width
        left = self.scroll_offset.x
        if y == 0:
            style = self.get_component_rich_style("event-stream--header")
            return self._strip(self.columns.header(style), left, width, style)
        place = self.log_of_events.first + self.scroll_offset.y + y - 1
        row = self.log_of_events.at(place)
        if row is None:
            return Strip.blank(width, self.rich_style)
        kind = "odd" if place % 2 else "row"
        style = self.get_component_rich_style(f"event-stream--{kind}")
        dim = self.get_component_rich_style(f"event-stream--{kind}-dim")
        if place == self.place:
            style = dim = self.get_component_rich_style("event-stream--cursor")
        return self._strip(self.columns.line(row, style, dim), left, width, style)

    def action_move(self, by: int) -> None:
        """Move the cursor. The first move selects the newest event, or the first one of a sorted
        list."""
        if self.place is None:
            self._go(self._start if by < 0 or self.log_of_events.order else None)
        else:
            self._go(self.place + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by a page."""
        start = self._start if self.place is None else self.place
        self._go(start + by * self._page)

    def action_oldest(self) -> None:
        """Move the cursor to the oldest event."""
        self._go(self.log_of_events.first)

    def action_follow(self) -> None:
        """Remove the cursor: the newest event stays visible."""
        self._go(None)

    def action_sideways(self, by: int) -> None:
        """Scroll the columns to the left (-1) or right (1)."""
        self.scroll_to(x=max(0, self.scroll_offset.x + by * SIDEWAYS), animate=False)

    def action_open(self) -> None:
        """Show the whole event under the cursor, or the newest one."""
        if self.ensure_cursor() is not None:
            self.post_message(self.Opened())

    def ensure_cursor(self) -> LogRow | None:
        """Return the selected event; select the newest one if there is none."""
        if self.place is None and self.log_of_events.view:
            self._go(self._start)
        return self.selected

    @property
    def _start(self) -> int:
        """Return the place at which the cursor appears."""
        log = self.log_of_events
        return log.end - 1 if log.order is None else log.first

    def on_click(self, event: events.Click) -> None:
        """Select the clicked event; a double click opens it, a click on a title sorts by it."""
        at = event.get_content_offset(self)  # without the border
        if at is None:
            return
        if at.y == 0:
            name = self.columns.name_at(at.x + self.scroll_offset.x)
            if name is not None:
                self.post_message(self.SortRequested(name))
            return
        place = self.log_of_events.first + self.scroll_offset.y + at.y - 1
        if self.log_of_events.at(place) is not None:
            self._go(place)
            if event.chain > 1:
                self.post_message(self.Opened())

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.update_view()

    def _on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-1)

    def _on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(1)

    def _go(self, place: int | None) -> None:
        log = self.log_of_events
        if place is not None:
            # Moving below the last row follows again, unless the list is sorted.
            is_end = place >= log.end
            below = None if log.order is None or not log.view else log.end - 1
            place = below if is_end else max(log.first, place)
        self._select(place)
        self.update_view()

    def _select(self, place: int | None) -> None:
        if place != self.place:
            self.place = place
            self._row = self.selected
            self.post_message(self.Selected(self.selected))

    def _show_cursor(self) -> None:
        assert self.place is not None
        index = self.place - self.log_of_events.first
        top = self.scroll_offset.y
        self._scroll_top(min(index, max(top, index - self._page + 1)))

    def _scroll_top(self, top: int) -> None:
        self.scroll_to(y=max(0, top), animate=False, force=True)

    @staticmethod
    def _strip(segments: list[Segment], left: int, width: int, style: Style) -> Strip:
        return Strip(segments).crop(left, left + width).adjust_cell_length(width, style)
