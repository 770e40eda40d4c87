"""The command palette: every action that some key does on the screen in sight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from textual.app import App, SystemCommand
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import Input, TextArea

# Their keys move the cursor in a text; nobody looks for them in a palette.
_EDITORS = (Input, TextArea)


def actions_of(app: App[Any], screen: Screen[Any]) -> Iterator[SystemCommand]:
    """Commands for all bindings that have a description: of the screen and of all its widgets,
    so that what needs another focus is found as well."""
    seen: dict[str, None] = {}
    nodes: list[DOMNode] = [screen, *screen.query("*").results(), app]
    for node in nodes:
        if isinstance(node, _EDITORS) or not type(node).__module__.startswith("tui."):
            continue
        for binding in node._bindings.key_to_bindings.values():
            for one in binding:
                if not one.description or one.description in seen or one.system:
                    continue
                if ".tui" not in f".{type(node).__module__}" or one.action.startswith("command"):
                    continue
                seen[one.description] = None
                yield SystemCommand(
                    one.description,
                    f"{one.tooltip or one.description}  ({app.get_key_display(one)})",
                    _runner(app, one.action, node),
                )


def _runner(app: App[Any], action: str, node: DOMNode) -> Any:
    async def run() -> None:
        await app.run_action(action, node)

    return run
