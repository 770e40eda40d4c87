"""The command palette: every action that has a key on the visible screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from textual.app import App, SystemCommand
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Input, TextArea

# Their keys move the cursor in a text, which is no command.
_EDITORS = (Input, TextArea)


def actions_of(app: App[Any], screen: Screen[Any]) -> Iterator[SystemCommand]:
    """Commands for all bindings of the screen, of all its widgets, focused or not, and of the app;
    without the bindings of Textual's own classes, which move cursors."""
    seen: dict[str, None] = {}
    nodes: list[DOMNode] = [screen, *screen.query("*").results(), app]
    for node in nodes:
        if isinstance(node, _EDITORS) or not type(node).__module__.startswith("canopy.tui."):
            continue
        for bindings in node._bindings.key_to_bindings.values():
            for binding in bindings:
                title = binding.tooltip or binding.description
                if not title or binding.system or binding.description in seen:
                    continue
                if _does(node, binding.action):
                    seen[binding.description] = None
                    key = app.get_key_display(binding)
                    yield SystemCommand(
                        title,
                        f"{binding.description}, key {key}",
                        _runner(app, binding.action, node),
                    )


def _does(node: DOMNode, action: str) -> bool:
    """Whether canopy's code implements the action, rather than a Textual base class."""
    name = action.partition("(")[0]
    if "." in name:
        return True
    method = getattr(type(node), f"action_{name}", None)
    return method is not None and (
        method.__module__.startswith("canopy.tui.") or name in ("switch_mode", "quit")
    )


def _runner(app: App[Any], action: str, node: DOMNode) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        await app.run_action(action, node)

    return run
