"""One attribute's tree (C6): the cluster that owns it, and its virtual nodes in order."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from canopy.tui.model.text import fit, one_line, short
from overlay.client import Failed, Located, Reply
from overlay.wording import counted

BAR, SHORT_BAR = 24, 8  # cells of the longest bar of registrations, and where room is scarce
WIDE = 70  # cells from which there is room
SHOWN = 200  # virtual nodes that are drawn: more than are scrolled through


class TreePicture(Static):
    """Draws the tree of an attribute, its owner and its virtual nodes with their hosts (the reply
    to `Where`)."""

    def show(self, attribute: str, reply: Reply | None, own: str) -> None:
        """Show `reply`, None before it arrives; `own` is the id of this node."""
        if isinstance(reply, Located):
            self.update(_tree(reply, own, BAR if self.size.width >= WIDE else SHORT_BAR))
        elif isinstance(reply, Failed):
            self.update(Text(f"✗ {one_line(attribute)}: {reply.reason}"))
        elif attribute:
            self.update(Text(f"waiting for the tree of {one_line(attribute)} …", "dim"))
        else:
            self.update(Text("no attribute is known yet", "dim"))


def _tree(located: Located, own: str, bar: int) -> Text:
    cluster = located.cluster
    nodes = located.virtual_nodes
    total = sum(node.registrations for node in nodes)
    text = Text()
    text.append(one_line(located.attribute), "bold").append("\n")
    mark = "▸" if own == cluster.primary else " "
    text.append("owner    ", "dim").append(f"cluster {short(cluster.key)}, epoch {cluster.epoch}\n")
    text.append("primary  ", "dim").append(f"★{mark}{short(cluster.primary)}\n")
    text.append("version  ", "dim").append(f"{located.version[0]}.{located.version[1]}\n")
    text.append("tree     ", "dim")
    text.append(
        f"{counted(len(nodes), 'virtual node')}, height "
        f"{max(0, (len(nodes) - 1).bit_length())}, {total:,} registered\n\n"
    )
    if not nodes:
        text.append("There are no subscriptions to this attribute.\n", "dim")
        return text
    most = max(1, *(node.registrations for node in nodes))
    width = max(len(f"[{fit(n.lo, 18)} … {fit(n.hi, 18)})") for n in nodes[:SHOWN])
    for node in nodes[:SHOWN]:
        interval = f"[{fit(one_line(node.lo), 18)} … {fit(one_line(node.hi), 18)})"
        length = round(bar * node.registrations / most)
        text.append(f"{interval:<{width}}  ", "bold")
        for host in (node.host, *node.others):
            text.append(f"{'▸' if host == own else ' '}{short(host)}  ")
        text.append("█" * length, "green").append("░" * (bar - length), "dim")
        text.append(f" {node.registrations:,}\n")
    if len(nodes) > SHOWN:
        text.append(f"… {len(nodes) - SHOWN:,} more\n", "dim")
    return text
