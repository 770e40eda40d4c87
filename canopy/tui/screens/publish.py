"""The dialog that publishes a test event: a JSON object, checked while it is typed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Label, Static, TextArea

from canopy.tui.constants import DRAFT_CHARACTERS
from canopy.tui.model.attachment import Attachment
from canopy.tui.model.log import LogRow
from matching import Value, check_value
from overlay.client import Draft, Failed, Publish, Published, Reply
from overlay.phrases import counted

# --- a test event from typed text: a flat JSON object (docs/reference/formats.md) ---
#
# Nested values become the payload; an event without an `id` is given one, so that it can be
# explained afterwards.


class DraftError(ValueError):
    """The text is not a valid event; the message says why."""


def parse_draft(text: str, assigned_id: str) -> Draft:
    """Return the event that `text` describes. Raises DraftError."""
    if len(text) > DRAFT_CHARACTERS:
        raise DraftError(f"longer than {DRAFT_CHARACTERS:,} characters")
    try:
        fields = json.loads(text, object_pairs_hook=_once, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise DraftError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError:
        raise DraftError("nested too deeply") from None
    except ValueError as error:
        raise DraftError(str(error)) from error
    if not isinstance(fields, dict):
        raise DraftError('an event is a JSON object: {"name": value, …}')
    attributes: dict[str, Value | None] = {}
    nested: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict | list):
            nested[name] = value
            continue
        reason = None if value is None else check_value(value)
        if reason is not None:
            raise DraftError(f"{name!r}: {reason}")
        attributes[name] = value
    attributes.setdefault("id", assigned_id)
    if not isinstance(attributes.get("type"), str):
        attributes["type"] = "event"
    if not nested:
        return Draft(attributes)
    return Draft(attributes, json.dumps(nested, ensure_ascii=False).encode(), "application/json")


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise DraftError(f"{name!r} is given twice")
        fields[name] = value
    return fields


def _constant(word: str) -> None:
    raise DraftError(f"{word} is not a value")


EXAMPLE = {"type": "test", "message": "hello from the terminal", "magnitude": 5.5}


class PublishDialog(ModalScreen[None]):
    """Publishes test events. It stays open after publishing, so that another event can follow."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close"),
        Binding("ctrl+s", "publish", "Publish", priority=True),
    ]

    def __init__(self, attachment: Attachment, like: LogRow | None) -> None:
        super().__init__()
        self._attachment = attachment
        attributes = EXAMPLE if like is None else like.event.attributes
        shown = {name: value for name, value in attributes.items() if name != "id"}
        text = json.dumps(shown, indent=2, ensure_ascii=False)
        self._draft: Draft | None = None
        self._event_id = ""
        # Kept, not queried: a reply may come while the dialog is being removed.
        self._area = TextArea(text, id="json", tab_behavior="focus")
        self._area.cursor_blink = False
        self._verdict = Static(id="verdict", markup=False)
        self._ok = Button("Publish", variant="success", id="ok")

    def compose(self) -> ComposeResult:
        """Yield the text, the result of its check, and the buttons."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "Publish a test event"
            dialog.border_subtitle = "Ctrl+S publish · Esc close"
            yield Label("A flat JSON object; an id is added if it has none")
            yield self._area
            yield self._verdict
            with Horizontal(classes="buttons"):
                yield self._ok
                yield Button("Close", id="cancel")

    def on_mount(self) -> None:
        """Check the text and focus it."""
        self._new_id()
        self._check()
        self._area.focus()

    def on_text_area_changed(self) -> None:
        """Check the text after each change."""
        self._check()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Publish, or close the dialog."""
        if event.button.id == "ok":
            self.action_publish()
        else:
            self.dismiss(None)

    def action_publish(self) -> None:
        """Publish the event, and request a receipt."""
        draft = self._draft
        if draft is None:
            self.app.bell()
            return
        self._show(f"publishing {draft.attributes['id']!r} …")
        self._attachment.ask(
            lambda request: Publish(request, (draft,), receipt=True), self._on_published
        )

    def _on_published(self, reply: Reply) -> None:
        self._new_id()
        if isinstance(reply, Published) and reply.identities and reply.identities[0]:
            result = f"✓ published as {reply.identities[0]}; all trees have accepted it"
        elif isinstance(reply, Published):
            result = f"✗ refused: {reply.refused[0][1] if reply.refused else 'no reason given'}"
        else:
            result = f"✗ {reply.reason if isinstance(reply, Failed) else 'an unexpected reply'}"
        if self.is_attached:
            self._check()
            self._show(result)
        else:
            self.app.notify(result, markup=False)

    def _new_id(self) -> None:
        self._event_id = f"tui-{secrets.token_hex(4)}"

    def _check(self) -> None:
        try:
            self._draft = parse_draft(self._area.text, self._event_id)
        except DraftError as error:
            self._draft = None
            self._show(f"✗ {error}")
        else:
            nested = " and a payload" if self._draft.payload else ""
            self._show(f"✓ an event of {counted(len(self._draft.attributes), 'attribute')}{nested}")
        self._ok.disabled = self._draft is None

    def _show(self, text: str) -> None:
        self._verdict.update(text)
