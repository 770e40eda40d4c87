"""A table that is updated in place: the cursor stays on its row, and only changes are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import DataTable
from textual.widgets.data_table import RowDoesNotExist


class SyncedTable(DataTable[Text]):
    """A table whose rows have keys; `sync` replaces its rows by the given ones."""

    BINDINGS: ClassVar[list[BindingType]] = []

    @dataclass
    class Chosen(Message):
        """The cursor has moved to the row `key`."""

        table: SyncedTable
        key: str

        @property
        def control(self) -> SyncedTable:
            """The table, for the selectors of Textual's `on`."""
            return self.table

    def __init__(self, titles: Sequence[str], id: str, numbers: Sequence[int] = ()) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._titles = titles
        self._numbers = numbers  # columns that are aligned to the right
        self._rows: dict[str, tuple[str, ...]] = {}

    @property
    def chosen(self) -> str:
        """The key of the row under the cursor, or ""."""
        keys = list(self._rows)
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else ""

    def on_mount(self) -> None:
        """Add the columns with their titles."""
        for at, title in enumerate(self._titles):
            justify: Any = "right" if at in self._numbers else "left"
            self.add_column(Text(title, justify=justify), key=str(at))

    def sync(self, rows: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Show `rows`, pairs of a key and its cells, in this order."""
        wanted = {key: tuple(cells) for key, cells in rows}
        if list(wanted) != list(self._rows):
            chosen = self.chosen
            self._rows = wanted
            with self.prevent(DataTable.RowHighlighted):
                self.clear()
                for key, cells in wanted.items():
                    self.add_row(*self._cells(cells), key=key)
                self._widen()
            if chosen in wanted:
                self.move_cursor(row=list(wanted).index(chosen), animate=False)
            elif wanted:
                self.post_message(self.Chosen(self, self.chosen))
            return
        for key, cells in wanted.items():
            for at, (new, old) in enumerate(zip(cells, self._rows[key], strict=True)):
                if new != old:
                    self.update_cell(key, str(at), self._cell(at, new), update_width=True)
        self._rows = wanted

    def _widen(self) -> None:
        # DataTable measures new rows when it is idle. On a busy machine it did not, and cells
        # stayed cut to the width of their titles.
        for at, column in enumerate(self.ordered_columns):
            cells = (cell_len(row[at]) for row in self._rows.values())
            column.content_width = max(cell_len(self._titles[at]), *cells, 0)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Post `Chosen` for the row under the cursor."""
        event.stop()
        try:
            key = self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value
        except (RowDoesNotExist, IndexError):
            return
        if key is not None:
            self.post_message(self.Chosen(self, key))

    def _cells(self, cells: Sequence[str]) -> list[Text]:
        return [self._cell(at, text) for at, text in enumerate(cells)]

    def _cell(self, at: int, text: str) -> Text:
        return Text(text, justify="right" if at in self._numbers else "left", no_wrap=True)
