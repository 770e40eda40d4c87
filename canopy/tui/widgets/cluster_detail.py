"""One cluster: its members with their roles and addresses, and the attributes that it owns."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from canopy.tui.constants import CLUSTER_ATTRIBUTES
from canopy.tui.model.ring import arc, members
from canopy.tui.model.text import one_line, short, show_duration
from overlay.info import ClusterInfo
from overlay.wording import counted

MARKS = {"primary": "★", "standby": "☆", "broker": "·"}


class ClusterDetail(Static):
    """The pane with one cluster's members, arc, epoch and trees (`ClusterInfo`)."""

    def show(self, cluster: ClusterInfo | None, own: str) -> None:
        """Show `cluster`, or nothing; `own` is the id of this node."""
        self.update(Text("") if cluster is None else _text(cluster, own))


def _text(cluster: ClusterInfo, own: str) -> Text:
    text = Text()
    text.append(f"cluster {short(cluster.key, 12)}", "bold")
    text.append(f"  epoch {cluster.epoch}, owns {arc(cluster).share:.1%} of the keys: ")
    text.append(f"({short(cluster.start)} … {short(cluster.key)}]\n", "dim")
    if cluster.led_for >= 0:
        text.append(f"the primary has led for {show_duration(cluster.led_for)}\n", "dim")
    for role, node in members(cluster):
        mark = "▸" if node == own else " "
        text.append(f"{mark} {MARKS[role]} ", "bold").append(f"{role:<8} ", "dim")
        text.append(node, "bold" if node == own else "")
        text.append(f"  {one_line(cluster.addresses.get(node, ''))}", "dim")
        text.append("  ✗ silent\n" if node in cluster.silent else "\n", "bold red")
        if reason := cluster.sub_healthy.get(node):
            text.append(f"    sub-healthy: {one_line(reason)}\n", "yellow")
    names = [one_line(name) for name in cluster.attributes[:CLUSTER_ATTRIBUTES]]
    more = len(cluster.attributes) - len(names)
    text.append(f"\n{counted(len(cluster.attributes), 'attribute tree')}  ", "bold")
    text.append(", ".join(names) + (f" and {more} more" if more else ""))
    return text
