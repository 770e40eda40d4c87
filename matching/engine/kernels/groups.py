"""The kernel that matches a batch of events in one call, and finds the groups of the labels.

The result is pairs of an event and a *group* of labels (see `group_matcher`): each group once per
event, with the label found first. An event's blocks are searched a few at a time, and no further
once all existing groups have been found: where an event matches a hundred labels of eight groups,
that takes a third of its blocks.
"""

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
    EVENT,
    G_EVENTS,
    G_EXIST,
    G_GROUPS,
    G_LABELS,
    G_MARKS,
    G_NUMBERS,
    G_POSITIONS,
    G_UNSURE,
    G_UNSURE_COUNT,
    H_ASK_COUNT,
    H_EVENT,
    H_FOUND,
    H_FOUND_COUNT,
)
from matching.engine.kernels.rows import encode_event
from matching.engine.kernels.search import alive_blocks, search_blocks

BLOCKS_PER_STEP = 3
"""Blocks searched between checks whether all groups are found. If less than half of the groups are
found after the first step, all other blocks are searched at once, since more steps would cost more
than they could save."""


@kernel
def _note_groups(h: int, g: int, position: int, start: int, pairs: int) -> int:
    """Append pairs for the labels found from `start` on; returns the new number of pairs."""
    groups, marks = read64(g + G_GROUPS * 8), read64(g + G_MARKS * 8)
    positions, numbers = read64(g + G_POSITIONS * 8), read64(g + G_NUMBERS * 8)
    labels, found = read64(g + G_LABELS * 8), read64(h + H_FOUND * 8)
    event = read64(g + G_EVENTS * 8)
    for number in range(start, read64(h + H_FOUND_COUNT * 8)):
        label = read32(found + number * 4)
        group = read32(groups + label * 4)
        # Written in any case, and counted only if the group is new: no branch to mispredict.
        write32(positions + pairs * 4, position)
        write32(numbers + pairs * 4, group)
        write32(labels + pairs * 4, label)
        pairs += read64(marks + group * 8) != event
        write64(marks + group * 8, event)
    return pairs


@kernel
def search_groups(h: int, events: int, count: int, g: int) -> int:
    """Find the groups of `count` events that are encoded at an address; returns the number of
    pairs.

    Events with labels to be evaluated in Python are listed (`G_UNSURE`) instead, unless all groups
    were found without these.
    """
    cell = read64(h + H_EVENT * 8)
    own = read64(cell)
    exist = read64(g + G_EXIST * 8)
    pairs, unsure = 0, 0
    for position in range(count):
        write64(cell, events + position * EVENT * 8)
        write64(g + G_EVENTS * 8, read64(g + G_EVENTS * 8) + 1)
        encode_event(h)
        alive = alive_blocks(h)
        before, start, done = pairs, 0, 0
        while done < alive and pairs - before < exist:
            few = done > 0 and 2 * (pairs - before) < exist
            last = alive if few else min(done + BLOCKS_PER_STEP, alive)
            search_blocks(h, done, last, alive)
            pairs = _note_groups(h, g, position, start, pairs)
            start, done = read64(h + H_FOUND_COUNT * 8), last
        if pairs - before < exist and read64(h + H_ASK_COUNT * 8):
            write32(read64(g + G_UNSURE * 8) + unsure * 4, position)
            unsure += 1
            pairs = before
    write64(cell, own)
    write64(g + G_UNSURE_COUNT * 8, unsure)
    return pairs


# --- the kernel that divides the pairs that `search_groups` has found among their groups ---


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
