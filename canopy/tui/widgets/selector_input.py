"""The input of a selector: coloured, checked and completed while it is typed.

Below the line a caret and a message show the error, and below these are the candidates for
completion. Tab takes the marked one, the arrows mark another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.highlighter import Highlighter
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from canopy.client.hints import hints
from canopy.tui.constants import SELECTOR_CHARACTERS
from canopy.tui.model.completion import Check, Completion, ValuesOf, check, complete, tokens
from canopy.tui.model.text import fit
from overlay.phrases import visible

SHOWN = 5  # visible candidates: the dialog must fit into 24 lines

_STYLES = {
    "string": "green",
    "number": "magenta",
    "quoted": "cyan",
    "word": "cyan",
    "operator": "yellow",
}


class SelectorColours(Highlighter):
    """Colours the tokens, and underlines the place of an error."""

    def __init__(self) -> None:
        self.position = -1

    def highlight(self, text: Text) -> None:
        """Style `text` in place."""
        for token in tokens(text.plain):
            style = "bold blue" if token.keyword else _STYLES.get(token.kind, "")
            text.stylize(style, token.start, token.start + len(token.text))
        if 0 <= self.position < len(text.plain):
            text.stylize("bold underline red", self.position, self.position + 1)


_KEYS = {"tab": "take", "down": "next", "up": "previous"}


class _Line(Input):
    """The input field. Tab and the arrows operate on the candidates if there are any.

    They are handled in the order of the typed keys: the app would run a binding before or after
    letters that were typed with it.
    """

    async def _on_key(self, event: events.Key) -> None:
        what = _KEYS.get(event.key)
        if what is None:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        parent = self.parent
        assert isinstance(parent, SelectorInput)
        if not parent.candidate(what) and what == "take" and parent.names_known:
            self.screen.focus_next()


class SelectorInput(Vertical):
    """The input field, the caret with the error, and the candidates."""

    @dataclass
    class Changed(Message):
        """The text has changed; `check` is the result of its validation."""

        text: str
        check: Check

    class Submitted(Message):
        """Enter was pressed in the input."""

    def __init__(self, value: str, names: Callable[[], Sequence[str]], values_of: ValuesOf) -> None:
        super().__init__()
        self._names = names
        self._values_of = values_of
        self._colours = SelectorColours()
        self._completion = Completion(0, ())
        self._completed = ("", -1)  # the text and the cursor's position that it is for
        self._marked = 0
        self._check = (value, check(value))
        self.names_known = False  # whether the node was asked, and has answered or failed
        # Kept, not queried: names may come before these are mounted, or after they were removed.
        self._line = _Line(
            value,
            "selector, for example  magnitude >= 5 AND place LIKE '%Chile%'",
            self._colours,
            max_length=SELECTOR_CHARACTERS,
            select_on_focus=False,
        )
        self._line.cursor_blink = False
        self._caret = Static(id="caret")
        self._candidates = Static(id="candidates")

    @property
    def check(self) -> Check:
        """The result of the check of the present text."""
        text = self._line.value
        if text != self._check[0]:
            self._check = (text, check(text))
        return self._check[1]

    @property
    def value(self) -> str:
        """The text of the selector."""
        return self._line.value

    def compose(self) -> ComposeResult:
        """Yield the three parts, one below the other."""
        yield self._line
        yield self._caret
        yield self._candidates

    def on_mount(self) -> None:
        """Check the initial text."""
        self._validate()

    def refresh_names(self) -> None:
        """Note that the names of attributes have arrived, or will not. May be called before
        mounting and after removal."""
        self.names_known = True
        self._propose()
        self._show_caret()

    def type(self, text: str) -> None:
        """Insert characters that were typed before the input had the focus. An input that is not
        mounted yet posts no change by itself."""
        self._line.insert_text_at_cursor(text)
        self._validate()
        self.post_message(self.Changed(self.value, self.check))

    def candidate(self, what: str) -> bool:
        """Take a candidate, or mark the next or previous one. Returns False if there are none."""
        if self._completed != (self.value, self._line.cursor_position):
            self._propose()  # typed since
        found = self._completion.candidates
        if not found:
            return False
        if what != "take":
            self._marked = (self._marked + (1 if what == "next" else -1)) % len(found)
            self._show_candidates()
            return True
        line = self._line
        chosen = found[self._marked]
        space = "" if chosen.endswith(("'", "(")) and not chosen.startswith("'") else " "
        line.replace(chosen + space, self._completion.start, line.cursor_position)
        return True

    def on_input_changed(self, event: Input.Changed) -> None:
        """Validate the text while it is typed."""
        event.stop()
        self._validate()
        self.post_message(self.Changed(self.value, self.check))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Post that Enter was pressed."""
        event.stop()
        self.post_message(self.Submitted())

    def _validate(self) -> None:
        self._colours.position = self.check.position
        self._propose()
        self.call_after_refresh(self._show_caret)  # the input must have scrolled first
        self._line.refresh()

    def _propose(self) -> None:
        at = self._line.cursor_position
        self._completed = (self.value, at)
        self._completion = complete(self.value[:at], self._names(), self._values_of)
        self._marked = 0
        self._show_candidates()

    def _show_caret(self) -> None:
        line = self._line
        width = max(10, line.content_region.width)
        text = Text()
        if self.check.position >= 0:
            before = cell_len(self.value[: self.check.position]) - line.scroll_offset.x
            column = line.styles.gutter.left + min(max(0, before), width - 1)
            text.append(" " * column + "▲\n", "bold red")
            text.append(f"✗ {self.check.message}", "bold")
        elif self.check.good:
            text.append(f"\n✓ {self.check.message}", "bold green")
            if self.check.predicate is not None:
                for remark in hints(self.check.predicate, self._names(), self._values_of):
                    text.append(f"  ({visible(remark)})")
        else:
            text.append(f"\n{self.check.message}", "dim")
        self._caret.update(text)

    def _show_candidates(self) -> None:
        found = self._completion.candidates
        top = max(0, min(self._marked - SHOWN + 1, len(found) - SHOWN))
        text = Text(no_wrap=True, overflow="ellipsis")
        for at, candidate in enumerate(found[top : top + SHOWN], top):
            marked = at == self._marked
            more = f"   {self._marked + 1} of {len(found)}, Tab takes it" if marked else ""
            text.append(f"{'▸' if marked else ' '} ")
            text.append(fit(candidate, 50), "bold reverse" if marked else "").append(
                f"{more}\n", "dim"
            )
        self._candidates.update(text)
