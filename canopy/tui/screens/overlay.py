"""The overlay as this node sees it (P8): the node, its neighbours, the ring, trees, incidents."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Static, TabbedContent, TabPane

from canopy.tui.constants import CLUSTER_ATTRIBUTES
from canopy.tui.model.attachment import Attachment
from canopy.tui.model.rates import Rates, show_rate
from canopy.tui.model.text import short, show_duration
from canopy.tui.screens.base import MainScreen
from canopy.tui.widgets.ring_picture import RingPicture, TreePicture, arc, members
from canopy.tui.widgets.synced_table import SyncedTable
from overlay.client import (
    Attributes,
    Failed,
    GetAttributes,
    GetIncidents,
    GetPeers,
    GetRing,
    Incidents,
    Peers,
    Reply,
    RingClusters,
    Status,
    Where,
)
from overlay.info import ClusterInfo
from overlay.phrases import counted, visible

ROLE_MARKS = {"primary": "★", "standby": "☆", "broker": "·"}


class ClusterDetail(Static):
    """The pane with one cluster's members, arc, epoch and trees (`ClusterInfo`)."""

    def show(self, cluster: ClusterInfo | None, own: str) -> None:
        """Show `cluster`, or nothing; `own` is the id of this node."""
        self.update(Text("") if cluster is None else _cluster_text(cluster, own))


def _cluster_text(cluster: ClusterInfo, own: str) -> Text:
    text = Text()
    text.append(f"cluster {short(cluster.key, 12)}", "bold")
    text.append(f"  epoch {cluster.epoch}, owns {arc(cluster).share:.1%} of the keys: ")
    text.append(f"({short(cluster.start)} … {short(cluster.key)}]\n", "dim")
    if cluster.led_for >= 0:
        text.append(f"the primary has led for {show_duration(cluster.led_for)}\n", "dim")
    for role, node in members(cluster):
        mark = "▸" if node == own else " "
        text.append(f"{mark} {ROLE_MARKS[role]} ", "bold").append(f"{role:<8} ", "dim")
        text.append(node, "bold" if node == own else "")
        text.append(f"  {visible(cluster.addresses.get(node, ''))}", "dim")
        text.append("  ✗ silent\n" if node in cluster.silent else "\n", "bold red")
        if reason := cluster.sub_healthy.get(node):
            text.append(f"    sub-healthy: {visible(reason)}\n", "yellow")
    names = [visible(name) for name in cluster.attributes[:CLUSTER_ATTRIBUTES]]
    more = len(cluster.attributes) - len(names)
    text.append(f"\n{counted(len(cluster.attributes), 'attribute tree')}  ", "bold")
    text.append(", ".join(names) + (f" and {more} more" if more else ""))
    return text


LABEL = 14  # cells of the longest label and a gap


class NodePanel(Static):
    """Shows the node's `Status`."""

    def show(self, status: Status | None) -> None:
        """Show `status`; None before the first reply."""
        self.update(Text("waiting for the node …", "dim") if status is None else _text(status))


def _text(status: Status) -> Text:
    text = Text()
    state = "draining" if status.draining else ("ready" if status.ready else "not ready yet")
    where = f"{status.role} of {short(status.cluster, 10)}" if status.cluster else "in no cluster"
    lines = [
        ("node", status.node + (f"  “{visible(status.name)}”" if status.name else "")),
        ("address", visible(status.address)),
        ("state", f"{'●' if status.ready and not status.draining else '◌'} {state}"),
        ("cluster", where),
        ("ring", short(status.ring, 16) or "none known"),
        ("routing", status.routing),
        ("neighbours", f"{status.neighbours}, {counted(status.links, 'link')}"),
        ("subscriptions", str(status.subscriptions)),
        ("trees", f"{status.trees} with virtual nodes here"),
        ("health", visible(status.health) or "not measured yet"),
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
        text.append(visible(address))
        text.append("" if good else f"  {visible(health)}", "dim").append("\n")
    return text


def _reached(status: Status) -> int:
    return sum(health == "reached" for health in status.seeds.values())


TABS = ("node", "ring", "trees", "incidents")
PEER_COLUMNS = ("", "node", "address", "link", "age", "sent", "received")
CLUSTER_COLUMNS = ("", "cluster", "keys", "epoch", "★", "☆", "nodes", "trees")
INCIDENT_COLUMNS = ("", "ago", "what", "node", "cluster", "epoch", "")
MARKS = {
    "link down": "✗",
    "silent": "✗",
    "member gone": "✗",
    "fenced": "✗",
    "identity conflict": "✗",
    "elected": "★",
}


def counter_title(name: str) -> str:
    """Return the name of a counter as `canopy status` shows it."""
    return visible(name.replace("_", " "))


class OverlayScreen(MainScreen):
    """Four tabs; only the data of the visible tab is requested from the node."""

    TITLE = "overlay"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "tab(-1)", "Previous tab", show=False),
        Binding("right_square_bracket", "tab(1)", "Next tab", key_display="[ ]"),
        Binding("r", "poll", "Refresh", tooltip="Request the state now"),
        Binding("o,escape", "app.other_screen", "Events", tooltip="Back to the events"),
    ]

    def __init__(self, attachment: Attachment, clock: Callable[[], float]) -> None:
        super().__init__(attachment, clock)
        self._counter_rates = Rates()
        self._ring: tuple[ClusterInfo, ...] = ()
        self._names: tuple[str, ...] = ()
        self._tree = ""  # the attribute whose tree is shown

    def body(self) -> ComposeResult:
        """Yield the tabs: node, ring, trees, incidents."""
        with TabbedContent(id="tabs"):
            with TabPane("Node", id="node"), Horizontal(classes="split"):
                with Vertical(id="node-side"):
                    with VerticalScroll(classes="box", id="this-node"):
                        yield NodePanel()
                    with Vertical(classes="box", id="counters-box"):
                        yield SyncedTable(("counter", "total", "rate"), "counters", (1, 2))
                with Vertical(classes="box", id="peers-box"):
                    yield SyncedTable(PEER_COLUMNS, "peers", (4, 5, 6))
            with TabPane("Ring", id="ring"), Horizontal(classes="split"):
                with Vertical(classes="box", id="ring-box"):
                    yield RingPicture(id="picture")
                with Vertical(id="ring-side"):
                    with Vertical(classes="box", id="clusters-box"):
                        yield SyncedTable(CLUSTER_COLUMNS, "clusters", (2, 3, 6, 7))
                    with VerticalScroll(classes="box", id="cluster-box"):
                        yield ClusterDetail()
            with TabPane("Trees", id="trees"), Horizontal(classes="split"):
                with Vertical(classes="box", id="attributes-box"):
                    yield SyncedTable(("", "attribute", "owner"), "attributes")
                with VerticalScroll(classes="box", id="tree-box"):
                    yield TreePicture()
            with (
                TabPane("Incidents", id="incidents"),
                Vertical(classes="box", id="incidents-box"),
            ):
                yield SyncedTable(INCIDENT_COLUMNS, "incidents-table", (1, 5))

    def on_mount(self) -> None:
        """Set the titles of the boxes."""
        for box, title in (
            ("#this-node", "This node"),
            ("#counters-box", "Counters"),
            ("#peers-box", "Neighbours and links"),
            ("#ring-box", "Ring"),
            ("#clusters-box", "Clusters"),
            ("#cluster-box", "Members"),
            ("#attributes-box", "Attributes"),
            ("#tree-box", "Tree"),
            ("#incidents-box", "Incidents: none"),
        ):
            self.query_one(box).border_title = title
        self.query_one("#attributes-box").border_subtitle = "● has a tree  ○ only seen in events"
        self.query_one(NodePanel).show(None)
        self.query_one(TreePicture).show("", None, "")

    @property
    def _own(self) -> str:
        return self.attachment.status.node if self.attachment.status else ""

    @property
    def _tab(self) -> str:
        return self.query_one("#tabs", TabbedContent).active

    def update_rates(self) -> None:
        """Draw the node's last status."""
        super().update_rates()
        self._show_node()

    def poll(self) -> None:
        """Request the data of the visible tab."""
        ask = self.attachment.ask
        if self._tab == "node":
            ask(GetPeers, self._on_peers, poll=True)
        elif self._tab == "incidents":
            ask(GetIncidents, self._on_incidents, poll=True)
        else:
            ask(GetRing, self._on_ring, poll=True)
        if self._tab == "trees":
            ask(GetAttributes, self._on_attributes, poll=True)
            self._ask_tree(poll=True)

    def action_poll(self) -> None:
        """Request the state at once."""
        self.attachment.poll_status()
        self.poll()

    def action_tab(self, by: int) -> None:
        """Show the next tab, or the previous one."""
        at = TABS.index(self._tab) if self._tab in TABS else 0
        self.query_one("#tabs", TabbedContent).active = TABS[(at + by) % len(TABS)]

    def on_tabbed_content_tab_activated(self) -> None:
        """Request the data of the tab."""
        self.poll()

    # -- node -------------------------------------------------------------------------------

    def _show_node(self) -> None:
        status = self.attachment.status
        if status is None or self._tab != "node":
            return
        self.query_one(NodePanel).show(status)
        rates = self._counter_rates.update(status.counters, self.clock())
        self.query_one("#counters", SyncedTable).sync(
            [
                (name, (counter_title(name), f"{total:,}", show_rate(rates.get(name, 0.0))))
                for name, total in sorted(status.counters.items())
            ]
        )

    def _on_peers(self, reply: Reply) -> None:
        if not isinstance(reply, Peers):
            return
        peers = sorted(reply.peers, key=lambda peer: (not peer.neighbour, peer.node))
        self.query_one(
            "#peers-box"
        ).border_title = f"Neighbours ({sum(p.neighbour for p in peers)}) and other links"
        rows = []
        for peer in peers:
            age = str(peer.age) if peer.neighbour else "-"
            mark = "●" if peer.neighbour else "○"
            cells = (mark, short(peer.node), visible(peer.address), peer.state, age)
            rows.append((peer.node, (*cells, f"{peer.sent:,}", f"{peer.received:,}")))
        self.query_one("#peers", SyncedTable).sync(rows)

    # -- incidents --------------------------------------------------------------------------

    def _on_incidents(self, reply: Reply) -> None:
        """Show the losses, elections and recoveries that this node saw, newest first."""
        if not isinstance(reply, Incidents) or not reply.incidents:
            return
        count = len(reply.incidents)
        self.query_one("#incidents-box").border_title = f"Incidents ({count})"
        rows = []
        for number, one in enumerate(reply.incidents):
            epoch = str(one.epoch) if one.cluster else ""
            cells = (MARKS.get(one.what, "·"), show_duration(one.ago), one.what, short(one.node))
            rows.append(
                (str(count - number), (*cells, short(one.cluster), epoch, visible(one.text)))
            )
        self.query_one("#incidents-table", SyncedTable).sync(rows)

    # -- ring -------------------------------------------------------------------------------

    def _on_ring(self, reply: Reply) -> None:
        if isinstance(reply, Failed):
            self.query_one("#ring-box").border_title = f"Ring: {reply.reason}"
        if not isinstance(reply, RingClusters):
            return
        self._ring = reply.clusters
        whole = "" if reply.complete else ", incomplete"
        count = len(reply.clusters)
        self.query_one("#ring-box").border_title = f"Ring of {counted(count, 'cluster')}{whole}"
        rows = []
        for number, cluster in enumerate(reply.clusters, 1):
            own = self._own in (cluster.primary, cluster.standby, *cluster.brokers)
            names = (cluster.primary, cluster.standby, *cluster.brokers)
            cells = (
                f"{'▸' if own and self._own else ' '}{number}",
                short(cluster.key),
                f"{arc(cluster).share:.1%}",
                str(cluster.epoch),
                short(cluster.primary, 6),
                short(cluster.standby, 6) or "-",
                str(len({name for name in names if name})),
                str(len(cluster.attributes)),
            )
            rows.append((cluster.key, cells))
        self.query_one("#clusters", SyncedTable).sync(rows)
        self._show_ring()
        self._show_attributes()

    def _show_ring(self) -> None:
        chosen = self.query_one("#clusters", SyncedTable).chosen
        nodes = {n for c in self._ring for n in (c.primary, c.standby, *c.brokers) if n}
        trees = sum(len(c.attributes) for c in self._ring)
        ring = self.attachment.status.ring if self.attachment.status else ""
        middle = (
            f"ring {short(ring)}",
            counted(len(self._ring), "cluster"),
            counted(len(nodes), "member"),
            counted(trees, "tree"),
        )
        self.query_one(RingPicture).show(self._ring, chosen, middle)
        cluster = next((c for c in self._ring if c.key == chosen), None)
        self.query_one(ClusterDetail).show(cluster, self._own)

    # -- trees ------------------------------------------------------------------------------

    def _on_attributes(self, reply: Reply) -> None:
        if isinstance(reply, Attributes):
            self._names = reply.names
            self._show_attributes()

    def _show_attributes(self) -> None:
        """Show attributes that have a tree, then those that were seen only in events."""
        owner = {name: cluster for cluster in self._ring for name in cluster.attributes}
        rows = []
        for name in sorted({*owner, *self._names}, key=lambda name: (name not in owner, name)):
            cluster = owner.get(name)
            where = short(cluster.key, 6) if cluster else "-"
            rows.append((name, ("●" if cluster else "○", visible(name), where)))
        self.query_one("#attributes", SyncedTable).sync(rows)

    def on_synced_table_chosen(self, event: SyncedTable.Chosen) -> None:
        """Show the cluster or the attribute that was selected."""
        if event.table.id == "clusters":
            self._show_ring()
        elif event.table.id == "attributes" and event.key != self._tree:
            self._tree = event.key
            self.query_one(TreePicture).show(self._tree, None, self._own)
            self._ask_tree(poll=False)

    def _ask_tree(self, poll: bool) -> None:
        attribute = self._tree
        if attribute:
            self.attachment.ask(
                lambda request: Where(request, attribute),
                lambda reply: self._on_tree(attribute, reply),
                poll,
            )

    def _on_tree(self, attribute: str, reply: Reply) -> None:
        if attribute == self._tree:
            self.query_one(TreePicture).show(attribute, reply, self._own)
