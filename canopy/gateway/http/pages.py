"""The page that shows events live, and its parts, which the gateway serves itself."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("page")

PARTS: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
"""Path to file and media type."""

POLICY: Final = (
    "Content-Security-Policy",
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
)
"""The page runs its own script only, and talks to this gateway only."""


def part(path: str) -> tuple[bytes, str] | None:
    """Content and media type of a part of the page; None if `path` is none."""
    if path not in PARTS:
        return None
    name, kind = PARTS[path]
    return (FOLDER / name).read_bytes(), kind
