"""Disks that fill up, and files that are altered under a node that runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from streams.log.chunk import CHUNK_MOST

FILLER: Final = "filler"


class SmallDisk:
    """A file system of its own for a node's data folder, in a file (needs root), which can be
    filled up. `mounted`: whether that was allowed."""

    def __init__(self, folder: Path, data: Path, megabytes: int, stack: ExitStack) -> None:
        self.data = data
        data.mkdir(parents=True, exist_ok=True)
        self.image = image = folder / f"{data.name}.img"
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        made = ["mkfs.ext4", "-q", "-m", "0", "-F", str(image)]
        self._mount = ["mount", "-o", "loop", str(image), str(data)]
        self.mounted = all(
            subprocess.run(command, capture_output=True, check=False).returncode == 0
            for command in (made, self._mount)
        )
        if self.mounted:
            stack.callback(subprocess.run, ["umount", "-l", str(data)], check=False)
            (data / "lost+found").rmdir()  # a node takes an empty folder only

    def lose_power(self) -> None:
        """What the system has not written to it is lost, as when its machine loses its power. Who
        used it was killed a moment ago."""
        left = self.image.with_suffix(".left")
        subprocess.run(["cp", "--sparse=always", str(self.image), str(left)], check=True)
        subprocess.run(["umount", str(self.data)], check=True)  # it writes to the one that goes
        left.replace(self.image)
        subprocess.run(self._mount, check=True, capture_output=True)

    def fill(self) -> None:
        """Fill the disk until no room is left."""
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
        """Remove the filler, so that there is room again."""
        with contextlib.suppress(FileNotFoundError):
            (self.data / FILLER).unlink()


def segments(data: Path) -> list[Path]:
    """The segments of a node's shards, oldest first."""
    return sorted((data / "streams").glob("[!q]*/*/*.log"))


class Altered(NamedTuple):
    """A place in a segment of a node whose bits were turned over."""

    node: str
    path: Path
    at: int
    bytes: bytes
    """What stands there since."""

    def is_there(self) -> bool:
        """Whether nobody has mended it yet; a file that was cut before it lacks what was there."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.at)
                found = file.read(len(self.bytes))
                return found == self.bytes or len(found) < len(self.bytes)
        except FileNotFoundError:
            return False

    def __str__(self) -> str:
        return f"{'/'.join(file_of(self.path))} of {self.node} at {self.at}"


class Deleted(NamedTuple):
    """A segment of a node that was deleted."""

    node: str
    path: Path

    def is_there(self) -> bool:
        """Whether nobody has written it again yet, where there still is a replica."""
        return self.path.parent.exists() and not self.path.exists()

    def __str__(self) -> str:
        return f"{'/'.join(file_of(self.path))} of {self.node}, deleted"


class Wiped(NamedTuple):
    """A replica that has lost its vote, or everything."""

    node: str
    path: Path
    is_whole: Callable[[str, int], bool]
    """Whether all replicas of a stream's shard have everything."""

    def is_there(self) -> bool:
        """Whether there is a replica of its shard that has not everything."""
        return not self.is_whole(self.path.parent.name, int(self.path.name))

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name} of {self.node}, wiped"


Damage = Altered | Deleted | Wiped


def file_of(path: Path) -> tuple[str, ...]:
    """Stream, shard and name of a segment: the same file at each replica."""
    return path.parts[-3:]


def delete_segment(
    node: str, segments: Sequence[Path], rng: Random, avoid: Sequence[Damage]
) -> Deleted | None:
    """Delete one of a node's segments; None: there is none, or it is damaged in another replica."""
    mine = [path for path in segments if all(file_of(one.path) != file_of(path) for one in avoid)]
    if not mine:
        return None
    path = rng.choice(mine)
    path.unlink()
    return Deleted(node, path)


def flip_bits(
    node: str, segments: Sequence[Path], rng: Random, avoid: Sequence[Damage]
) -> Altered | None:
    """Turn some bits of the newest or another of a node's segments over, behind its beginning and
    before its end; None: there is no segment that is large enough, or the place is that of damage
    of `avoid`: a chunk that is damaged in all replicas cannot be mended."""
    large = [path for path in segments if path.stat().st_size > 32 * 1024]
    if not large:
        return None
    path = rng.choice([large[-1], rng.choice(large)])
    at = rng.randrange(8 * 1024, path.stat().st_size - 16 * 1024)
    for each in avoid:
        is_near = not isinstance(each, Altered) or abs(each.at - at) < 2 * CHUNK_MOST
        if file_of(each.path) == file_of(path) and is_near:
            return None
    with path.open("r+b") as file:
        file.seek(at)
        altered = bytes(byte ^ 0x55 for byte in file.read(8))
        file.seek(at)
        file.write(altered)
    return Altered(node, path, at, altered)
