"""The pane for one event: its attributes and payload, and why it was delivered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Static, TabbedContent, TabPane

from canopy.client.seals import said_of, seal_of
from canopy.tui.model.log import LogRow
from canopy.tui.model.text import show_payload, show_time, show_value
from overlay.client import Explained, Failed, Reply
from overlay.info import ExplanationLine, Reason
from overlay.phrases import counted, visible

# Marks; colours only repeat what the mark means.
VERDICTS = {
    "true": ("✓", "bold green"),
    "false": ("✗", "bold red"),
    "unknown": ("?", "bold yellow"),
}
LEGEND = "✓ true   ✗ false   ? unknown (absent, NULL, or of another type)"
INDENT = 2


def explanation(explained: Explained, first: str = "") -> Text:
    """Return the whole explanation, with the subscription `first` before the others."""
    text = Text()
    reasons = sorted(explained.reasons, key=lambda reason: reason.subscription != first)
    for reason in reasons:
        _reason(text, reason)
    if not reasons:
        nodes = ", ".join(f"{node} ({address})" for node, address in explained.shown_at)
        where = f"It was shown at {nodes}." if nodes else "Ask where the subscription was made."
        text.append(f"This node has no subscription to explain. {visible(where)}\n\n", "dim")
    if explained.path:
        text.append("Path\n", "bold underline")
        for number, step in enumerate(explained.path, 1):
            text.append(f"{number:>3}  ", "dim").append(f"{visible(step)}\n")
    if any(reason.verdicts for reason in reasons):
        text.append(f"\n{LEGEND}", "dim")
    return text


def _reason(text: Text, reason: Reason) -> None:
    mark, word = ("✓", "delivered to") if reason.delivered else ("✗", "not delivered to")
    text.append(f"{mark} {word} ", "bold green" if reason.delivered else "bold red")
    text.append(f"{visible(reason.name or reason.subscription)}\n", "bold")
    if reason.attribute:
        text.append("  pivot ").append(visible(reason.attribute), "bold")
        if reason.lo or reason.hi:
            text.append("  virtual node ").append(f"[{reason.lo} … {reason.hi})", "bold")
        if reason.delivered:
            text.append(f"  {counted(reason.hops, 'hop')}", "bold")
        text.append("\n")
    if reason.summary:
        text.append(f"  {visible(reason.summary)}\n", "dim" if reason.delivered else "")
    if not reason.verdicts:
        text.append(f"  {visible(reason.selector)}\n")
    for verdict in reason.verdicts:
        _verdict(text, verdict)
    text.append("\n")


def _verdict(text: Text, verdict: ExplanationLine) -> None:
    mark, style = VERDICTS.get(verdict.verdict, VERDICTS["unknown"])
    text.append(" " * INDENT * (verdict.depth + 1)).append(f"{mark} ", style)
    text.append(visible(verdict.text))
    if verdict.seen:
        text.append(f"   saw {visible(verdict.seen)}", "dim italic")
    text.append("\n")


NOTHING = "Select an event: ↑ in the list, Enter shows it here, w explains why it was delivered."


class DetailPane(Vertical):
    """The pane of the selected event, with two tabs."""

    @dataclass
    class WhyRequested(Message):
        """The tab *Why* is visible, and has no explanation of the event `identity` yet."""

        identity: str

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._row: LogRow | None = None
        self._asked = ""  # identity of the event of the tab *Why*
        self._first = ""

    def compose(self) -> ComposeResult:
        """Yield the tabs *Event* and *Why*."""
        with TabbedContent():
            with TabPane("Event", id="event"), VerticalScroll():
                yield Static(NOTHING, id="all-of-it")
            with TabPane("Why", id="why"), VerticalScroll():
                yield Static(NOTHING, id="because")

    @property
    def tab(self) -> str:
        """The visible tab, "event" or "why"."""
        return self.query_one(TabbedContent).active

    @tab.setter
    def tab(self, tab: str) -> None:
        self.query_one(TabbedContent).active = tab

    def show(self, row: LogRow | None, name_of: Callable[[int], str], first: str = "") -> None:
        """Show another event; `first` is the node's id of the subscription to explain first."""
        self._row = row
        self._first = first
        self.query_one("#all-of-it", Static).update(NOTHING if row is None else _all(row, name_of))
        if row is None or row.event.identity != self._asked:
            self._asked = ""
            self.query_one("#because", Static).update(NOTHING)
        self._ask()

    def show_why(self) -> None:
        """Show the tab *Why*."""
        self.tab = "why"
        self._ask()

    def explain(self, identity: str, reply: Reply) -> None:
        """Show the node's reply about the event `identity`."""
        if identity != self._asked:
            return  # another event was selected meanwhile
        if isinstance(reply, Explained):
            content: RenderableType = explanation(reply, self._first)
        else:
            reason = reply.reason if isinstance(reply, Failed) else f"unexpected {reply!r:.80}"
            content = Text(f"✗ The node cannot explain it: {reason}")
            self._asked = ""  # may be requested again
        self.query_one("#because", Static).update(content)

    def on_tabbed_content_tab_activated(self, event: TabbedContent.TabActivated) -> None:
        """Request the explanation when the tab becomes visible, not before."""
        event.stop()
        self._ask()

    def _ask(self) -> None:
        if self.tab == "why" and self._row is not None and not self._asked:
            self._asked = self._row.event.identity
            self.query_one("#because", Static).update(Text("waiting for the node …", "dim"))
            self.post_message(self.WhyRequested(self._asked))


def _all(row: LogRow, name_of: Callable[[int], str]) -> RenderableType:
    event = row.event
    head = Text()
    head.append(show_time(event.time), "bold").append("  identity ")
    head.append(event.identity, "bold").append("\n")
    for key, delivery in row.deliveries.items():
        head.append("→ ").append(visible(name_of(key)), "bold")
        head.append("  through the tree of ").append(visible(delivery.attribute) or "?", "bold")
        if delivery.lo or delivery.hi:
            head.append(f" [{visible(delivery.lo)} … {visible(delivery.hi)})")
        hops = f", {counted(delivery.hops, 'hop')}"
        head.append(f"{hops}, {delivery.latency_ms:.1f} ms\n")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True, max_width=28)
    table.add_column(overflow="fold")
    table.add_column(style="dim")
    for name, value in event.attributes.items():
        kind = {bool: "boolean", int: "number", float: "number", str: "string"}.get(type(value), "")
        table.add_row(Text(visible(name)), Text(show_value(value)), kind)
    if said := said_of(event):
        head.append(f"the payload {said}\n", "bold red" if seal_of(event) == "false" else "")
    if not event.payload:
        return Group(head, table)
    kind = f" of type {visible(event.payload_type)}" if event.payload_type else ""
    title = Text(f"\npayload{kind}, {len(event.payload):,} bytes", "bold")
    return Group(head, table, title, Text(show_payload(event.payload)))
