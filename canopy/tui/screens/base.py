"""What both main screens have: the top bar, the banner, the footer, and the beat.

The app calls `beat` when something came (at most ten times a second), `second` once a second and
`poll` every other second; only the screen in sight is called.
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
        self.drawable = False  # between composed and unmounted; a beat may come before and after

    def compose(self) -> ComposeResult:
        """Head, body, foot."""
        yield TopBar()
        yield Banner()
        yield from self.body()
        yield Footer(show_command_palette=False, compact=True)

    def body(self) -> ComposeResult:
        """What the screen is for."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """All widgets are there (subclasses' handlers have run before this one)."""
        self.drawable = True

    def on_unmount(self) -> None:
        """They go."""
        self.drawable = False

    def beat(self, changes: Changes) -> None:
        """Something came."""
        if changes.connection:
            self.show_health()

    def second(self) -> None:
        """A second has passed."""
        self.show_health()

    def poll(self) -> None:
        """Ask the node what this screen shows."""

    def show_health(self) -> None:
        """The top bar and the banner."""
        held = self.attachment
        bar = self.query_one(TopBar)
        bar.show(held.status, held.up, held.rate.per_second, len(held.subscriptions))
        banner = self.query_one(Banner)
        if held.up:
            banner.say("")
        elif held.reason:
            banner.gone(held.reason, max(0.0, held.retry_at - self.clock()))

    def on_screen_resume(self) -> None:
        """In sight again: be up to date."""
        if self.drawable:
            self.show_health()
            self.poll()
