"""What a program may ask of its node about streams, beside what `overlay.client` has of them."""

from __future__ import annotations

from overlay.client import Command


class EditStream(Command, frozen=True):
    """Change a stream's options; None: as they are. Answered as AddStream, or by Failed
    (unknown)."""

    name: str
    keep_seconds: float | None = None
    keep_bytes: int | None = None
    capture: str | None = None
