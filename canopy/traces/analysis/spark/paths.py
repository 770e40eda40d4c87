"""Paths of this machine as Spark takes them.

Hadoop's paths look like URIs but are not decoded: a space is a space, and `%20` three characters.
What is read may have patterns in it, so that their characters are escaped.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote


def for_writing(path: Path) -> str:
    """The name of `path` for a writer."""
    return f"file:{path.resolve()}"


def for_reading(path: Path) -> str:
    """The name of `path` for a reader, which would take `*?[]{}` for a pattern."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", for_writing(path))


def local(uri: str) -> Path:
    """The path of a file in the column `_metadata.file_path`, which is a URI."""
    return Path("/" + unquote(uri).removeprefix("file:").lstrip("/"))
