"""Compiled kernels on disk: where they are, whether they may be trusted, and loading them.

The one part of this package that touches a disk, and no machine: what it does is what an import
does. There is one file per text of the kernels, kind of CPU, and version of Python and numba, in
the user's cache folder::

    $XDG_CACHE_HOME/canopy/kernels-KEY-SUM.o      an object file, which llvmlite can load
                           kernels-KEY-SUM.so     a shared library of it, where there was a linker

The library is loaded by the system itself, in a millisecond; the other one is for machines where
there was no linker or where libraries may not be loaded from that folder: llvmlite is 40 MB more.

KEY is a checksum of all that the code depends on, SUM of the file's bytes. So a stale file is not
looked at, and one that is damaged is noticed before it is loaded (a library cut short would kill
the process). Code runs with the rights of who loads it, so a file is only trusted if it and its
folder belong to this user and nobody else can write to them; it is reached through the descriptor
of the very folder that was checked. Where files have no owners nothing is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

SOURCES: Final = (
    *("layout", "lines", "rows", "records", "search", "grouping", "summaries", "edit", "rebound"),
    *("tree", "kernels", "compiling"),
)
"""The modules of this package that the machine code is made from."""

LIBRARY, OBJECT = ".so", ".o"

AT_MOST: Final = 16
"""Files that are kept; the oldest go. Wild guess: some versions and environments of one user."""

FOLDER: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

CPU: Final = ("vendor_id", "model name", "flags", "Features", "CPU implementer", "CPU part", "isa")
"""Lines of /proc/cpuinfo that say which instructions there are, on several architectures."""

_keep_alive: list[Any] = []  # what has been loaded


def _cpu() -> str:
    """What kind of CPU this is; if that cannot be told, which machine."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            first = list(iter(lines.readline, "\n"))[:100]
    except OSError:
        first = []
    told = [line for line in first if line.split(":")[0].strip() in CPU]
    return "".join(told) or repr(platform.uname())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def key() -> str:
    """A checksum of all that the machine code depends on."""
    told = [sys.version, platform.system(), platform.machine(), _cpu()]
    told += [_version(package) for package in ("numba", "llvmlite")]
    checksum = hashlib.blake2b("\n".join(told).encode(), digest_size=12)
    for source in SOURCES:
        checksum.update((files("matching.engine") / f"{source}.py").read_bytes())
    return checksum.hexdigest()


def _sum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def folder() -> Path | None:
    """Where they are kept; None if nothing can be."""
    if not hasattr(os, "getuid"):
        return None
    root = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "canopy"
    except RuntimeError:  # nobody's home
        return None


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & OTHERS_WRITE


@contextlib.contextmanager
def _opened() -> Iterator[int]:
    """The folder's descriptor; OSError if it is not there or not ours alone."""
    place = folder()
    if place is None:
        raise OSError("there is no place where kernels could be kept")
    descriptor = os.open(place, FOLDER)
    try:
        if not _is_ours(os.fstat(descriptor)):
            raise OSError(f"{place} is not ours alone")
        yield descriptor
    finally:
        os.close(descriptor)


def _names(place: int) -> list[str]:
    """All files of this kind, the newest first."""
    names = [name for name in os.listdir(place) if name.startswith("kernels-")]
    return sorted(names, key=lambda name: -os.lstat(name, dir_fd=place).st_mtime_ns)


def _find(place: int) -> list[str]:
    """The files for this process, by their names; libraries before objects."""
    mine = [name for name in _names(place) if name.startswith(f"kernels-{key()}-")]
    return sorted(mine, key=lambda name: not name.endswith(LIBRARY))


def find() -> list[str]:
    """The names of the files for this process; libraries before objects."""
    try:
        with _opened() as place:
            return _find(place)
    except OSError:
        return []


def load(names: Sequence[str]) -> dict[str, int] | None:
    """The addresses of the functions of these names; None if there is no file that can be trusted.

    One that cannot be used is taken away.
    """
    with contextlib.suppress(OSError), _opened() as place:
        for file in _find(place):
            try:
                return _load(place, file, names)
            except (OSError, AttributeError, ImportError, RuntimeError):
                os.unlink(file, dir_fd=place)
    return None


def _load(place: int, file: str, names: Sequence[str]) -> dict[str, int]:
    """OSError if the file is not what it says or not ours, AttributeError if a function lacks."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    with open(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_ours(status):
            raise OSError(f"{file} is not ours alone")
        data = opened.read()
    if Path(file).stem.rpartition("-")[2] != _sum(data):
        raise OSError(f"{file} is damaged")
    if file.endswith(OBJECT):
        return load_object(data, names)
    # The system takes two libraries of one name for the same: the sum in it makes that true.
    library = ctypes.PyDLL(f"/proc/self/fd/{place}/{file}")
    _keep_alive.append(library)
    return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names}


def load_object(data: bytes, names: Sequence[str]) -> dict[str, int]:
    """The addresses of the functions of an object file, which LLVM loads."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    _keep_alive.append(engine)
    addresses = {name: engine.get_function_address(name) for name in names}
    if not all(addresses.values()):
        raise AttributeError(f"not all of {', '.join(names)} are there")
    return addresses


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Only one process of this user at a time; where that cannot be had, without it.

    The folder is made, and if others could write to it, that is ended.
    """
    try:
        import fcntl

        path = folder()
        if path is None:
            raise OSError("there is no place for a lock")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = os.open(path, FOLDER)
        try:
            if os.fstat(place).st_uid != os.getuid():
                raise OSError(f"{path} is somebody else's")
            os.fchmod(place, 0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open("lock", flags, 0o600, dir_fd=place)
        finally:
            os.close(place)
    except (OSError, ImportError):
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def keep(data: bytes, suffix: str) -> None:
    """Write a file for this process and others to come; OSError if that cannot be done."""
    with _opened() as place:
        temporary = f"new-{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=place)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(temporary, flags, 0o600, dir_fd=place), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        name = f"kernels-{key()}-{_sum(data)}{suffix}"
        os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)
        for old in _names(place)[AT_MOST:]:
            os.unlink(old, dir_fd=place)
