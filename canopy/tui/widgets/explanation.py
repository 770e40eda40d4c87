"""*Why* as text: the way of an event, each predicate's verdict with the value seen (C9)."""

from __future__ import annotations

from rich.text import Text

from canopy.tui.model.text import one_line
from overlay.client import Explained
from overlay.info import Reason, Verdict

# A mark and its word; colours only repeat what the mark says.
VERDICTS = {
    "true": ("✓", "bold green"),
    "false": ("✗", "bold red"),
    "unknown": ("?", "bold yellow"),
}
LEGEND = "✓ true   ✗ false   ? unknown (absent, NULL, or of another type)"
INDENT = 2


def explanation(explained: Explained, first: str = "") -> Text:
    """All that the node said; the reason of the subscription `first` before the others."""
    text = Text()
    reasons = sorted(explained.reasons, key=lambda reason: reason.subscription != first)
    for reason in reasons:
        _reason(text, reason)
    if not reasons:
        text.append("No subscription of this node to explain.\n\n", "dim")
    if explained.path:
        text.append("The way here\n", "bold underline")
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
            text.append(f"  {reason.hops} hop{'' if reason.hops == 1 else 's'}", "bold")
        text.append("\n")
    if reason.summary:
        text.append(f"  {one_line(reason.summary)}\n", "dim" if reason.delivered else "")
    if not reason.verdicts:
        text.append(f"  {one_line(reason.selector)}\n")
    for verdict in reason.verdicts:
        _verdict(text, verdict)
    text.append("\n")


def _verdict(text: Text, verdict: Verdict) -> None:
    mark, style = VERDICTS.get(verdict.verdict, VERDICTS["unknown"])
    text.append(" " * INDENT * (verdict.depth + 1)).append(f"{mark} ", style)
    text.append(one_line(verdict.text))
    if verdict.seen:
        text.append(f"   saw {one_line(verdict.seen)}", "dim italic")
    text.append("\n")
