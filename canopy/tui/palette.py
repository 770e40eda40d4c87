"""The command palette: what a person wants done, in the order of usefulness."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from textual.app import App, SystemCommand
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.dom import DOMNode
from textual.screen import Screen


class ActionProvider(Provider):
    """Lists the app's commands in their own order, where Textual's provider sorts them by name."""

    async def discover(self) -> Hits:
        """All commands, while nothing is typed yet."""
        for title, help_text, call, _ in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(title, call, help=help_text)

    async def search(self, query: str) -> Hits:
        """The commands whose titles match `query`."""
        matcher = self.matcher(query)
        for title, help_text, call, _ in self.app.get_system_commands(self.screen):
            score = matcher.match(title)
            if score > 0:
                yield Hit(score, matcher.highlight(title), call, help=help_text)


def actions_of(app: App[Any], screen: Screen[Any]) -> Iterator[SystemCommand]:
    """Commands for the bindings with a tooltip of the screen, of all its widgets, focused or not,
    and of the app, in this order and as they are declared. Bindings without one move a cursor."""
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
