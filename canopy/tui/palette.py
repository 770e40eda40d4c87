"""The command palette: every action that some key does on the screen in sight."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from textual.app import App, SystemCommand
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Input, TextArea

# Their keys move the cursor in a text; nobody looks for them in a palette.
_EDITORS = (Input, TextArea)


def actions_of(app: App[Any], screen: Screen[Any]) -> Iterator[SystemCommand]:
    """Commands for all bindings of the screen, of all its widgets and of the app, so that what
    needs another focus is found as well. Only our own: Textual's keys move cursors."""
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
    """Whether our own code does it, rather than the Textual class below ours."""
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
