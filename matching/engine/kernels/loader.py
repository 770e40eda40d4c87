"""The kernels as functions that Python can call, loaded from disk or compiled first.

A call costs 28 ns: the machine code is wrapped as a builtin function of CPython (measured: a call
through `ctypes` takes 135 ns, through numba's dispatcher 130).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from matching.engine.kernels import code_cache
from matching.engine.kernels.code_cache import ENTRIES


@dataclass(frozen=True)
class Kernels:
    """The entries, ready to be called: integers in, an integer out (0 where there is no result).

    They check neither the number of their arguments nor that these are integers: a wrong call may
    crash the process. What the arguments mean is said where each is written (`code_cache.ENTRIES`).
    """

    search: Callable[[int], int]
    search_groups: Callable[[int, int, int, int], int]
    divide: Callable[[int, int, int, int, int, int], int]
    insert: Callable[[int, int, int, int, int, int], int]
    remove: Callable[[int, int], int]
    tighten: Callable[[int, int, int], int]
    move: Callable[[int, int, int, int, int], int]
    extents_of: Callable[[int, int, int, int, int], int]
    fill: Callable[[int, int, int, int, int, int, int], int]
    interval_ends: Callable[[int, int, int, int, int], int]
    rebucket: Callable[[int, int, int, int], int]
    extents: Callable[[int, int, int, int, int, int], int]
    grow: Callable[[int, int, int, int, int, int, int, int, int, int], int]


class _MethodDefinition(ctypes.Structure):
    """CPython's `PyMethodDef`: what makes a builtin function of an address (C API reference)."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


FASTCALL: Final = 0x80
"""METH_FASTCALL of CPython's C API: the arguments come as an array and their number."""

_definitions: list[_MethodDefinition] = []  # CPython keeps pointers to them: never freed


def builtin(name: str, address: int) -> Any:
    """The kernel whose code is at this address, as a builtin function called `name`."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    _definitions.append(_MethodDefinition(name.encode(), address, FASTCALL, None))
    return make(ctypes.addressof(_definitions[-1]), None, None)


def bind(addresses: Mapping[str, int]) -> Kernels:
    """All kernels, given the address of each entry's code by name."""
    return Kernels(**{name: builtin(name, addresses[name]) for name in ENTRIES})


@cache
def kernels() -> Kernels:
    """The kernels of this process. The first call loads them, or compiles them if no process of
    this user has done so on this machine: milliseconds, or several seconds."""
    return bind(load_or_compile())


def load_or_compile() -> dict[str, int]:
    """The addresses of all entries by name, from the cache on disk if they are there.

    Only one process of a user compiles at a time; the others wait for it and load the result.
    """
    names = tuple(ENTRIES)
    addresses = code_cache.load(names)
    if addresses is None:
        with code_cache.exclusive():
            addresses = code_cache.load(names)
            if addresses is None:
                # Imported here: it needs numba, which a process that only matches does without.
                from matching.engine.kernels import compiler

                addresses = compiler.compile_and_store()
    return addresses


def are_cached() -> bool:
    """Whether `kernels` will find compiled code on disk, and so take milliseconds."""
    return bool(code_cache.find())
