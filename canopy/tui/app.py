"""The application: three main screens over one attachment, the tick, and `run` with exit codes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.dom import DOMNode
from textual.screen import Screen
from textual.theme import Theme

from canopy.client.errors import CommandTimeoutError, ControlError, DeniedError
from canopy.tui.constants import POLL_TICKS, RATE_TICKS, TELEMETRY_PERIOD, TICK
from canopy.tui.model.attachment import Attachment, Changes
from canopy.tui.model.requester import Connector, connector
from canopy.tui.model.saved import SavedSubscriptions, saved_path
from canopy.tui.screens.base import MainScreen
from canopy.tui.screens.export import write_new
from canopy.tui.screens.help import HelpScreen
from canopy.tui.screens.live import LiveScreen
from canopy.tui.screens.overlay import OverlayScreen
from canopy.tui.screens.streams import StreamsScreen
from overlay.client import Done, Failed, Reply

DARK = Theme(
    name="canopy-night",
    primary="#7cc48a",
    secondary="#5b8fb0",
    accent="#e3b96b",
    foreground="#dfe6da",
    background="#101713",
    surface="#161f1a",
    panel="#223029",
    success="#7cc48a",
    warning="#e3b96b",
    error="#e58a7b",
    dark=True,
    variables={"footer-key-foreground": "#e3b96b", "block-cursor-text-style": "bold"},
)

LIGHT = Theme(
    name="canopy-day",
    primary="#2b6b3d",
    secondary="#2d5f7e",
    accent="#8a5a00",
    foreground="#1d2a21",
    background="#fbfcf7",
    surface="#f1f5ec",
    panel="#dfe8d8",
    success="#2b6b3d",
    warning="#8a5a00",
    error="#a3341f",
    dark=False,
    variables={"footer-key-foreground": "#8a5a00", "block-cursor-text-style": "bold"},
)


class ActionProvider(Provider):
    """Lists the app's commands in their own order, where Textual's provider sorts them by name."""

    async def discover(self) -> Hits:
        """Yield all commands, while nothing is typed yet."""
        for title, help_text, call, _ in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(title, call, help=help_text)

    async def search(self, query: str) -> Hits:
        """Yield the commands whose titles match `query`."""
        matcher = self.matcher(query)
        for title, help_text, call, _ in self.app.get_system_commands(self.screen):
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), call, help=help_text)


def actions_of(app: App[Any], screen: Screen[Any]) -> Iterator[SystemCommand]:
    """Yield a command for each binding with a tooltip: of the screen, of all its widgets, focused
    or not, and of the app, as they are declared. Bindings without a tooltip move a cursor."""
    seen: set[str] = set()
    nodes: list[DOMNode] = [screen, *screen.query("*").results(), app]
    for node in nodes:
        if not type(node).__module__.startswith("canopy.tui."):
            continue
        for bindings in node._bindings.key_to_bindings.values():
            for binding in bindings:
                if not binding.tooltip or binding.system or binding.tooltip in seen:
                    continue
                seen.add(binding.tooltip)
                key = app.get_key_display(binding)
                yield SystemCommand(
                    binding.tooltip,
                    f"{binding.description}, key {key}",
                    _runner(app, binding.action, node),
                )


def _runner(app: App[Any], action: str, node: DOMNode) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        await app.run_action(action, node)

    return run


# docs/reference/commands.md, exit codes
OK, FAILURE, USAGE, UNREACHABLE, DENIED, TIME_OUT = 0, 1, 2, 3, 4, 5


class CanopyApp(App[int]):
    """The terminal UI of the node that `connect` connects to. `saved` keeps the subscriptions
    (None: they are not kept); `fresh` starts without them."""

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
        self.add_mode("live", lambda: LiveScreen(self.attachment, time.monotonic))
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
        """Exit in order on SIGTERM and SIGHUP, so that the terminal is restored."""
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
        yield SystemCommand(
            "Save a picture of the screen", "As SVG, into this folder", self._save_picture
        )
        yield SystemCommand("Theme", "Choose the colours", self.action_change_theme)

    def _save_picture(self) -> None:
        path = Path(time.strftime("canopy-%Y%m%d-%H%M%S.svg"))
        try:
            write_new(path, [self.export_screenshot()])
        except OSError as error:
            self.notify(f"{path}: {error.strerror}", severity="error", markup=False)
        else:
            self.notify(f"saved {path}", markup=False)

    def _feed(self, period: float) -> Callable[[], None]:
        def on_reply(reply: Reply) -> None:
            if isinstance(reply, Done):
                self.notify("telemetry started" if period else "telemetry stopped", timeout=3)
            elif isinstance(reply, Failed):
                self.notify(reply.reason, severity="error", markup=False)

        return lambda: self.attachment.feed_telemetry(period, on_reply)


def run(connect: str | None, fresh: bool = False, seal: str | None = None) -> int:
    """Run the UI on the node of the data folder `connect` (None: the default one), if `fresh`
    without the saved subscriptions. `seal`: a seal file.

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
    app = CanopyApp(attach, saved=SavedSubscriptions(saved_path(connect)), fresh=fresh)
    app.tracebacks = bool(os.environ.get("CANOPY_DEBUG"))
    app.call_later(app.leave_on_signals)
    app.run()
    return app.return_code or OK
