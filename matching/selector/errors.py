"""The one error that a selector is refused with: a message, a position, and a caret below it."""

from __future__ import annotations

# Characters of a long line that are shown on each side of the caret: an 80-column terminal has room
# for both.
_CONTEXT = 36


class SelectorError(ValueError):
    """A selector that cannot be compiled, or a predicate that cannot be built.

    `message` is one line that says what was expected, `text` the whole selector ("" if there is
    none), and `position` the index of the character in question (``len(text)`` for its end).
    """

    def __init__(self, message: str, text: str = "", position: int = 0) -> None:
        # A message quotes the text, which may contain line breaks, and has to stay one line.
        message = "".join(c if c.isprintable() else " " for c in message)
        super().__init__(message)
        self.message = message
        self.text = text
        # Without a text the position is kept for a caller that adds the text and raises again.
        self.position = min(position, len(text)) if text else position

    def caret(self) -> str:
        """The line in question, a caret below the position, and the message: 2 or 3 lines."""
        if not self.text.strip():
            return f"(empty selector)\n{self.message}"
        start = self.text.rfind("\n", 0, self.position) + 1
        end = self.text.find("\n", self.position)
        end = len(self.text) if end < 0 else end
        left = max(start, self.position - _CONTEXT)
        right = min(end, self.position + _CONTEXT)
        before = ("…" if left > start else "") + self.text[left : self.position]
        after = self.text[self.position : right] + ("…" if right < end else "")
        # A tab or another control character would misplace the caret.
        line = "".join(c if c.isprintable() else " " for c in before + after)
        return f"{line}\n{' ' * len(before)}^\n{self.message}"
