"""A dark and a light theme, with a contrast of text of at least 4.5:1 (WCAG 2 AA)."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="canopy-night",
    primary="#7cc48a",
    secondary="#5b8fb0",
    accent="#e3b96b",
    foreground="#dfe6da",
    background="#101713",
    surface="#161f1a",
    panel="#223029",
    success="#7cc48a",
    warning="#e3b96b",
    error="#e58a7b",
    dark=True,
    variables={"footer-key-foreground": "#e3b96b", "block-cursor-text-style": "bold"},
)

LIGHT = Theme(
    name="canopy-day",
    primary="#2b6b3d",
    secondary="#2d5f7e",
    accent="#8a5a00",
    foreground="#1d2a21",
    background="#fbfcf7",
    surface="#f1f5ec",
    panel="#dfe8d8",
    success="#2b6b3d",
    warning="#8a5a00",
    error="#a3341f",
    dark=False,
    variables={"footer-key-foreground": "#8a5a00", "block-cursor-text-style": "bold"},
)
