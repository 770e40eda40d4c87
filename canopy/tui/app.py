"""The application: two main screens over one attachment, the beat, themes, palette, exit codes."""

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
from textual.screen import Screen

from canopy.client.errors import CommandTimeoutError, ControlError, DeniedError
from canopy.tui.model.attachment import Attachment, Changes
from canopy.tui.model.client import Connector, connector
from canopy.tui.palette import actions_of
from canopy.tui.screens.base import MainScreen
from canopy.tui.screens.help import HelpScreen
from canopy.tui.screens.live import LiveScreen
from canopy.tui.screens.overlay import OverlayScreen
from canopy.tui.themes import DARK, LIGHT
from overlay.client import Done, Failed, Feed, Reply

BEAT = 0.1  # seconds: at most ten redraws per second, as much as anybody can read
SECOND = 10  # beats between refreshed rates
POLL = 20  # beats between questions to the node: its gossip moves every 2 s (ViewSettings.period)
TELEMETRY = 1.0  # seconds between samples of the telemetry feed that is started from here

# DESIGN.md, section 6, exit codes
OK, FAILURE, USAGE, UNREACHABLE, DENIED, TIME_OUT = 0, 1, 2, 3, 4, 5


class CanopyApp(App[int]):
    """Attach with `connect`; the clock is injected for tests."""

    TITLE = "canopy"
    CSS_PATH = "canopy.tcss"
    ENABLE_COMMAND_PALETTE = True
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
        Binding("question_mark,f1", "help", "Help", tooltip="What the keys do"),
        Binding("t", "toggle_light", "Light or dark", show=False),
        Binding("q", "quit", "Quit", tooltip="Leave; subscriptions end"),
    ]

    def __init__(self, connect: Connector, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.attachment = Attachment(connect, clock)
        self.tracebacks = True  # of our own faults; `run` asks the environment
        self.beats = 0
        self._clock = clock
        self._pending = Changes(False, False, False)
        self._painting = False
        # Nothing moves by itself: over a slow line every frame costs.
        self.animation_level = "none"
        self.add_mode("live", lambda: LiveScreen(self.attachment, clock))
        self.add_mode("overlay", lambda: OverlayScreen(self.attachment, clock))

    def on_mount(self) -> None:
        """Themes, the node, the beat."""
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name
        self.attachment.start()
        self.beating = self.set_interval(BEAT, self.beat)

    def on_unmount(self) -> None:
        """End the subscriptions."""
        self.attachment.stop()

    def leave_on_signals(self) -> None:
        """End in order, so that the terminal is given back as it was."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.exit)

    def _handle_exception(self, error: Exception) -> None:
        # Textual would print a page of source and variables, which helps nobody but us.
        if self.tracebacks:
            super()._handle_exception(error)
            return
        said = str(error).strip().splitlines()
        self.exit(
            return_code=FAILURE,
            message=f"canopy tui: an internal fault, {type(error).__name__}: "
            f"{said[0] if said else ''} (CANOPY_DEBUG=1 shows more)",
        )

    @property
    def main_screen(self) -> MainScreen | None:
        """The main screen in sight, perhaps under a dialog."""
        for screen in self.screen_stack:
            if isinstance(screen, MainScreen) and screen.drawable:
                return screen
        return None

    def beat(self) -> None:
        """Take in what came, and draw it once. Waits while the last drawing is not out yet."""
        screen = self.main_screen
        if self._painting or screen is None or not self.is_running:
            return  # not running: the widgets are being taken down
        self.beats += 1
        changes = self.attachment.pump()
        if changes.connection and self.attachment.up:
            self._poll(screen)
        if any(changes):
            self._painting = True
            screen.beat(changes)
            self.call_after_refresh(self._painted)
        if self.beats % SECOND == 0:
            self.attachment.roll()
            screen.second()
        if self.beats % POLL == 0:
            self._poll(screen)

    def _painted(self) -> None:
        self._painting = False

    def _poll(self, screen: MainScreen) -> None:
        self.attachment.poll_status()
        screen.poll()

    async def action_other_screen(self) -> None:
        """From the events to the overlay, or back."""
        await self.switch_mode("live" if self.current_mode == "overlay" else "overlay")

    def action_help(self) -> None:
        """Show the keys."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def action_toggle_light(self) -> None:
        """The other theme."""
        self.theme = LIGHT.name if self.theme == DARK.name else DARK.name

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: every action that has a key here, and what has none."""
        yield from actions_of(self, screen)
        yield SystemCommand(
            "Start telemetry", "Let the node publish its machine's telemetry", self._feed(TELEMETRY)
        )
        yield SystemCommand("Stop telemetry", "End the node's telemetry feed", self._feed(0.0))
        yield SystemCommand("Theme", "Choose the colours", self.action_change_theme)

    def _feed(self, period: float) -> Callable[[], None]:
        def told(reply: Reply) -> None:
            if isinstance(reply, Done):
                self.notify("telemetry started" if period else "telemetry stopped", timeout=3)
            elif isinstance(reply, Failed):
                self.notify(reply.reason, severity="error", markup=False)

        return lambda: self.attachment.ask(lambda request: Feed(request, "telemetry", period), told)


def run(connect: str | None) -> int:
    """`canopy tui`: attach to the node of a data folder or address (None: the default one).

    Returns the exit code; a node that is not there at the start is told on standard error.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("canopy tui: needs a terminal; use `canopy sub` in a pipe", file=sys.stderr)
        return USAGE
    attach = connector(connect)
    try:
        attach().close()
    except (ControlError, OSError) as error:
        print(f"canopy tui: {error}", file=sys.stderr)
        if isinstance(error, DeniedError):
            return DENIED
        return TIME_OUT if isinstance(error, CommandTimeoutError) else UNREACHABLE
    app = CanopyApp(attach)
    app.tracebacks = bool(os.environ.get("CANOPY_DEBUG"))
    app.call_later(app.leave_on_signals)
    app.run()
    return app.return_code or OK
