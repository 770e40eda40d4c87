"""The door to the kernels: what Python calls, however their machine code came into this process.

A kernel's text is Python (`search`, `grouping`, `edit`, `tree`), its code is numba's; but numba and
LLVM are 60 MB and a second to import, which a process that only matches need not have. So the code
is compiled once per machine and version and kept on disk (`compiling`, `kept`), and from then on
loaded as any shared library is, in a millisecond. All arguments are integers: counts and addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from matching.engine import kept


class Entry(NamedTuple):
    """A kernel that Python calls."""

    module: str  # of `matching.engine`
    arguments: int
    slow: bool = False  # takes long enough for other threads to run meanwhile


ENTRIES: Final = {
    "search": Entry("search", 1),
    "search_groups": Entry("grouping", 4),
    "insert": Entry("edit", 1),
    "remove": Entry("edit", 2),
    "tighten": Entry("edit", 3),
    "move": Entry("edit", 5),
    "extents_of": Entry("edit", 5),
    "fill": Entry("edit", 7, slow=True),
    "extents": Entry("tree", 6, slow=True),
    "grow": Entry("tree", 10, slow=True),
}
"""By name."""

Call = Callable[..., int]


@dataclass(frozen=True)
class Kernels:
    """The entries, ready to be called: integers in, an integer out (0 where there is no result)."""

    search: Call
    search_groups: Call
    insert: Call
    remove: Call
    tighten: Call
    move: Call
    extents_of: Call
    fill: Call
    extents: Call
    grow: Call


def at(addresses: Mapping[str, int]) -> Kernels:
    """The entries whose code is at these addresses."""
    calls: dict[str, Call] = {}
    for name, entry in ENTRIES.items():
        # The first kind lets other threads run during a call, which costs 30 ns (measured).
        kind = ctypes.CFUNCTYPE if entry.slow else ctypes.PYFUNCTYPE
        prototype = kind(ctypes.c_int64, *[ctypes.c_int64] * entry.arguments)
        calls[name] = prototype(addresses[name])
    return Kernels(**calls)


@cache
def kernels() -> Kernels:
    """The kernels; the first call loads them, or compiles them if that has not been done here."""
    addresses = kept.load(tuple(ENTRIES))
    if addresses is None:
        from matching.engine import compiling

        addresses = compiling.make()
    return at(addresses)


def are_kept() -> bool:
    """Whether `kernels` will find them compiled; that is a matter of milliseconds then."""
    return bool(kept.find())
