"""Compiled kernels on disk: where they are stored, whether a file can be trusted, and loading it.

The one module of this package that does IO, and not part of any protocol machine: it does what an
import does. There is one file per version of the kernels' source, kind of CPU, and version of
Python and numba, in the user's cache folder (XDG Base Directory specification)::

    $XDG_CACHE_HOME/canopy/kernels-KEY-SUM.o      an object file, which llvmlite can load
                           kernels-KEY-SUM.so     a shared library of it, where there was a linker

The library is loaded by the system itself, within a millisecond. The object file is for machines
without a linker, or where libraries may not be loaded from that folder; llvmlite costs 40 MB.

KEY is a checksum of all that the code depends on, SUM of the file's bytes. So a stale file is never
found, and a damaged one is noticed before it is loaded (a truncated library would kill the
process). The code runs with the rights of the user who loads it, so a file is only trusted if it
and its folder belong to this user and are writable by no other user; it is opened relative to the
descriptor of the very folder that was checked. On systems without file owners nothing is stored.
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

ENTRIES: Final = {
    "search": "search",
    "search_groups": "groups",
    "divide": "groups",
    "insert": "updates",
    "remove": "updates",
    "tighten": "records",
    "move": "updates",
    "extents_of": "updates",
    "fill": "updates",
    "interval_ends": "updates",
    "rebucket": "updates",
    "extents": "placement_tree",
    "grow": "placement_tree",
}
"""The kernels that Python calls, each with the module of this package that it is written in. The
functions of `loader.Kernels` have these names. It is here since `compiler` needs numba and
`loader` must do without."""

SOURCES: Final = (
    *("layout", "cache_lines", "rows", "records", "search", "groups", "updates"),
    *("placement_tree", "code_cache", "compiler"),
)
"""The modules of this package that the machine code is made from."""

LIBRARY, OBJECT = ".so", ".o"

MAX_FILES: Final = 16
"""Files in the folder; the oldest are deleted. Not measured; would be measured by how many versions
and environments one user runs in turn."""

FOLDER_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

CPU: Final = ("vendor_id", "model name", "flags", "Features", "CPU implementer", "CPU part", "isa")
"""Keys of /proc/cpuinfo that determine the instruction set, on several architectures."""

_loaded: list[Any] = []  # libraries and execution engines, whose code must not be unloaded


def _cpu() -> str:
    """The kind of CPU; the machine's name and system where that cannot be read."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            first = list(iter(lines.readline, "\n"))[:100]
    except OSError:
        first = []
    described = [line for line in first if line.split(":")[0].strip() in CPU]
    return "".join(described) or repr(platform.uname())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def key() -> str:
    """A checksum (24 hexadecimal digits) of all that the machine code depends on."""
    depends = [sys.version, platform.system(), platform.machine(), _cpu()]
    depends += [_version(package) for package in ("numba", "llvmlite")]
    checksum = hashlib.blake2b("\n".join(depends).encode(), digest_size=12)
    for source in SOURCES:
        checksum.update((files("matching.engine.kernels") / f"{source}.py").read_bytes())
    return checksum.hexdigest()


def _sum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def cache_folder() -> Path | None:
    """The folder with the compiled kernels; None on systems without file owners or a home."""
    if not hasattr(os, "getuid"):
        return None
    root = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "canopy"
    except RuntimeError:  # no home folder
        return None


def _is_trusted(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not status.st_mode & OTHERS_WRITE


@contextlib.contextmanager
def _open_folder() -> Iterator[int]:
    """The folder's descriptor; OSError if it does not exist or others could write to it."""
    place = cache_folder()
    if place is None:
        raise OSError("there is no folder to store compiled kernels in")
    descriptor = os.open(place, FOLDER_FLAGS)
    try:
        if not _is_trusted(os.fstat(descriptor)):
            raise OSError(f"{place} is not owned, and writable, by this user alone")
        yield descriptor
    finally:
        os.close(descriptor)


def _names(place: int) -> list[str]:
    """The names of all files with kernels, the newest first."""
    names = [name for name in os.listdir(place) if name.startswith("kernels-")]
    return sorted(names, key=lambda name: -os.lstat(name, dir_fd=place).st_mtime_ns)


def _find(place: int) -> list[str]:
    """The names of the files for this process; libraries before object files."""
    usable = [name for name in _names(place) if name.startswith(f"kernels-{key()}-")]
    return sorted(usable, key=lambda name: not name.endswith(LIBRARY))


def find() -> list[str]:
    """The names of the files that this process could load; libraries before object files."""
    try:
        with _open_folder() as place:
            return _find(place)
    except OSError:
        return []


def load(names: Sequence[str]) -> dict[str, int] | None:
    """The addresses of these functions, by name; None if there is no trusted file with all of them.

    A file that cannot be used is deleted.
    """
    with contextlib.suppress(OSError), _open_folder() as place:
        for file in _find(place):
            try:
                return _load(place, file, names)
            except (OSError, AttributeError, ImportError, RuntimeError):
                os.unlink(file, dir_fd=place)
    return None


def _load(place: int, file: str, names: Sequence[str]) -> dict[str, int]:
    """Load a file of compiled kernels and return the address of each function. Raises OSError if
    the file is damaged or not trusted, AttributeError if a function is missing."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
    with open(descriptor, "rb") as opened:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_trusted(status):
            raise OSError(f"{file} is not owned, and writable, by this user alone")
        data = opened.read()
    if Path(file).stem.rpartition("-")[2] != _sum(data):
        raise OSError(f"{file} is damaged")
    if file.endswith(OBJECT):
        return load_object(data, names)
    # The dynamic linker takes two libraries of one name for the same one; since the name contains
    # the checksum, they are.
    library = ctypes.PyDLL(f"/proc/self/fd/{place}/{file}")
    _loaded.append(library)
    return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names}


def load_object(data: bytes, names: Sequence[str]) -> dict[str, int]:
    """The addresses of these functions of an object file, which LLVM loads.

    AttributeError if one is missing, ImportError without llvmlite.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    _loaded.append(engine)
    addresses = {name: engine.get_function_address(name) for name in names}
    if not all(addresses.values()):
        raise AttributeError(f"the object file lacks some of {', '.join(names)}")
    return addresses


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """A lock that one process of this user holds at a time; without it where there can be no lock.

    Creates the folder, and takes the right to write to it from all other users.
    """
    try:
        import fcntl

        path = cache_folder()
        if path is None:
            raise OSError("there is no folder for a lock")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = os.open(path, FOLDER_FLAGS)
        try:
            if os.fstat(place).st_uid != os.getuid():
                raise OSError(f"{path} belongs to another user")
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


def store(data: bytes, suffix: str) -> None:
    """Write a file of compiled kernels and delete the oldest ones; OSError if it cannot be done."""
    with _open_folder() as place:
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
        for old in _names(place)[MAX_FILES:]:
            os.unlink(old, dir_fd=place)
