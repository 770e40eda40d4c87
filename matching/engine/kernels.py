"""The door to the kernels: what Python calls, however their machine code came into this process.

A kernel's text is Python (the modules from `rows` to `tree` in `kept.SOURCES`), its code is
numba's; but numba and LLVM are 60 MB and a second to import, which a process that only matches need
not have. So the code is compiled once per machine and version and kept on disk (`compiling`,
`kept`), and from then on loaded as any shared library is, in a millisecond. All arguments are
integers: counts and addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from matching.engine import kept


class Entry(NamedTuple):
    """A kernel that Python calls."""

    module: str  # of `matching.engine`
    arguments: int


ENTRIES: Final = {
    "search": Entry("search", 1),
    "search_groups": Entry("grouping", 4),
    "insert": Entry("edit", 1),
    "remove": Entry("edit", 2),
    "tighten": Entry("summaries", 3),
    "move": Entry("edit", 5),
    "extents_of": Entry("edit", 5),
    "fill": Entry("edit", 7),
    "ends": Entry("rebound", 5),
    "rebound": Entry("rebound", 4),
    "extents": Entry("tree", 6),
    "grow": Entry("tree", 10),
}
"""By name."""


@dataclass(frozen=True)
class Kernels:
    """The entries, ready to be called: integers in, an integer out (0 where there is no result).

    They do not look at how many arguments there are, or whether these are integers.
    """

    search: Callable[[int], int]
    search_groups: Callable[[int, int, int, int], int]
    insert: Callable[[int], int]
    remove: Callable[[int, int], int]
    tighten: Callable[[int, int, int], int]
    move: Callable[[int, int, int, int, int], int]
    extents_of: Callable[[int, int, int, int, int], int]
    fill: Callable[[int, int, int, int, int, int, int], int]
    ends: Callable[[int, int, int, int, int], int]
    rebound: Callable[[int, int, int, int], int]
    extents: Callable[[int, int, int, int, int, int], int]
    grow: Callable[[int, int, int, int, int, int, int, int, int, int], int]


class _Definition(ctypes.Structure):
    """What CPython wants to know of a builtin function (`PyMethodDef` in its C API)."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


FASTCALL: Final = 0x80  # METH_FASTCALL: the arguments are an array

_definitions: list[_Definition] = []  # they have to stay as long as their functions


def builtin(name: str, address: int) -> Any:
    """The entry whose code is at an address, as a builtin function.

    Measured: a call with one argument takes 28 ns; as a function of `ctypes` 135, and 130 by numba.
    """
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    _definitions.append(_Definition(name.encode(), address, FASTCALL, None))
    return make(ctypes.addressof(_definitions[-1]), None, None)


def at(addresses: Mapping[str, int]) -> Kernels:
    """All entries, whose code is at these addresses."""
    return Kernels(**{name: builtin(name, addresses[name]) for name in ENTRIES})


@cache
def kernels() -> Kernels:
    """The kernels; the first call loads them, or compiles them if that has not been done here."""
    return at(obtain())


def obtain() -> dict[str, int]:
    """The addresses of all entries. If another process is compiling, that is waited for."""
    names = tuple(ENTRIES)
    addresses = kept.load(names)
    if addresses is None:
        with kept.alone():
            addresses = kept.load(names)
            if addresses is None:
                from matching.engine import compiling

                addresses = compiling.make()
    return addresses


def are_kept() -> bool:
    """Whether `kernels` will find them compiled; that is a matter of milliseconds then."""
    return bool(kept.find())
