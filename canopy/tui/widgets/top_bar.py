"""The first line: which node this is and how it is, and how much comes in."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from canopy.tui.model.rates import show_rate
from canopy.tui.model.text import one_line, short
from overlay.client import Status


class TopBar(Static):
    """One line; `show` draws it only when it says something new."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = Text()

    def show(self, status: Status | None, up: bool, per_second: float, subscriptions: int) -> None:
        """Say how things are."""
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(" ▲ canopy ", "bold reverse")
        if status is None:
            text.append("  attached" if up else "  not attached", "dim")
        else:
            name = one_line(status.name)
            text.append(f"  {name + ' ' if name else ''}{short(status.node)}", "bold")
            text.append(f"  {self._state(status, up)}")
        text.append(f"   {show_rate(per_second)}", "bold")
        text.append(f" for {subscriptions} subscription{'' if subscriptions == 1 else 's'}", "dim")
        if status is not None and status.cluster:
            text.append(f"   {status.role} of cluster {short(status.cluster, 6)}", "dim")
        if text != self._shown or text.spans != self._shown.spans:
            self._shown = text
            self.update(text)

    @staticmethod
    def _state(status: Status, up: bool) -> str:
        if not up:
            return "✗ gone"
        if status.draining:
            return "◌ draining"
        return "● ready" if status.ready else "◌ not ready yet"
