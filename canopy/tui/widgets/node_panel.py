"""This node in a few lines: identity, state, role, and which of its peers were reached."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from canopy.tui.model.text import one_line, short, show_duration
from overlay.client import Status
from overlay.wording import counted

LABEL = 14  # cells of the longest label and a gap


class NodePanel(Static):
    """Shows the `Status` of the node."""

    def show(self, status: Status | None) -> None:
        """Show `status`; None before the first reply."""
        self.update(Text("waiting for the node …", "dim") if status is None else _text(status))


def _text(status: Status) -> Text:
    text = Text()
    state = "draining" if status.draining else ("ready" if status.ready else "not ready yet")
    where = f"{status.role} of {short(status.cluster, 10)}" if status.cluster else "in no cluster"
    lines = [
        ("node", status.node + (f"  “{one_line(status.name)}”" if status.name else "")),
        ("address", one_line(status.address)),
        ("state", f"{'●' if status.ready and not status.draining else '◌'} {state}"),
        ("cluster", where),
        ("ring", short(status.ring, 16) or "none known"),
        ("routing", status.routing),
        ("neighbours", f"{status.neighbours}, {counted(status.links, 'link')}"),
        ("subscriptions", str(status.subscriptions)),
        ("trees", f"{status.trees} with virtual nodes here"),
        ("health", one_line(status.health) or "not measured yet"),
        ("pending", f"{status.pending:,} under way"),
        ("process", f"{status.pid}, start {status.incarnation}, up {show_duration(status.uptime)}"),
    ]
    for label, value in lines:
        text.append(f"{label:<{LABEL}}", "dim").append(f"{value}\n")
    text.append("\npeer list", "bold")
    text.append(f" ({_reached(status)} of {len(status.seeds)} reached)\n" if status.seeds else "\n")
    if not status.seeds:
        text.append("empty: this node founded the ring, or waits to be contacted\n", "dim")
    for address, health in status.seeds.items():
        good = health == "reached"
        text.append("✓ " if good else "✗ ", "bold green" if good else "bold red")
        text.append(one_line(address))
        text.append("" if good else f"  {one_line(health)}", "dim").append("\n")
    return text


def _reached(status: Status) -> int:
    return sum(health == "reached" for health in status.seeds.values())
