"""The dialog that asks from where a stream is to be read, and which of its events."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, Static

from canopy.client.streams.reading import Start, parse_start
from matching import SelectorError, compile_selector


class ReplayRequest(NamedTuple):
    """Where to begin (`Client.read`), and the selector; "": all events."""

    start: Start | int
    at: int
    selector: str


class ReplayDialog(ModalScreen[ReplayRequest | None]):
    """Checks what is typed; Enter begins."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, stream: str) -> None:
        super().__init__()
        self._stream = stream
        self._request: ReplayRequest | None = None
        self._from = Input("first", id="from")
        self._selector = Input(placeholder="total > 100; nothing: all events", id="selector")
        self._verdict = Static(id="verdict", markup=False)
        self._ok = Button("Read", variant="success", id="ok")

    def compose(self) -> ComposeResult:
        """Two lines, the result of their check, the buttons."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = f"Read {self._stream}"
            dialog.border_subtitle = "Enter read · Esc cancel"
            yield Label("From: first, new, keys, an offset, or a time such as 2026-11-23T08:00")
            yield self._from
            yield Label("Events that this selector matches")
            yield self._selector
            yield self._verdict
            with Horizontal(classes="buttons"):
                yield self._ok
                yield Button("Cancel", id="cancel")

    def on_mount(self) -> None:
        """Check the lines and focus the first."""
        self._check()
        self._from.focus()

    def on_input_changed(self) -> None:
        """Check while it is typed."""
        self._check()

    def on_input_submitted(self) -> None:
        """Enter was pressed."""
        self._done()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A button was pressed."""
        if event.button.id == "ok":
            self._done()
        else:
            self.dismiss(None)

    def _done(self) -> None:
        if self._request is None:
            self.app.bell()
        else:
            self.dismiss(self._request)

    def _check(self) -> None:
        selector = self._selector.value.strip()
        try:
            start, at = parse_start(self._from.value.strip())
            if selector:
                compile_selector(selector)
        except SelectorError as error:
            self._request, said = None, f"✗ {error.message}"
        except ValueError as error:
            self._request, said = None, f"✗ {error}"
        else:
            self._request = ReplayRequest(start, at, selector)
            said = "✓ " + ("all events" if not selector else "a valid selector")
        self._verdict.update(said)
        self._ok.disabled = self._request is None
