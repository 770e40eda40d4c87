"""The application: three main screens over one attachment, the tick, and `run` with exit codes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.screen import Screen

from canopy.client.errors import CommandTimeoutError, ControlError, DeniedError
from canopy.tui.constants import POLL_TICKS, RATE_TICKS, TELEMETRY_PERIOD, TICK
from canopy.tui.model.attachment import Attachment, Changes
from canopy.tui.model.client import Connector, connector
from canopy.tui.model.export import AsObject
from canopy.tui.model.saved import SavedSubscriptions, saved_path
from canopy.tui.palette import ActionProvider, actions_of
from canopy.tui.screens.base import MainScreen
from canopy.tui.screens.help import HelpScreen
from canopy.tui.screens.live import LiveScreen
from canopy.tui.screens.overlay import OverlayScreen
from canopy.tui.screens.streams import StreamsScreen
from canopy.tui.themes import DARK, LIGHT
from overlay.client import Done, Failed, Feed, Reply

# docs/reference/commands.md, exit codes
OK, FAILURE, USAGE, UNREACHABLE, DENIED, TIME_OUT = 0, 1, 2, 3, 4, 5


class CanopyApp(App[int]):
    """The terminal UI of the node that `connect` connects to. `as_object` makes the JSON that
    events are copied and saved as; `saved` is where the subscriptions are kept (None: nowhere), and
    `fresh` starts without them."""

    TITLE = "canopy"
    CSS_PATH = "canopy.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ActionProvider}
    DEFAULT_MODE = "live"
    HORIZONTAL_BREAKPOINTS = [
        (0, "-narrow"),
        (110, "-wide"),  # below, two panes side by side leave neither enough
    ]
    VERTICAL_BREAKPOINTS = [
        (0, "-low"),
        (34, "-high"),  # room for list and details at once
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "switch_mode('live')", "Events", show=False),
        Binding("2", "switch_mode('overlay')", "Overlay", show=False),
        Binding(
            "3",
            "switch_mode('streams')",
            "Streams",
            show=False,
            tooltip="Streams: shards, leaders, consumers, rows",
        ),
        Binding("question_mark,f1", "help", "Help", tooltip="What the keys do"),
        Binding("t", "toggle_light", "Light or dark", show=False, tooltip="Light or dark theme"),
        Binding("q", "quit", "Quit", tooltip="Leave; subscriptions are saved for the next start"),
    ]

    def __init__(
        self,
        connect: Connector,
        as_object: AsObject,
        saved: SavedSubscriptions | None = None,
        fresh: bool = False,
    ) -> None:
        super().__init__()
        self.attachment = Attachment(connect, time.monotonic, saved)
        self.fresh = fresh
        self.tracebacks = True  # of internal errors; `run` sets it from the environment
        self.ticks = 0
        self._pending = Changes(False, False, False)
        self._painting = False
        # No animations: over a slow line every frame costs.
        self.animation_level = "none"
        self.add_mode("live", lambda: LiveScreen(self.attachment, time.monotonic, as_object))
        self.add_mode("overlay", lambda: OverlayScreen(self.attachment, time.monotonic))
        self.add_mode("streams", lambda: StreamsScreen(self.attachment, time.monotonic))

    def on_mount(self) -> None:
        """Register the themes, connect to the node, start the tick."""
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name
        self.attachment.start(self.fresh)
        self.ticking = self.set_interval(TICK, self.tick)

    def on_unmount(self) -> None:
        """End all subscriptions and threads."""
        self.attachment.stop()

    def leave_on_signals(self) -> None:
        """Exit on SIGTERM and SIGHUP in order, so that the terminal is restored."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.exit)

    def _handle_exception(self, error: Exception) -> None:
        # Textual would print a page of source and variables, which is only for developers.
        if self.tracebacks:
            super()._handle_exception(error)
            return
        lines = str(error).strip().splitlines()
        self.exit(
            return_code=FAILURE,
            message=f"canopy tui: internal error, {type(error).__name__}: "
            f"{lines[0] if lines else ''} (CANOPY_DEBUG=1 shows more)",
        )

    @property
    def main_screen(self) -> MainScreen | None:
        """The visible main screen, perhaps under a dialog; None before it is composed."""
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen) and screen.drawable:
                return screen
        return None

    def tick(self) -> None:
        """Take the inbox and draw the changes once; skipped while the last are being drawn."""
        screen = self.main_screen
        if self._painting or screen is None or not self.is_running:
            return  # not running: the widgets are being removed
        self.ticks += 1
        changes = self.attachment.pump()
        if changes.connection and self.attachment.up:
            self._poll(screen)
        while self.attachment.notices:
            self.notify(self.attachment.notices.pop(0), timeout=8, markup=False)
        if any(changes):
            self._painting = True
            screen.tick(changes)
            self.call_after_refresh(self._painted)
        if self.ticks % RATE_TICKS == 0:
            self.attachment.update_rates()
            screen.update_rates()
        if self.ticks % POLL_TICKS == 0:
            self._poll(screen)

    def _painted(self) -> None:
        self._painting = False

    def _poll(self, screen: MainScreen) -> None:
        self.attachment.poll_status()
        screen.poll()

    async def action_other_screen(self) -> None:
        """Switch between the events and the overlay."""
        await self.switch_mode("live" if self.current_mode == "overlay" else "overlay")

    def action_help(self) -> None:
        """Show the help, unless it is shown already."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def action_help_quit(self) -> None:
        """Say which key quits, after Ctrl-C was pressed."""
        self.notify("Press q to quit", timeout=4)

    def action_toggle_light(self) -> None:
        """Switch between the dark and the light theme."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The commands of the palette: every action with a key, and some without."""
        yield from actions_of(self, screen)
        yield SystemCommand(
            "Start telemetry",
            "Let the node publish its machine's telemetry",
            self._feed(TELEMETRY_PERIOD),
        )
        yield SystemCommand("Stop telemetry", "End the node's telemetry feed", self._feed(0.0))
        yield SystemCommand("Theme", "Choose the colours", self.action_change_theme)

    def _feed(self, period: float) -> Callable[[], None]:
        def on_reply(reply: Reply) -> None:
            if isinstance(reply, Done):
                self.notify("telemetry started" if period else "telemetry stopped", timeout=3)
            elif isinstance(reply, Failed):
                self.notify(reply.reason, severity="error", markup=False)

        return lambda: self.attachment.ask(
            lambda request: Feed(request, "telemetry", period), on_reply
        )


def run(
    connect: str | None, as_object: AsObject, fresh: bool = False, seal: str | None = None
) -> int:
    """Run the UI on the node of the data folder `connect` (None: the default one), if `fresh`
    without the saved subscriptions. `as_object` makes JSON of a delivery; `seal`: a seal file.

    Returns the exit code. Without a terminal or a running node it prints a message and returns.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("canopy tui: needs a terminal; use `canopy sub` in a pipe", file=sys.stderr)
        return USAGE
    try:
        attach = connector(connect, seal)
        attach().close()
    except (ControlError, OSError) as error:
        print(f"canopy tui: {error}", file=sys.stderr)
        if isinstance(error, DeniedError):
            return DENIED
        return TIME_OUT if isinstance(error, CommandTimeoutError) else UNREACHABLE
    app = CanopyApp(attach, as_object, saved=SavedSubscriptions(saved_path(connect)), fresh=fresh)
    app.tracebacks = bool(os.environ.get("CANOPY_DEBUG"))
    app.call_later(app.leave_on_signals)
    app.run()
    return app.return_code or OK
