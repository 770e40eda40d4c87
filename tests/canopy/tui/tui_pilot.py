"""Run the app without a terminal against a fake node, and read what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from canopy.tui.app import CanopyApp
from canopy.tui.model.requester import Connector
from canopy.tui.model.saved import SavedSubscriptions
from canopy.tui.model.subscriber import SubscriptionState
from canopy.tui.widgets.selector_input import SelectorInput
from tests.canopy.tui.tui_fake_node import FakeNode

TRIES = 1_000  # looks at the screen before a test gives up: some 20 s, of which it needs a few

Scenario = Callable[["Rig"], Awaitable[None]]


class Rig:
    """Where a test sits: the node, the app, the keys."""

    def __init__(self, node: FakeNode, app: CanopyApp, pilot: Pilot[int]) -> None:
        self.node = node  # answers nothing where the app is at a real one
        self.app = app
        self.pilot = pilot

    @property
    def text(self) -> str:
        """All that is on the screen."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in line) for line in strips)

    def type_fast(self, text: str, *keys: str) -> None:
        """Characters, then keys, all in the app's queue before it has handled the first."""
        for character in text:
            key = {" ": "space", "/": "slash"}.get(character, character)
            self.app.post_message(events.Key(key, character))
        for key in keys:
            self.app.post_message(events.Key(key, None))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, holds: Callable[[], object], what: str = "") -> None:
        """Wait until `holds()`."""
        for _ in range(TRIES):
            if holds():
                return
            await self.pilot.pause(0.02)
        raise AssertionError(f"{what or 'it'} never came to hold; the screen:\n{self.text}")

    async def sees(self, *texts: str) -> None:
        """Wait until all `texts` are on the screen."""
        for text in texts:
            await self.until(lambda text=text: text in self.text, f"{text!r} on the screen")

    async def type_selector(self, selector: str) -> None:
        """In the dialog: as typed, key by key."""
        await self.until(lambda: self.app.screen.query("SelectorInput Input"), "the dialog")
        line = self.app.screen.query_one(SelectorInput).query_one(Input)
        for character in selector:
            line.insert_text_at_cursor(character)
        await self.pilot.pause()

    async def subscribe(self, selector: str, name: str = "") -> int:
        """Make a live subscription by the dialog; its key."""
        await self.until(lambda: self.app.attachment.up, "the node")
        await self.press("a")
        await self.type_selector(selector)
        self.app.screen.query_one("#name", Input).value = name
        await self.until(lambda: not self.app.screen.query_one("#ok").disabled, "a valid selector")
        before = list(self.app.attachment.subscriptions)
        await self.press("enter")
        await self.until(lambda: len(self.app.attachment.subscriptions) > len(before), "added")
        made = list(self.app.attachment.subscriptions.values())[-1]
        await self.until(lambda: made.state is SubscriptionState.LIVE, "live")
        return made.key


def play(
    scenario: Scenario,
    size: tuple[int, int] = (130, 44),
    up: bool = True,
    saved: SavedSubscriptions | None = None,
    fresh: bool = False,
    connect: Connector | None = None,
) -> None:
    """Run `scenario` in a fresh app on a fresh fake node, or on the one that `connect` leads to."""

    async def run() -> None:
        node = FakeNode()
        node.running = up
        app = CanopyApp(connect or node.connect, saved=saved, fresh=fresh)
        async with app.run_test(size=size, notifications=True) as pilot:
            rig = Rig(node, app, pilot)
            await scenario(rig)
            assert not app.is_running or rig.text  # what cannot be drawn raises here

    asyncio.run(run())


def quake(number: int, magnitude: float = 5.5, **more: object) -> dict:
    """An event as a feed of earthquakes has them."""
    return {"id": f"e{number}", "type": "earthquake", "magnitude": magnitude, **more}
