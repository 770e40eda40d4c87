"""An archive of the classes that an analysis loads (class data sharing), in the user's cache.

Loading some 16,000 classes is a third of what a small analysis costs. The JVM can map them from an
archive instead, if that was made by the same Java for the same jars. The first analysis notes which
classes it loads; when it has ended, a process of the lowest priority makes the archive of them, and
analyses from then on use it. Without a cache that can be written, or with an archive that does not
fit, the JVM loads the classes from the jars.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from canopy.traces.analysis.constants import ARCHIVE_SECONDS, ARCHIVES_KEPT

NOTING: Final = "-XX:DumpLoadedClassList="
"""The JVM's option for a file of the classes that it loads, which is whole when the JVM has ended
in order."""

MAKE: Final = """\
nice -n 19 "$1" -Xshare:dump -XX:+UseSerialGC "-XX:SharedClassListFile=$2" \
"-XX:SharedArchiveFile=$3" -cp "$4" && mv -f "$3" "$5"
rm -f "$2" "$3"
"""
"""A shell's commands: java, list, draft, class path, archive."""


def cache_folder() -> Path:
    """Where the archives are: ``$XDG_CACHE_HOME/canopy/java``, else under ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "canopy" / "java"


class ClassArchive:
    """The archive for the Java `executable` and the files `jars`, in `folder`."""

    def __init__(self, folder: Path, executable: Path, jars: Iterable[Path]) -> None:
        self._folder = folder
        self._java = executable
        name = blake2b(digest_size=12)
        for path in (executable, *sorted(jars)):
            found = path.stat()
            name.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
        self.path = folder / f"{name.hexdigest()}.jsa"
        self._classes = self.path.with_suffix(f".{os.getpid()}.classes")

    def options(self) -> list[str]:
        """The JVM's options that use the archive, or note the classes for one; none if this cannot
        be done here."""
        if " " in str(self._folder):  # the options of a JVM are one text
            return []
        try:
            if self.path.is_file():
                os.utime(self.path)  # it is in use
                return [f"-XX:SharedArchiveFile={self.path}"]
            if os.name != "posix" or self._is_being_made():
                return []
            self._folder.mkdir(parents=True, exist_ok=True)
            self._classes.touch()
        except OSError:
            return []
        return [f"{NOTING}{self._classes}"]

    def _is_being_made(self) -> bool:
        """Whether another analysis notes classes, or a process makes the archive."""
        oldest = time.time() - ARCHIVE_SECONDS
        drafts = self._folder.glob(f"{self.path.stem}.*.classes")
        return any(path.stat().st_mtime > oldest for path in drafts)

    def make(self, class_path: str) -> subprocess.Popen[bytes] | None:
        """Start to make the archive of the classes that were noted from the `class_path`; None if
        none were. The process needs half a minute, and goes on when this one ends."""
        try:
            if not self._classes.is_file() or not self._classes.stat().st_size:
                return None
            others = sorted(self._folder.glob("*.jsa"), key=lambda path: -path.stat().st_mtime)
            for path in others[ARCHIVES_KEPT - 1 :]:
                path.unlink()
            draft = self.path.with_suffix(f".{os.getpid()}.draft")
            paths = (self._java, self._classes, draft, class_path, self.path)
            return subprocess.Popen(
                [shutil.which("sh") or "/bin/sh", "-c", MAKE, "sh", *map(str, paths)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return None

    def forget(self) -> None:
        """Remove the noted classes of an analysis that failed."""
        with suppress(OSError):
            self._classes.unlink(missing_ok=True)
