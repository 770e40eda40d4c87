"""What a selector can be refused with: one error, with the place and a caret for people."""

from __future__ import annotations

# How much of a long line a caret shows on each side: fits an 80-column terminal (wild guess).
_CONTEXT = 36


class SelectorError(ValueError):
    """A selector that can not be compiled.

    `message` says what was expected in plain words, `text` is the whole selector and `position`
    the index of the character where it went wrong (``len(text)`` for "at the end").
    """

    def __init__(self, message: str, text: str = "", position: int = 0) -> None:
        # A message quotes the text, which may hold line breaks: it stays one line.
        message = "".join(c if c.isprintable() else " " for c in message)
        super().__init__(message)
        self.message = message
        self.text = text
        # Without a text the place is kept for whoever knows the text and raises anew.
        self.position = min(position, len(text)) if text else position

    def caret(self) -> str:
        """The line in question with a caret below the place, and the message; 2 or 3 lines."""
        if not self.text.strip():
            return f"(empty selector)\n{self.message}"
        start = self.text.rfind("\n", 0, self.position) + 1
        end = self.text.find("\n", self.position)
        end = len(self.text) if end < 0 else end
        left = max(start, self.position - _CONTEXT)
        right = min(end, self.position + _CONTEXT)
        before = ("…" if left > start else "") + self.text[left : self.position]
        after = self.text[self.position : right] + ("…" if right < end else "")
        # A tab or another control character would move the caret away from its place.
        line = "".join(c if c.isprintable() else " " for c in before + after)
        return f"{line}\n{' ' * len(before)}^\n{self.message}"
