"""The dialog that publishes a test event: a JSON object, checked while it is typed."""

from __future__ import annotations

import json
import secrets
from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Label, Static, TextArea

from canopy.feeds.drafts import BadEventError, check_size
from canopy.feeds.elements import object_element
from canopy.feeds.jsontext import parse
from canopy.tui.constants import DRAFT_CHARACTERS
from canopy.tui.model.attachment import Attachment
from canopy.tui.model.log import LogRow
from canopy.tui.screens.dialog import Dialog
from overlay.client import Draft, Failed, Publish, Published, Reply
from overlay.phrases import counted


def parse_draft(text: str, assigned_id: str) -> Draft:
    """Return the event in a typed JSON object, by the rules of `canopy pub`
    (docs/reference/formats.md); with `assigned_id` if it has no id, so that it can be explained
    afterwards. Raises BadEventError."""
    if len(text) > DRAFT_CHARACTERS:
        raise BadEventError(f"longer than {DRAFT_CHARACTERS:,} characters")
    draft = object_element(parse(text.encode("utf-8", "surrogatepass"))).draft
    check_size(draft)
    return replace(draft, attributes={"id": assigned_id, **draft.attributes})


EXAMPLE = {"type": "test", "message": "hello from the terminal", "magnitude": 5.5}


class PublishDialog(Dialog[None]):
    """Publishes test events. It stays open after publishing, so that another event can follow."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "publish", "Publish", priority=True),
    ]

    def __init__(self, attachment: Attachment, like: LogRow | None) -> None:
        super().__init__(
            "Publish a test event", "Ctrl+S publish · Esc close", "Publish", cancel="Close"
        )
        self._attachment = attachment
        attributes = EXAMPLE if like is None else like.event.attributes
        shown = {name: value for name, value in attributes.items() if name != "id"}
        text = json.dumps(shown, indent=2, ensure_ascii=False)
        self._draft: Draft | None = None
        self._event_id = ""
        self._area = TextArea(text, id="json", tab_behavior="focus")
        self._area.cursor_blink = False
        self._verdict = Static(id="verdict", markup=False)

    def fields(self) -> ComposeResult:
        """Yield the text, and the result of its check."""
        yield Label("A flat JSON object; an id is added if it has none")
        yield self._area
        yield self._verdict

    def on_mount(self) -> None:
        """Check the text and focus it."""
        self._new_id()
        self._check()
        self._area.focus()

    def on_text_area_changed(self) -> None:
        """Check the text after each change."""
        self._check()

    def action_publish(self) -> None:
        """Publish the event, as the button does."""
        self.finish()

    def finish(self) -> None:
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
        except BadEventError as error:
            self._draft = None
            self._show(f"✗ {error}")
        else:
            nested = " and a payload" if self._draft.payload else ""
            self._show(f"✓ an event of {counted(len(self._draft.attributes), 'attribute')}{nested}")
        self.ok.disabled = self._draft is None

    def _show(self, text: str) -> None:
        self._verdict.update(text)
