"""The warning that the node is not connected, and when the next attempt is made."""

from __future__ import annotations

from textual.widgets import Static


class Banner(Static):
    """A line with a warning; hidden while it has no text."""

    def __init__(self) -> None:
        super().__init__()
        self.display = False
        self.text = ""

    def show_text(self, text: str) -> None:
        """Show `text`; "" hides the banner."""
        if text != self.text:
            self.text = text
            self.display = bool(text)
            self.update(text)

    def show_disconnected(self, reason: str, seconds: float) -> None:
        """Show that the connection is lost, for `reason`, and will be tried again in `seconds`."""
        when = f"in {seconds:.0f} s" if seconds >= 1 else "now"
        self.show_text(
            f"⚠ The node is gone: {reason}. Trying again {when}; "
            "subscriptions are made again when it is back."
        )
