"""The parts of all main screens: the top bar, the banner, the footer.

The app calls `tick` when something changed (at most ten times a second), `update_rates` once a
second and `poll` every other second, for the visible screen only.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer, Static

from canopy.tui.model.attachment import Attachment, Changes
from canopy.tui.model.rates import show_rate
from canopy.tui.model.text import short
from overlay.client import Status
from overlay.phrases import counted, visible


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
            name = visible(status.name)
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


class Banner(Static):
    """A line with a warning; hidden while it has no text."""

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self.text = ""

    def show_text(self, text: str) -> None:
        """Show `text`; "" hides the banner."""
        if text != self.text:
            self.text = text
            self.display = bool(text)
            self.update(text)

    def show_disconnected(self, reason: str, seconds: float) -> None:
        """Show that the connection is lost, for `reason`, and will be tried again in `seconds`."""
        when = f"in {seconds:.0f} s" if seconds >= 1 else "now"
        self.show_text(
            f"⚠ The node is gone: {reason}. Trying again {when}; "
            "subscriptions are made again when it is back."
        )


class MainScreen(Screen[None]):
    """A screen on an `Attachment`. `clock` is the same as the attachment's."""

    def __init__(self, attachment: Attachment, clock: Callable[[], float]) -> None:
        super().__init__()
        self.attachment = attachment
        self.clock = clock
        self.drawable = False  # from composed to unmounted; a tick may come before and after

    def compose(self) -> ComposeResult:
        """Yield top bar, banner, body and footer."""
        yield TopBar()
        yield Banner()
        yield from self.body()
        yield Footer(show_command_palette=False, compact=True)

    def body(self) -> ComposeResult:
        """Yield the widgets of the subclass."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Note that all widgets are mounted (subclasses' handlers have run before this one)."""
        self.drawable = True

    def on_unmount(self) -> None:
        """Note that the widgets are being removed."""
        self.drawable = False

    def tick(self, changes: Changes) -> None:
        """Draw the changes since the last tick."""
        if changes.connection:
            self.show_health()

    def update_rates(self) -> None:
        """Draw the rates; called once a second."""
        self.show_health()

    def poll(self) -> None:
        """Request the data of this screen from the node."""

    def show_health(self) -> None:
        """Draw the top bar and the banner."""
        attachment = self.attachment
        bar = self.query_one(TopBar)
        bar.show(
            attachment.status,
            attachment.up,
            attachment.rate.per_second,
            len(attachment.subscriptions),
        )
        banner = self.query_one(Banner)
        if attachment.up:
            banner.show_text("")
        elif attachment.reason:
            banner.show_disconnected(
                attachment.reason, max(0.0, attachment.retry_at - self.clock())
            )

    def on_screen_resume(self) -> None:
        """Update the screen, which is visible again."""
        if self.drawable:
            self.show_health()
            self.poll()
