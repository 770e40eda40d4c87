"""The first line: the node, its state, and the rate of deliveries."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from canopy.tui.model.rates import show_rate
from canopy.tui.model.text import one_line, short
from overlay.client import Status
from overlay.wording import counted


class TopBar(Static):
    """One line, which is drawn only if its text changed."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = Text()

    def show(self, status: Status | None, up: bool, per_second: float, subscriptions: int) -> None:
        """Show the state; `up` is whether the node is connected, `per_second` deliveries."""
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(" ▲ canopy ", "bold reverse")
        if status is None:
            text.append("  connected" if up else "  not connected", "dim")
        else:
            name = one_line(status.name)
            text.append(f"  {name + ' ' if name else ''}{short(status.node)}", "bold")
            text.append(f"  {self._state(status, up)}")
        text.append(f"   {show_rate(per_second)}", "bold")
        text.append(f" for {counted(subscriptions, 'subscription')}", "dim")
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
