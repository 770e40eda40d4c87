"""The explanation of a delivery as text: path, and each predicate's verdict with its value (C9)."""

from __future__ import annotations

from rich.text import Text

from canopy.tui.model.text import one_line
from overlay.client import Explained
from overlay.info import ExplanationLine, Reason
from overlay.wording import counted

# Marks; colours only repeat what the mark means.
VERDICTS = {
    "true": ("✓", "bold green"),
    "false": ("✗", "bold red"),
    "unknown": ("?", "bold yellow"),
}
LEGEND = "✓ true   ✗ false   ? unknown (absent, NULL, or of another type)"
INDENT = 2


def explanation(explained: Explained, first: str = "") -> Text:
    """The whole explanation, with the subscription `first` before the others."""
    text = Text()
    reasons = sorted(explained.reasons, key=lambda reason: reason.subscription != first)
    for reason in reasons:
        _reason(text, reason)
    if not reasons:
        nodes = ", ".join(f"{node} ({address})" for node, address in explained.shown_at)
        where = f"It was shown at {nodes}." if nodes else "Ask where the subscription was made."
        text.append(f"This node has no subscription to explain. {one_line(where)}\n\n", "dim")
    if explained.path:
        text.append("Path\n", "bold underline")
        for number, step in enumerate(explained.path, 1):
            text.append(f"{number:>3}  ", "dim").append(f"{one_line(step)}\n")
    if any(reason.verdicts for reason in reasons):
        text.append(f"\n{LEGEND}", "dim")
    return text


def _reason(text: Text, reason: Reason) -> None:
    mark, word = ("✓", "delivered to") if reason.delivered else ("✗", "not delivered to")
    text.append(f"{mark} {word} ", "bold green" if reason.delivered else "bold red")
    text.append(f"{one_line(reason.name or reason.subscription)}\n", "bold")
    if reason.attribute:
        text.append("  pivot ").append(one_line(reason.attribute), "bold")
        if reason.lo or reason.hi:
            text.append("  virtual node ").append(f"[{reason.lo} … {reason.hi})", "bold")
        if reason.delivered:
            text.append(f"  {counted(reason.hops, 'hop')}", "bold")
        text.append("\n")
    if reason.summary:
        text.append(f"  {one_line(reason.summary)}\n", "dim" if reason.delivered else "")
    if not reason.verdicts:
        text.append(f"  {one_line(reason.selector)}\n")
    for verdict in reason.verdicts:
        _verdict(text, verdict)
    text.append("\n")


def _verdict(text: Text, verdict: ExplanationLine) -> None:
    mark, style = VERDICTS.get(verdict.verdict, VERDICTS["unknown"])
    text.append(" " * INDENT * (verdict.depth + 1)).append(f"{mark} ", style)
    text.append(one_line(verdict.text))
    if verdict.seen:
        text.append(f"   saw {one_line(verdict.seen)}", "dim italic")
    text.append("\n")
