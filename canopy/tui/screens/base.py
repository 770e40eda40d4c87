"""What both main screens have: the top bar, the banner, the footer.

The app calls `tick` when something changed (at most ten times a second), `update_rates` once a
second and `poll` every other second, of the visible screen only.
"""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer

from canopy.tui.model.attachment import Attachment, Changes
from canopy.tui.widgets.banner import Banner
from canopy.tui.widgets.top_bar import TopBar


class MainScreen(Screen[None]):
    """A screen on an `Attachment`. `clock` is the same as the attachment's."""

    def __init__(self, attachment: Attachment, clock: Callable[[], float]) -> None:
        super().__init__()
        self.attachment = attachment
        self.clock = clock
        self.drawable = False  # from composed to unmounted; a tick may come before and after

    def compose(self) -> ComposeResult:
        """Top bar, banner, body, footer."""
        yield TopBar()
        yield Banner()
        yield from self.body()
        yield Footer(show_command_palette=False, compact=True)

    def body(self) -> ComposeResult:
        """The widgets of the subclass."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """All widgets are mounted (subclasses' handlers have run before this one)."""
        self.drawable = True

    def on_unmount(self) -> None:
        """The widgets are being removed."""
        self.drawable = False

    def tick(self, changes: Changes) -> None:
        """Draw the changes since the last tick."""
        if changes.connection:
            self.show_health()

    def update_rates(self) -> None:
        """Draw the rates; called once a second."""
        self.show_health()

    def poll(self) -> None:
        """Request from the node what this screen shows."""

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
        """The screen is visible again: bring it up to date."""
        if self.drawable:
            self.show_health()
            self.poll()
