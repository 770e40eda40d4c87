"""Files that hold one secret as text, in the place of which ``@PATH`` is given."""

from __future__ import annotations

from pathlib import Path

from overlay.phrases import readable_by_others


class PrivateFileError(Exception):
    """A file of a secret cannot be used; the message says why, and what to do."""


def secret_in(text: str) -> str:
    """Return the text, or what is in the file that it names as ``@PATH``. Raises PrivateFileError
    if others can read the file, or it cannot be read."""
    if not text.startswith("@"):
        return text
    path = Path(text[1:]).expanduser()
    try:
        if path.stat().st_mode & 0o077:
            raise PrivateFileError(readable_by_others(path))
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PrivateFileError(f"cannot read {path}: {error}") from None
