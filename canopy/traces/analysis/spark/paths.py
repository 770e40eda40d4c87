"""Places as people name them, and paths of this machine as Spark takes them.

Hadoop's paths look like URIs but are not decoded: a space is a space, and `%20` three characters.
What is read may have patterns in it, so that their characters are escaped.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from canopy.traces.analysis.errors import AnalysisError

URI: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*)?", re.DOTALL)
"""Two letters at least: one is a drive."""


def is_remote(text: str) -> bool:
    """Whether `text` is a URI of a file system that is not this machine's (`s3a:/…`, `hdfs:/…`)."""
    uri = URI.match(text)
    return uri is not None and uri["rest"] is not None and uri["scheme"].lower() != "file"


def named(text: str) -> Path:
    """The path of this machine that `text` names: a path, or a `file:` URI (RFC 8089, in which
    `%20` is a space).

    Raises AnalysisError for a URI of a file system that this machine's programs do not see (`s3a:`,
    `hdfs:`, another host's files): as a path such a name would be that of a new folder here. Only
    `canopy trace analyze` copies from and to such places (``remote.py``).
    """
    uri = URI.match(text)
    if uri is None or (uri["rest"] is None and uri["scheme"].lower() != "file"):
        return Path(text)
    if uri["scheme"].lower() == "file":
        try:
            parts = urlsplit(text)
        except ValueError as error:
            raise AnalysisError(f"{text} is no URI: {error}") from None
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise AnalysisError(
                f"{text} names no folder of this machine: a file: URI is file:/ and a whole path"
            )
        if parts.query or parts.fragment:
            raise AnalysisError(f"{text}: write ? as %3F and # as %23 in a file: URI")
        return Path(unquote(parts.path))
    raise AnalysisError(
        f"{text} is in a file system ({uri['scheme']}:) that this machine's programs do not see: "
        "mount it here and on the machines of a cluster under one path (s3fs, goofys or rclone for "
        "S3, an NFS gateway or fuse-dfs for HDFS), or copy it to a folder first (`aws s3 sync`, "
        f"`hdfs dfs -get`). For a folder with such a name write ./{text}"
    )


def for_writing(path: Path) -> str:
    """The name of `path` for a writer."""
    return f"file:{path.resolve()}"


def for_reading(path: Path) -> str:
    """The name of `path` for a reader, which would take `*?[]{}` for a pattern."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", for_writing(path))


def local(uri: str) -> Path:
    """The path of a file in the column `_metadata.file_path`, which is a URI."""
    return Path("/" + unquote(uri).removeprefix("file:").lstrip("/"))
