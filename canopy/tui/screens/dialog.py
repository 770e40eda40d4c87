"""The frame of all dialogs: a title, fields, and the buttons that finish and cancel it."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button

T = TypeVar("T")


class Dialog(ModalScreen[T | None]):
    """A dialog that returns T; None if it was cancelled."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Cancel")]

    def __init__(self, title: str, keys: str, ok: str, cancel: str = "Cancel") -> None:
        """`keys`: what is written on the lower border; `ok` and `cancel`: the buttons' texts."""
        super().__init__()
        self._titles = title, keys
        # Kept, not queried: a reply may come while the dialog is being removed.
        self.ok = Button(ok, variant="success", id="ok")
        self._cancel = Button(cancel, id="cancel")

    def compose(self) -> ComposeResult:
        """Yield the fields, and the buttons below them."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title, dialog.border_subtitle = self._titles
            yield from self.fields()
            with Horizontal(classes="buttons"):
                yield self.ok
                yield self._cancel

    def fields(self) -> ComposeResult:
        """Yield the widgets of the subclass."""
        raise NotImplementedError

    def finish(self) -> None:
        """Do what the dialog is for, if its fields are valid."""
        raise NotImplementedError

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Finish, or cancel."""
        if event.button.id == "ok":
            self.finish()
        else:
            self.dismiss(None)

    def on_input_submitted(self) -> None:
        """Finish: Enter was pressed in a field."""
        self.finish()
