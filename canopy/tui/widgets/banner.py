"""What the person must know now: the node is gone, and when it will be tried again."""

from __future__ import annotations

from textual.widgets import Static


class Banner(Static):
    """Hidden unless there is something to say."""

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self.text = ""

    def say(self, text: str) -> None:
        """Show `text`, or hide with ""."""
        if text != self.text:
            self.text = text
            self.display = bool(text)
            self.update(text)

    def gone(self, reason: str, seconds: float) -> None:
        """The node is not there."""
        when = f"in {seconds:.0f} s" if seconds >= 1 else "now"
        self.say(
            f"⚠ The node is gone: {reason}. Trying again {when}; "
            "subscriptions are made again when it is back."
        )
