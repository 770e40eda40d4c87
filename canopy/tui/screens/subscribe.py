"""The dialog for a new (or changed) subscription."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Label

from canopy.tui.constants import VALUE_SAMPLE, VALUES
from canopy.tui.model.attachment import Attachment
from canopy.tui.screens.dialog import Dialog
from canopy.tui.widgets.selector_input import SelectorInput
from matching import Value
from overlay.client import LEVELS, Attributes, GetAttributes, Reply


class SubscriptionRequest(NamedTuple):
    """A subscription as entered in the dialog."""

    selector: str
    name: str
    attributes: tuple[str, ...]
    level: int = 0  # priority, 1 (most urgent) to LEVELS; 0: none


class SubscribeDialog(Dialog[SubscriptionRequest]):
    """Asks for a selector, a name and a level. Returns the subscription to make."""

    def __init__(
        self, attachment: Attachment, selector: str = "", name: str = "", level: int = 0
    ) -> None:
        title = "Change the subscription" if selector else "New subscription"
        super().__init__(title, "Tab complete · Enter subscribe · Esc cancel", "Subscribe")
        self._level = level
        self._attachment = attachment
        self._name = name
        self._names: tuple[str, ...] = ()
        self._entry = SelectorInput(selector, self._known, self._values_of)

    def fields(self) -> ComposeResult:
        """Yield selector, name and latency level."""
        yield Label("Deliver every event where")
        yield self._entry
        name = Input(self._name, "a name for it (optional)", id="name", max_length=60)
        level = Input(
            str(self._level or ""),
            f"priority: 1 to {LEVELS}",
            id="level",
            type="integer",
            restrict=f"[1-{LEVELS}]?",
        )
        with Horizontal(classes="inputs"):
            for entry in (name, level):
                entry.cursor_blink = False
                yield entry

    def on_mount(self) -> None:
        """Request the names of attributes."""
        self._attachment.ask(GetAttributes, self._on_attributes)
        self._enable()
        self._entry.query_one(Input).focus()

    def on_key(self, event: events.Key) -> None:
        """Pass characters that are typed while the dialog opens to the selector."""
        is_early = self.focused is None or self._entry in self.focused.ancestors
        if is_early and event.character is not None and event.is_printable:
            event.stop()
            self._entry.type(event.character)

    def on_selector_input_changed(self) -> None:
        """Enable the button if the selector is valid."""
        self._enable()

    def on_selector_input_submitted(self) -> None:
        """Return the subscription: Enter was pressed in the selector."""
        self.finish()

    def _enable(self) -> None:
        self.ok.disabled = not self._entry.check.good

    def finish(self) -> None:
        """Return the subscription, if the selector is valid."""
        entry = self._entry
        if not entry.check.good:
            self.app.bell()
            return
        name = self.query_one("#name", Input).value.strip()
        level = int(self.query_one("#level", Input).value or 0)
        self.dismiss(SubscriptionRequest(entry.value.strip(), name, entry.check.attributes, level))

    def _on_attributes(self, reply: Reply) -> None:
        if isinstance(reply, Attributes):
            self._names = reply.names
        self._entry.refresh_names()

    def _known(self) -> Sequence[str]:
        """Return the attributes that the node has seen, then those that only the log has."""
        seen = self._attachment.log.attribute_names()
        return list(dict.fromkeys([*self._names, *seen]))

    def _values_of(self, name: str) -> Sequence[Value]:
        """Return recent values of the attribute `name`, newest first."""
        found: dict[tuple[type, Value], Value] = {}
        for row in self._attachment.log.latest(VALUE_SAMPLE):
            value = row.event.attributes.get(name)
            if value is not None and len(found) < VALUES:
                found.setdefault((type(value), value), value)
        return list(found.values())
