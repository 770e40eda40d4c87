"""The columns of the event list: names, widths, and rows as segments.

Time, id and type come first, then the attributes of the selectors, then all others in one last
column as ``name=value``. A column grows with its content and never shrinks while the columns stay
the same, so that the list does not jump under a flood of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

from canopy.tui.model.log import LogRow, SortOrder
from canopy.tui.model.text import show_time, show_value
from overlay.phrases import visible

TIME_WIDTH = 12  # HH:MM:SS.mmm
WIDEST = 26  # cells of one attribute: three fit beside time and id in 120 columns
FOR_WIDEST = 16  # cells of the names of subscriptions
REST = 400  # cells of the last column; the detail pane shows all
GAP = 2
REST_TITLE = "also"
FOR_TITLE = "for"
FIXED = ("id", "type")
"""The attributes that most events have; they come first unless the user chose columns."""


def fit_cells(text: str, width: int, right: bool = False) -> str:
    """Pad or cut (with an ellipsis) `text` to `width` terminal cells."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 0 else ""
    padding = " " * (width - length)
    return padding + text if right else text + padding


def fit_middle(text: str, width: int) -> str:
    """Pad `text`, or cut its middle, to `width` cells: both ends of an id are informative."""
    if cell_len(text) <= width or not text.isascii() or width < 5:
        return fit_cells(text, width)
    tail = width // 2
    return f"{text[: width - tail - 1]}…{text[-tail:]}"


def sort_mark(name: str, order: SortOrder | None) -> str:
    """Return the mark after the title of the column by which the events are sorted; "" for other
    columns."""
    if order is None or order.attribute != name:
        return ""
    return " ▼" if order.descending else " ▲"


class EventColumns:
    """The columns. `names` are attributes, of which those in `fixed` come first; `titles` are names
    of subscriptions by key, shown in a column of their own if `with_names`. The column of `order`
    is marked."""

    def __init__(
        self,
        selected: Sequence[str],
        with_names: bool,
        titles: dict[int, str],
        fixed: Sequence[str] = FIXED,
        order: SortOrder | None = None,
    ) -> None:
        self._fixed = len(fixed)
        self._order = order
        self.names = (*fixed, *(name for name in selected if name not in fixed))
        self._titles = titles  # of subscriptions, by key
        self._for_width = len(FOR_TITLE) if with_names else 0
        self._widths = [min(WIDEST, cell_len(self._title(name))) for name in self.names]

    @property
    def titles(self) -> list[str]:
        """The titles of the columns."""
        named = [FOR_TITLE] if self._for_width else []
        names = [self._title(name) for name in self.names]
        return ["time", *names[: self._fixed], *named, *names[self._fixed :], REST_TITLE]

    def name_at(self, cell: int) -> str | None:
        """Return the attribute whose column is at `cell` of a line; "" for the time, None for
        others."""
        names: list[str | None] = [*self.names]
        widths = [*self._widths]
        if self._for_width:
            names.insert(self._fixed, None)
            widths.insert(self._fixed, self._for_width)
        for name, width in zip(["", *names], [TIME_WIDTH, *widths], strict=True):
            cell -= width + GAP
            if cell < 0:
                return name
        return None

    def _title(self, name: str) -> str:
        return visible(name) + sort_mark(name, self._order)

    @property
    def width(self) -> int:
        """The width of all columns before the last one, in cells."""
        widths = [TIME_WIDTH, *self._widths, *([self._for_width] if self._for_width else [])]
        return sum(widths) + GAP * len(widths)

    def measure(self, rows: Iterable[LogRow]) -> bool:
        """Widen the columns to fit `rows`. Returns whether a width changed."""
        before = (list(self._widths), self._for_width)
        for row in rows:
            for i, name in enumerate(self.names):
                if name in row.event.attributes:
                    length = cell_len(show_value(row.event.attributes[name]))
                    self._widths[i] = max(self._widths[i], min(WIDEST, length))
            if self._for_width:
                self._for_width = max(self._for_width, min(FOR_WIDEST, cell_len(self._for(row))))
        return before != (self._widths, self._for_width)

    def header(self, style: Style) -> list[Segment]:
        """Return the line with the titles."""
        widths = [TIME_WIDTH, *self._widths[: self._fixed]]
        widths += [self._for_width] if self._for_width else []
        widths += [*self._widths[self._fixed :], len(REST_TITLE)]
        cells = zip(self.titles, widths, strict=True)
        return [Segment(fit_cells(visible(t), w) + " " * GAP, style) for t, w in cells]

    def line(self, row: LogRow, style: Style, dim: Style) -> list[Segment]:
        """Return the line of one event."""
        attributes = row.event.attributes
        gap = Segment(" " * GAP, style)
        out = [Segment(fit_cells(show_time(row.event.time), TIME_WIDTH), dim), gap]
        for i, name in enumerate(self.names):
            if i == self._fixed and self._for_width:
                out += [Segment(fit_cells(self._for(row), self._for_width), dim), gap]
            present = name in attributes
            value = attributes.get(name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            text = show_value(value) if present else "·"
            faint = (i < self._fixed and name != "id") or not present
            if name == "id":
                cell = fit_middle(text, self._widths[i])
            else:
                cell = fit_cells(text, self._widths[i], right=number and i >= self._fixed)
            out += [Segment(cell, dim if faint and name != "id" else style), gap]
        if len(self.names) == self._fixed and self._for_width:
            out += [Segment(fit_cells(self._for(row), self._for_width), dim), gap]
        out.append(Segment(self._rest(row), dim))
        return out

    def _for(self, row: LogRow) -> str:
        return ", ".join(title for key, title in self._titles.items() if key in row.deliveries)

    def _rest(self, row: LogRow) -> str:
        parts = []
        length = 0
        for name, value in row.event.attributes.items():
            if name in self.names:
                continue
            parts.append(f"{visible(name)}={show_value(value)}")
            length += len(parts[-1]) + 2
            if length > REST:
                break
        return fit_cells("  ".join(parts), min(REST, length))
