"""Kernels that decide which subscriptions share a word and a block: a greedy decision tree.

A word of 64 subscriptions is skipped if one column excludes all of them, so subscriptions should be
together that fail together: that use the same columns, with intervals in the same rows. A node
divides its subscriptions in three: without a certain column; with it and a *key* (the first row,
the last row, or their sum) up to a pivot; and with a greater key. The pivot is the key's median.

Of all columns and keys that cut is chosen which gains most per bit of entropy (as decision trees
are grown by their gain ratio: Quinlan, "C4.5", 1993). The gain is the expected number of
subscriptions that an event can skip by the hull of their part, less those it skips anyway, for
events that are evenly distributed over the rows. Large nodes are judged by a sample.
"""

from __future__ import annotations

import math

from matching.engine.kernels.cache_lines import kernel, read8, read64, write8, write64
from matching.engine.kernels.layout import (
    ABSENT,
    FIRST,
    H_INDEXED,
    H_LINES,
    H_NODES,
    H_SPANS,
    INDEXED,
    LAST,
    N_BEYOND,
    N_BLOCK,
    N_COLUMN,
    N_KEY,
    N_PIVOT,
    N_UPTO,
    N_WITHOUT,
    NODE,
    ROWS,
    TREE_HISTOGRAM,
    TREE_HULLS,
    TREE_KEYS,
    TREE_PIVOTS,
    TREE_WORDS,
)
from matching.engine.kernels.updates import spans

# Subscriptions up to which a node is not divided; a word is 64. Measured at 300,000: 3 % more
# blocks with 96, since small leaves are not split between blocks; no difference with 24.
LEAF = 48
# Subscriptions by which a larger node is judged. Not measured; would be measured by the blocks
# alive per match with samples of 1,000 to 16,000.
JUDGED = 4096
HULL_COUNT, HULL_LEAST, HULL_MOST, HULL = range(4)  # words of a hull, and how many


@kernel
def extents(h: int, jobs: int, starts: int, count: int, low: int, high: int) -> None:
    """The first and last row of many jobs in each column (ABSENT: none).

    `starts`: the word of `jobs` where each begins; the results `low` and `high`: uint8[count,
    indexed].
    """
    out, indexed = read64(h + H_SPANS * 8), read64(h + H_INDEXED * 8)
    for number in range(count):
        spans(h, jobs + read64(starts + number * 8) * 8)
        for column in range(indexed):
            first = read64(out + column * 8)
            last = read64(out + (INDEXED + column) * 8)
            write8(low + number * indexed + column, ABSENT if first < 0 else first)
            write8(high + number * indexed + column, ABSENT if first < 0 else last)


@kernel
def _key_value(first: int, last: int, key: int) -> int:
    """A subscription's key, given its first and last row."""
    return first if key == FIRST else last if key == LAST else first + last


@kernel
def _add(address: int, number: int) -> None:
    """Add a number to the word at an address."""
    write64(address, read64(address) + number)


@kernel
def _hull(scratch: int, column: int, key: int, side: int) -> int:
    """The address of the hull of one side of a cut."""
    return scratch + (TREE_HULLS + ((column * TREE_KEYS + key) * 2 + side) * HULL) * 8


@kernel
def _pivots(
    indexed: int, low: int, high: int, part: int, count: int, step: int, scratch: int
) -> None:
    """For each column the number of subscriptions in the sample that use it, and for each key its
    median, both in scratch."""
    histogram = scratch + TREE_HISTOGRAM * 8
    for column in range(indexed):
        write64(scratch + column * 8, 0)
    for place in range(indexed * TREE_KEYS * 2 * ROWS):
        write64(histogram + place * 8, 0)
    for number in range(0, count, step):
        which = read64(part + number * 8) * indexed
        for column in range(indexed):
            first, last = read8(low + which + column), read8(high + which + column)
            if first != ABSENT:
                _add(scratch + column * 8, 1)
                for key in range(TREE_KEYS):
                    place = (column * TREE_KEYS + key) * 2 * ROWS + _key_value(first, last, key)
                    _add(histogram + place * 8, 1)
    for column in range(indexed):
        with_it = read64(scratch + column * 8)
        for key in range(TREE_KEYS):
            of_key = histogram + (column * TREE_KEYS + key) * 2 * ROWS * 8
            below, value = 0, -1
            while 2 * below < with_it:
                value += 1
                below += read64(of_key + value * 8)
            # If no key is greater than the median, the pivot is the next smaller key.
            if below == with_it and value >= 0:
                below -= read64(of_key + value * 8)
                value -= 1
            pivot = scratch + (TREE_PIVOTS + column * TREE_KEYS + key) * 8
            write64(pivot, value if below > 0 else -1)


@kernel
def _hulls(
    indexed: int, low: int, high: int, part: int, count: int, step: int, scratch: int
) -> None:
    """For each column, key and side of the pivot: the number of subscriptions, their least first
    row and their greatest last row, in scratch."""
    for column in range(indexed):
        for key in range(TREE_KEYS):
            for side in range(2):
                hull = _hull(scratch, column, key, side)
                write64(hull + HULL_COUNT * 8, 0)
                write64(hull + HULL_LEAST * 8, ROWS)
                write64(hull + HULL_MOST * 8, -1)
    for number in range(0, count, step):
        which = read64(part + number * 8) * indexed
        for column in range(indexed):
            first, last = read8(low + which + column), read8(high + which + column)
            if first == ABSENT:
                continue
            for key in range(TREE_KEYS):
                pivot = read64(scratch + (TREE_PIVOTS + column * TREE_KEYS + key) * 8)
                side = 0 if _key_value(first, last, key) <= pivot else 1
                hull = _hull(scratch, column, key, side)
                _add(hull + HULL_COUNT * 8, 1)
                write64(hull + HULL_LEAST * 8, min(read64(hull + HULL_LEAST * 8), first))
                write64(hull + HULL_MOST * 8, max(read64(hull + HULL_MOST * 8), last))


@kernel
def _entropy(count: int, total: int) -> float:
    """The bits to say for `count` of `total` subscriptions that they are in this part."""
    return 0.0 if count == 0 else -count * math.log2(count / total)


@kernel
def _score(scratch: int, column: int, key: int, total: int, rows: int) -> float:
    """Return the gain of a cut per bit of entropy, in a column of `total` rows; 0 if the cut
    divides nothing."""
    with_it = read64(scratch + column * 8)
    pivot = read64(scratch + (TREE_PIVOTS + column * TREE_KEYS + key) * 8)
    if with_it == 0 or (pivot < 0 and with_it == total):
        return 0.0
    gain, spent = 0.0, _entropy(total - with_it, total)
    least, most = ROWS, -1
    for side in range(2):
        hull = _hull(scratch, column, key, side)
        count = read64(hull + HULL_COUNT * 8)
        first, last = read64(hull + HULL_LEAST * 8), read64(hull + HULL_MOST * 8)
        if count:
            gain += count * (1.0 - (last - first + 1) / (rows - 2))
            spent += _entropy(count, total)
            least, most = min(least, first), max(most, last)
    if with_it == total:  # an event outside of the hull of all skips them anyway
        whole = (most - least + 1) / (rows - 2)
        gain = (gain - total * (1.0 - whole)) / whole
    # A cut without gain still serves to split a full block.
    return (gain / spent if spent > 0 else 0.0) + 1e-9 * spent


@kernel
def _best_cut(h: int, low: int, high: int, part: int, count: int, scratch: int) -> int:
    """The best cut of a node, as column * TREE_KEYS + key, with its pivot in scratch; -1: none."""
    indexed, lines = read64(h + H_INDEXED * 8), read64(h + H_LINES * 8)
    step = max(1, count // JUDGED)
    total = (count + step - 1) // step
    _pivots(indexed, low, high, part, count, step, scratch)
    _hulls(indexed, low, high, part, count, step, scratch)
    best, cut = 0.0, -1
    for column in range(indexed):
        rows = read64(lines + (column + 1) * 8) - read64(lines + column * 8)
        for key in range(TREE_KEYS):
            score = _score(scratch, column, key, total, rows)
            if score > best:
                best, cut = score, column * TREE_KEYS + key
    return cut


@kernel
def _partition(
    indexed: int, low: int, high: int, part: int, count: int, cut: int, pivot: int, spare: int
) -> int:
    """Sort a node's subscriptions into its three parts.

    Returns the size of the first part, plus 2**32 times that of the second. `spare`: int64[2 *
    count] of scratch.
    """
    column, key = cut // TREE_KEYS, cut % TREE_KEYS
    sides = spare + count * 8
    without, upto = 0, 0
    for number in range(count):
        which = read64(part + number * 8)
        first = read8(low + which * indexed + column)
        last = read8(high + which * indexed + column)
        side = 0 if first == ABSENT else 1 if _key_value(first, last, key) <= pivot else 2
        write64(spare + number * 8, which)
        write64(sides + number * 8, side)
        without += 1 if side == 0 else 0
        upto += 1 if side == 1 else 0
    one, two, three = part, part + without * 8, part + (without + upto) * 8
    for number in range(count):
        which, side = read64(spare + number * 8), read64(sides + number * 8)
        if side == 0:
            write64(one, which)
            one += 8
        elif side == 1:
            write64(two, which)
            two += 8
        else:
            write64(three, which)
            three += 8
    return without + (upto << 32)


@kernel
def _push(stack: int, node: int, start: int, end: int) -> int:
    """Push a node and its part; returns the new top of the stack."""
    write64(stack, node)
    write64(stack + 8, start)
    write64(stack + 16, end)
    return stack + 24


@kernel
def grow(
    h: int,
    count: int,
    root: int,
    used: int,
    room: int,
    low: int,
    high: int,
    order: int,
    ends: int,
    scratch: int,
) -> int:
    """Grow a tree for `count` subscriptions under a leaf; returns the new number of nodes.

    `low`, `high`: the subscriptions' first and last rows, as from `extents`. `order` (a
    permutation, int64[count]) is sorted so that each leaf's subscriptions are adjacent; `ends`
    (int64[count + 4, 2]) gets (leaf, end of its part) for each leaf in this order, and (-1, …)
    after the last. Stops dividing when `room` nodes are in use. `scratch` has `layout.tree_scratch`
    words.
    """
    indexed, nodes = read64(h + H_INDEXED * 8), read64(h + H_NODES * 8)
    spare = scratch + TREE_WORDS * 8
    bottom = spare + 2 * count * 8
    stack = _push(bottom, root, 0, count)
    leaves = 0
    while stack > bottom:
        stack -= 24
        node, start, end = read64(stack), read64(stack + 8), read64(stack + 16)
        part, size, cut = order + start * 8, end - start, -1
        if size > LEAF and used + 3 <= room:
            cut = _best_cut(h, low, high, part, size, scratch)
        at = nodes + node * NODE * 8
        write64(at + N_COLUMN * 8, cut // TREE_KEYS)
        if cut < 0:
            write64(at + N_BLOCK * 8, -1)
            write64(ends + leaves * 16, node)
            write64(ends + leaves * 16 + 8, end)
            leaves += 1
            continue
        pivot = read64(scratch + (TREE_PIVOTS + cut) * 8)
        sizes = _partition(indexed, low, high, part, size, cut, pivot, spare)
        one = start + (sizes & 0xFFFF_FFFF)
        two = one + (sizes >> 32)
        write64(at + N_KEY * 8, cut % TREE_KEYS)
        write64(at + N_PIVOT * 8, pivot)
        write64(at + N_WITHOUT * 8, used)
        write64(at + N_UPTO * 8, used + 1)
        write64(at + N_BEYOND * 8, used + 2)
        stack = _push(stack, used + 2, two, end)
        stack = _push(stack, used + 1, one, two)
        stack = _push(stack, used, start, one)
        used += 3
    write64(ends + leaves * 16, -1)
    return used
