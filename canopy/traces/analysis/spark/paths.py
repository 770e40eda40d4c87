"""Translation of paths and URIs between users, this machine and Spark.

Hadoop's paths look like URIs but are not decoded: a space is a space, and `%20` three characters.
What is read may have patterns in it, so that their characters are escaped.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from canopy.traces.analysis.constants import AnalysisError

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


# The temporary folder of an analysis: configuration, log, and what Spark writes and reads back.
#
# It is removed at the end. A process that is killed leaves its folder, of some megabytes, or of
# gigabytes where records were shuffled: the next analysis removes those whose process has ended. A
# living process holds a lock, which the operating system takes from a dead one.

PREFIX: Final = "canopy-spark-"
LOCK: Final = "lock"

UNLOCKED_SECONDS: Final = 86_400.0
"""After which a folder without a lock is removed, too: its process was killed before it made one,
or was of a version that made none. Guess: longer than an analysis takes."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder within the `with`. Folders that dead processes have left are removed before."""
    _sweep(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        draft = folder / f"{LOCK}.new"
        with draft.open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            draft.rename(folder / LOCK)  # held as soon as it is there
            yield folder


def _sweep(folder: Path) -> None:
    """Remove the folders of dead processes of this user in `folder`."""
    for left in folder.glob(f"{PREFIX}*"):
        if left.is_symlink() or not left.is_dir():
            continue
        try:
            if _is_dead(left):
                shutil.rmtree(left, ignore_errors=True)
        except OSError:  # another user's, or gone meanwhile
            continue


def _is_dead(left: Path) -> bool:
    try:
        lock = (left / LOCK).open("rb")
    except FileNotFoundError:
        return left.stat().st_mtime < time.time() - UNLOCKED_SECONDS
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
