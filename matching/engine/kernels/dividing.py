"""The kernel that divides the pairs that `search_groups` has found among their groups."""

from __future__ import annotations

from matching.engine.kernels.cache_lines import kernel, read32, read64, write32, write64
from matching.engine.kernels.layout import (
    D_EVENTS,
    D_GROUPS,
    D_ORDER,
    D_PLACES,
    D_RUN_COUNT,
    D_RUNS,
    D_STARTS,
    D_WITNESSES,
)


@kernel
def _runs(d: int, groups: int, count: int) -> None:
    """Count each group's pairs: where they begin (`D_STARTS`) and end (`D_RUNS`)."""
    starts, runs = read64(d + D_STARTS * 8), read64(d + D_RUNS * 8)
    for group in range(read64(d + D_GROUPS * 8)):
        write32(starts + group * 4, 0)
    for pair in range(count):
        at = starts + read32(groups + pair * 4) * 4
        write32(at, read32(at) + 1)
    done = found = 0
    for group in range(read64(d + D_GROUPS * 8)):
        size = read32(starts + group * 4)
        if size > 0:
            write32(starts + group * 4, done)
            done += size
            write32(runs + found * 8, group)
            write32(runs + found * 8 + 4, done)
            found += 1
    write64(d + D_RUN_COUNT * 8, found)


@kernel
def divide(d: int, positions: int, groups: int, labels: int, count: int, hits: int) -> int:
    """Divide `count` pairs, which are in the order of their events, among their groups. Each counts
    as a hit of its label where `hits` is an address: int64[labels]. Returns how many events have
    pairs."""
    _runs(d, groups, count)
    starts, order = read64(d + D_STARTS * 8), read64(d + D_ORDER * 8)
    events, witnesses = read64(d + D_EVENTS * 8), read64(d + D_WITNESSES * 8)
    places = read64(d + D_PLACES * 8)
    last, wanted = -1, 0
    for pair in range(count):
        position, label = read32(positions + pair * 4), read32(labels + pair * 4)
        if position != last:
            write32(events + wanted * 4, position)
            write32(witnesses + wanted * 4, label)
            last = position
            wanted += 1
        if hits:
            write64(hits + label * 8, read64(hits + label * 8) + 1)
        start = starts + read32(groups + pair * 4) * 4
        at = read32(start)
        write32(places + at * 4, wanted - 1)
        write32(order + at * 4, pair)
        write32(start, at + 1)
    return wanted
