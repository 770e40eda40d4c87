"""The help: keys, marks, and examples of selectors."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

_KEYS = (
    (
        "Everywhere",
        (
            ("1  2  3  o", "events / overlay / streams / the other one"),
            ("Ctrl+P", "command palette: every action by name"),
            ("Tab  Shift+Tab", "next pane, previous pane (heavy border)"),
            ("u", "undo: what was removed, changed or cleared"),
            ("t", "light or dark theme"),
            ("?  F1", "this help"),
            ("q", "quit; subscriptions are made again next time"),
        ),
    ),
    (
        "Subscriptions",
        (
            ("a", "add: type a selector, Tab completes"),
            ("↑ ↓", "show the events of one, or of all"),
            ("p", "pause or resume it (at the node too)"),
            ("e", "change its selector"),
            ("d  Delete", "remove it (u brings it back)"),
        ),
    ),
    (
        "Events",
        (
            ("↑ ↓ PgUp PgDn", "move; the list stops following"),
            ("End  f", "follow the newest event again"),
            ("← →", "scroll the columns"),
            ("Enter", "the whole event, with payload"),
            ("w", "why it was delivered: path, pivot, verdicts"),
            ("/", "filter by words; Esc clears"),
            ("Space", "pause the list, or resume it"),
            ("s", "sort by a column (or click its title), choose columns"),
            ("y  x", "copy the event as JSON; save it, or all, to a file"),
            ("n", "publish a test event (like the selected one)"),
            ("c", "clear the list (u brings it back)"),
        ),
    ),
    (
        "Overlay",
        (
            ("← →", "tabs: node, ring, trees, incidents"),
            ("Enter", "a cluster's members, an attribute's tree"),
        ),
    ),
    (
        "Streams",
        (
            ("l  p", "follow the selected stream; replay it from a place or time"),
            ("s", "stop reading; the rows stay"),
            ("w  Enter", "what became of the selected row: kept, read by whom"),
            ("d", "the dead letters of the selected stream's groups, and why"),
        ),
    ),
    (
        "Marks",
        (
            ("● ◌ ‖ ✗", "live, waiting, paused, refused"),
            ("✓ ✗ ?", "true, false, unknown"),
            ("★ ☆ ·", "primary, standby, match broker"),
            ("▸", "this node"),
        ),
    ),
)
_SELECTORS = (
    "magnitude >= 5.5 AND place LIKE '%Chile%'",
    "type = 'cpu' AND cpu_percent BETWEEN 50 AND 100",
    "status IN ('red', 'orange') OR NOT tsunami = 0",
    '"odd name" IS NOT NULL AND bytes / 1024 > 64',
)


class HelpScreen(ModalScreen[None]):
    """The help as a dialog."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close"),
    ]

    def compose(self) -> ComposeResult:
        """The help as one scrollable text."""
        with VerticalScroll(classes="dialog help") as dialog:
            dialog.border_title = "Help"
            dialog.border_subtitle = "Esc close · ↑ ↓ scroll"
            yield Static(_text())


def _text() -> Group:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for title, keys in _KEYS:
        table.add_row(Text(title, "bold underline"), "")
        for key, meaning in keys:
            table.add_row(Text(f"  {key}"), Text(meaning))
        table.add_row("", "")
    examples = Text("Selectors\n", "bold underline")
    examples.append(
        "An event is delivered if the selector is true; absent attributes are unknown.\n", "dim"
    )
    for selector in _SELECTORS:
        examples.append(f"  {selector}\n")
    return Group(table, examples)
