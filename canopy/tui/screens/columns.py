"""The dialog for the columns of the events, and by which of them these are sorted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from canopy.tui.model.log import SortOrder
from canopy.tui.model.text import one_line
from canopy.tui.widgets.event_columns import sort_mark


class ColumnsRequest(NamedTuple):
    """What was chosen: the columns (None: those of the selectors), and the order."""

    names: tuple[str, ...] | None
    order: SortOrder | None


class ColumnsDialog(ModalScreen[ColumnsRequest | None]):
    """Lists the attributes `names`; `shown` have a column."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("space", "show_or_hide", "Show or hide"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reset", "Reset"),
    ]

    def __init__(
        self, names: Sequence[str], shown: Collection[str], order: SortOrder | None
    ) -> None:
        super().__init__()
        self._names = names
        self._shown = set(shown)
        self._order = order
        self._list = OptionList(*(Option(self._line(name)) for name in names), id="columns")

    def compose(self) -> ComposeResult:
        """The list of attributes."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "Columns and order"
            dialog.border_subtitle = "Space show/hide · s sort · r reset · Enter done · Esc cancel"
            yield self._list

    def on_mount(self) -> None:
        """Put the cursor into the list of columns."""
        self._list.focus()

    def on_option_list_option_selected(self) -> None:
        """Enter was pressed: done."""
        names = tuple(name for name in self._names if name in self._shown)
        self.dismiss(ColumnsRequest(names, self._order))

    def action_show_or_hide(self) -> None:
        """Show or hide the column under the cursor."""
        if self._list.highlighted is not None:
            self._shown ^= {self._names[self._list.highlighted]}
            self._update()

    def action_sort(self) -> None:
        """Sort by the column under the cursor: the largest first, the smallest, not at all."""
        if self._list.highlighted is not None:
            self._order = SortOrder.after(self._order, self._names[self._list.highlighted])
            self._update()

    def action_reset(self) -> None:
        """The columns of the selectors, in the order of arrival."""
        self.dismiss(ColumnsRequest(None, None))

    def _update(self) -> None:
        for at, name in enumerate(self._names):
            self._list.replace_option_prompt_at_index(at, self._line(name))

    def _line(self, name: str) -> Text:
        shown = "[x]" if name in self._shown else "[ ]"
        return Text(f"{shown} {one_line(name)}{sort_mark(name, self._order)}", no_wrap=True)
