"""Disks that fill up, and files that are altered under a node that runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

FILLER: Final = "filler"


class SmallDisk:
    """A file system of its own for a node's data folder, in a file (needs root), which can be
    filled up. `mounted`: whether that was allowed."""

    def __init__(self, folder: Path, data: Path, megabytes: int, stack: ExitStack) -> None:
        self.data = data
        data.mkdir(parents=True, exist_ok=True)
        image = folder / f"{data.name}.img"
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        made = ["mkfs.ext4", "-q", "-m", "0", "-F", str(image)]
        mount = ["mount", "-o", "loop", str(image), str(data)]
        self.mounted = all(
            subprocess.run(command, capture_output=True, check=False).returncode == 0
            for command in (made, mount)
        )
        if self.mounted:
            stack.callback(subprocess.run, ["umount", "-l", str(data)], check=False)
            (data / "lost+found").rmdir()  # a node takes an empty folder only

    def fill(self) -> None:
        """Leave no room."""
        with (self.data / FILLER).open("wb") as file:
            at, step = 0, 64 << 20
            while step >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), at, step)
                except OSError:
                    step //= 2
                else:
                    at += step

    def free(self) -> None:
        """Room again."""
        with contextlib.suppress(FileNotFoundError):
            (self.data / FILLER).unlink()


def segments(data: Path) -> list[Path]:
    """The segments of a node's shards, oldest first."""
    return sorted((data / "streams").glob("[!q]*/*/*.log"))


def flip_bits(data: Path, rng: Random) -> str:
    """Turn some bits of the node's newest or another segment over, behind its beginning and before
    its end; the file's name, "": there is none that is large enough."""
    large = [path for path in segments(data) if path.stat().st_size > 32 * 1024]
    if not large:
        return ""
    path = rng.choice([large[-1], rng.choice(large)])
    at = rng.randrange(8 * 1024, path.stat().st_size - 16 * 1024)
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(8)
        file.seek(at)
        file.write(bytes(byte ^ 0x55 for byte in old))
    return path.name
