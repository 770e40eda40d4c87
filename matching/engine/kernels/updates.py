"""Kernels that insert, remove and move subscriptions.

Removing only clears the live bit; inserting overwrites all that the former subscription left there.
"""

from __future__ import annotations

from matching.engine.kernels.cache_lines import (
    kernel,
    lowest_bit,
    read32,
    read64,
    write8,
    write16,
    write32,
    write64,
)
from matching.engine.kernels.layout import (
    ABSENT,
    ALWAYS,
    BLOCK,
    BLOCKS,
    BOUNDS,
    H_BOUNDS,
    H_INDEXED,
    H_NODES,
    H_SPANS,
    H_STRIDE,
    H_TABLE,
    H_WHERE,
    INDEXED,
    J_COUNT,
    J_FLAGS,
    J_LABEL,
    J_PARTS,
    LINE,
    N_BEYOND,
    N_BLOCK,
    N_COLUMN,
    N_KEY,
    N_PIVOT,
    N_UPTO,
    N_WITHOUT,
    NO_COLUMN,
    NODE,
    PYTHON,
    R_COLUMNS,
    R_LABEL,
    R_LOWS,
    R_PYTHON,
    ROW,
    SEGMENT,
    SPAN,
    T_ALWAYS,
    T_EXACT,
    T_FAILS,
    T_LABELS,
    T_LEAVES,
    T_LIVE,
    T_RECORDS,
    T_USED,
    TABLE,
)
from matching.engine.kernels.records import (
    ALL,
    clear_skip_bits,
    column_rows,
    first_row,
    record_bytes,
    set_bit,
    tighten_rows,
)
from matching.engine.kernels.rows import TURN, fine, row_of


@kernel
def _row_mask(first: int, last: int, word: int) -> int:
    """Rows `first` to `last` as a bit each, of the 64 rows in one of a column's words."""
    low, high = max(first - word * 64, 0), min(last - word * 64, 63)
    if low > 63 or high < 0:
        return 0
    return (ALL << low) & (ALL if high == 63 else (1 << (high + 1)) - 1)


@kernel
def spans(h: int, job: int) -> None:
    """Compute a job's rows (`H_SPANS`): for each column with rows the first and the last (-1:
    none), and a bit for each row in which it does not fail."""
    out, bounds = read64(h + H_SPANS * 8), read64(h + H_BOUNDS * 8)
    indexed = read64(h + H_INDEXED * 8)
    for column in range(indexed):
        write64(out + column * 8, -1)
        write64(out + (INDEXED + column) * 8, -1)
        for word in range(2, 2 + SPAN):
            write64(out + (word * INDEXED + column) * 8, 0)
    for part in range(read64(job + J_COUNT * 8)):
        column = read64(job + (J_PARTS + part * 3) * 8)
        if column >= indexed:
            continue
        of_column = bounds + column * BOUNDS * 8
        first = row_of(of_column, read64(job + (J_PARTS + part * 3 + 1) * 8))
        last = row_of(of_column, read64(job + (J_PARTS + part * 3 + 2) * 8))
        if read64(out + column * 8) < 0:
            write64(out + column * 8, first)
        write64(out + (INDEXED + column) * 8, last)
        for word in range(SPAN):
            rows = out + ((2 + word) * INDEXED + column) * 8
            write64(rows, read64(rows) | _row_mask(first, last, word))


@kernel
def descend(h: int) -> int:
    """The leaf of the placement tree for the subscription at `H_SPANS`."""
    nodes, out = read64(h + H_NODES * 8), read64(h + H_SPANS * 8)
    node = 0
    while True:
        at = nodes + node * NODE * 8
        column = read64(at + N_COLUMN * 8)
        if column < 0:
            return node
        first = read64(out + column * 8)
        last = read64(out + (INDEXED + column) * 8)
        if first < 0:
            node = read64(at + N_WITHOUT * 8)
            continue
        key = read64(at + N_KEY * 8)
        measure = first if key == 0 else last if key == 1 else first + last
        upto = measure <= read64(at + N_PIVOT * 8)
        node = read64(at + N_UPTO * 8) if upto else read64(at + N_BEYOND * 8)


@kernel
def _write_rows(h: int, table: int, place: int, skip_bitmap: bool) -> None:
    """Write the bits of the subscription at `H_SPANS` in all rows, perhaps the skip bitmap."""
    at = place % SEGMENT
    out, indexed = read64(h + H_SPANS * 8), read64(h + H_INDEXED * 8)
    size = record_bytes(read64(h + H_STRIDE * 8))
    old = read64(read64(table + T_RECORDS * 8) + (at + 1) * size + R_COLUMNS)
    # The former subscription's bits are still set in the columns of its record, and perhaps in
    # others if the record is full.
    full, stale = True, 0
    for part in range(read64(h + H_STRIDE * 8)):
        column = (old >> (8 * part)) & 255
        full &= column != NO_COLUMN
        if column < indexed:
            stale |= 1 << column
    fails = read64(table + T_FAILS * 8) + (at >> 6) * 8
    used = read64(table + T_USED * 8) + (at // BLOCK) * 8
    for column in range(indexed):
        has = read64(out + column * 8) >= 0
        if has:
            set_bit(used, column, 1)
        first = first_row(h, column)
        for word in range(column_rows(h, column) // 64):
            rows = read64(out + ((2 + word) * INDEXED + column) * 8) if has else ALL
            if has or full or (stale >> column) & 1:
                line = fails + (first + word * 64) * ROW
                for row in range(64):
                    set_bit(line + row * ROW, at & 63, 1 - ((rows >> row) & 1))
            if skip_bitmap:
                clear_skip_bits(h, table, place >> 6, first + word * 64, rows)


@kernel
def _write_part(
    h: int, record: int, exact: int, part: int, column: int, low: int, high: int
) -> None:
    """Write one part of a record and its whole codes; NO_COLUMN for a part that is not used."""
    write64(exact + part * 16, low)
    write64(exact + part * 16 + 8, high)
    lows = record + R_LOWS + part * 2
    highs = lows + read64(h + H_STRIDE * 8) * 2
    if column == NO_COLUMN:
        write16(lows, 0)
        write16(highs, ALL)
        return
    first, last = 0, 0
    if column < read64(h + H_INDEXED * 8):
        of_column = read64(h + H_BOUNDS * 8) + column * BOUNDS * 8
        first, last = row_of(of_column, low), row_of(of_column, high)
    write16(lows, fine(h, column, first, low))
    write16(highs, fine(h, column, last, high))


@kernel
def _write_record(h: int, table: int, at: int, job: int, leaf: int) -> None:
    """Write a job's record, codes, label, leaf and flags at a place of a segment."""
    stride = read64(h + H_STRIDE * 8)
    size = record_bytes(stride)
    record = read64(table + T_RECORDS * 8) + at * size
    exact = read64(table + T_EXACT * 8) + at * stride * 16
    columns, parts, last = ALL, 0, -1
    for number in range(read64(job + J_COUNT * 8)):
        column = read64(job + (J_PARTS + number * 3) * 8)
        low = read64(job + (J_PARTS + number * 3 + 1) * 8)
        high = read64(job + (J_PARTS + number * 3 + 2) * 8)
        if column == last:
            # Several intervals of a column are one part, from the first to the end of the last.
            low = read64(exact + (parts - 1) * 16)
            _write_part(h, record, exact, parts - 1, column, low, high)
        elif parts == stride:
            break
        else:
            columns &= ~(255 << (8 * parts)) | (column << (8 * parts))
            _write_part(h, record, exact, parts, column, low, high)
            parts, last = parts + 1, column
    for part in range(parts, stride):
        _write_part(h, record, exact, part, NO_COLUMN, -TURN - 1, TURN)
    flags, label = read64(job + J_FLAGS * 8), read64(job + J_LABEL * 8)
    write64(record + size + R_COLUMNS, columns)
    write32(record + size + R_LABEL, label | ((flags & PYTHON) >> 1) << R_PYTHON)
    word, bit = (at >> 6) * 8, at & 63
    set_bit(read64(table + T_ALWAYS * 8) + word, bit, flags & ALWAYS)
    set_bit(read64(table + T_LIVE * 8) + word, bit, 1)
    write32(read64(table + T_LABELS * 8) + at * 4, label)
    write32(read64(table + T_LEAVES * 8) + at * 4, leaf)


@kernel
def _free_place(h: int, block: int) -> int:
    """A place in a block without a subscription; -1 if the block is full."""
    table = read64(h + H_TABLE * 8) + (block // BLOCKS) * TABLE * 8
    live = read64(table + T_LIVE * 8) + (block % BLOCKS) * LINE
    for word in range(8):
        bits = ~read64(live + word * 8)
        if bits:
            free: int = block * BLOCK + word * 64 + lowest_bit(bits)
            return free
    return -1


@kernel
def _write(h: int, place: int, job: int, leaf: int, skip_bitmap: bool) -> None:
    """Write the subscription of a job, whose rows are at `H_SPANS`, at a place."""
    table = read64(h + H_TABLE * 8) + (place // SEGMENT) * TABLE * 8
    _write_rows(h, table, place, skip_bitmap)
    _write_record(h, table, place % SEGMENT, job, leaf)
    write64(read64(h + H_WHERE * 8) + read64(job + J_LABEL * 8) * 8, place)


@kernel
def insert(h: int, jobs: int, starts: int, first: int, count: int, places: int) -> int:
    """Insert jobs in order, from number `first` on, up to one whose leaf's block is full. Returns
    its number, `count` if there is none such.

    `starts`: the word of `jobs` where each begins, int64[count]; `places`, likewise, gets the place
    of each that is inserted, and ``-1 - leaf`` of the one that is not.
    """
    for number in range(first, count):
        job = jobs + read64(starts + number * 8) * 8
        spans(h, job)
        leaf = descend(h)
        place = _free_place(h, read64(read64(h + H_NODES * 8) + (leaf * NODE + N_BLOCK) * 8))
        if place < 0:
            write64(places + number * 8, -1 - leaf)
            return number
        _write(h, place, job, leaf, True)
        write64(places + number * 8, place)
    return count


@kernel
def fill(h: int, jobs: int, starts: int, order: int, leaves: int, places: int, count: int) -> None:
    """Insert many jobs into fresh blocks: the skip bitmap is wrong until `tighten` is called.

    `starts`: the word of `jobs` where each begins; `order`, `leaves`, `places`: int64[count], the
    job's number, its leaf and its place.
    """
    for number in range(count):
        which = read64(order + number * 8)
        job = jobs + read64(starts + which * 8) * 8
        spans(h, job)
        _write(h, read64(places + number * 8), job, read64(leaves + number * 8), False)


@kernel
def remove(h: int, place: int) -> None:
    """Remove the subscription at a place."""
    table = read64(h + H_TABLE * 8) + (place // SEGMENT) * TABLE * 8
    at = place % SEGMENT
    set_bit(read64(table + T_LIVE * 8) + (at >> 6) * 8, at & 63, 0)


@kernel
def move(h: int, block: int, fresh: int, who: int, count: int) -> None:
    """Move some subscriptions of a block (`who`: their places in it, int64[count]) to a fresh
    block.

    The skip bitmap is wrong for both blocks until `tighten` is called for them.
    """
    old = read64(h + H_TABLE * 8) + (block // BLOCKS) * TABLE * 8
    new = read64(h + H_TABLE * 8) + (fresh // BLOCKS) * TABLE * 8
    from_line = read64(old + T_FAILS * 8) + (block % BLOCKS) * LINE
    to_line = read64(new + T_FAILS * 8) + (fresh % BLOCKS) * LINE
    # Row by row, so that each line is read once.
    for row in range(first_row(h, read64(h + H_INDEXED * 8))):
        source, target = from_line + row * ROW, to_line + row * ROW
        for number in range(count):
            at = read64(who + number * 8)
            fails = (read64(source + (at >> 6) * 8) >> (at & 63)) & 1
            set_bit(target + (number >> 6) * 8, number & 63, fails)
    for number in range(count):
        _move_record(h, block * BLOCK + read64(who + number * 8), fresh * BLOCK + number)


@kernel
def _move_record(h: int, source: int, target: int) -> None:
    """Move everything of a subscription but its bits in rows."""
    old = read64(h + H_TABLE * 8) + (source // SEGMENT) * TABLE * 8
    new = read64(h + H_TABLE * 8) + (target // SEGMENT) * TABLE * 8
    a, b = source % SEGMENT, target % SEGMENT
    stride = read64(h + H_STRIDE * 8)
    for array, size in (
        (T_RECORDS, record_bytes(stride)),
        (T_EXACT, stride * 16),
    ):
        from_bytes = read64(old + array * 8) + a * size
        to_bytes = read64(new + array * 8) + b * size
        for byte in range(0, size, 8):
            write64(to_bytes + byte, read64(from_bytes + byte))
    for flag in (T_ALWAYS, T_LIVE):
        bit = (read64(read64(old + flag * 8) + (a >> 6) * 8) >> (a & 63)) & 1
        set_bit(read64(new + flag * 8) + (b >> 6) * 8, b & 63, bit)
    for array in (T_LABELS, T_LEAVES):
        write32(read64(new + array * 8) + b * 4, read32(read64(old + array * 8) + a * 4))
    write64(read64(h + H_WHERE * 8) + read32(read64(new + T_LABELS * 8) + b * 4) * 8, target)
    remove(h, source)


@kernel
def extents_of(h: int, places: int, count: int, low: int, high: int) -> None:
    """The first and last row in each column (ABSENT: none) of the subscriptions at some places.

    `places`: int64[count]; the results `low` and `high`: uint8[count, indexed].
    """
    stride, bounds = read64(h + H_STRIDE * 8), read64(h + H_BOUNDS * 8)
    indexed = read64(h + H_INDEXED * 8)
    for number in range(count * indexed):
        write8(low + number, ABSENT)
    for number in range(count):
        place = read64(places + number * 8)
        table = read64(h + H_TABLE * 8) + (place // SEGMENT) * TABLE * 8
        at = place % SEGMENT
        size = record_bytes(stride)
        columns = read64(read64(table + T_RECORDS * 8) + (at + 1) * size + R_COLUMNS)
        exact = read64(table + T_EXACT * 8) + at * stride * 16
        for part in range(stride):
            column = (columns >> (8 * part)) & 255
            if column < indexed:
                of_column = bounds + column * BOUNDS * 8
                there = number * indexed + column
                write8(low + there, row_of(of_column, read64(exact + part * 16)))
                write8(high + there, row_of(of_column, read64(exact + part * 16 + 8)))


# --- kernels that give a column other buckets, when its values have drifted from the sample's ---
#
# All that depends on a column's bounds is rewritten from the whole codes: the bits of each block in
# the column's rows, the fine codes of the records, and the skip bitmap. Since all blocks share the
# bounds, that is one call for all of them, between two matches.


@kernel
def _part_of(h: int, table: int, at: int, column: int) -> int:
    """The part of a record that constrains a column; -1 if none does."""
    stride = read64(h + H_STRIDE * 8)
    size = record_bytes(stride)
    columns = read64(read64(table + T_RECORDS * 8) + (at + 1) * size + R_COLUMNS)
    for part in range(stride):
        used = (columns >> (8 * part)) & 255
        if used == column:
            return part
        if used == NO_COLUMN:
            break
    return -1


@kernel
def interval_ends(h: int, places: int, count: int, column: int, out: int) -> int:
    """The ends of intervals in a column of the subscriptions at some places (int64[count]).

    Writes the first code and the one behind the last for each that uses the column to `out`
    (int64[2 * count]); returns how many were written.
    """
    stride, found = read64(h + H_STRIDE * 8), 0
    for number in range(count):
        place = read64(places + number * 8)
        table = read64(h + H_TABLE * 8) + (place // SEGMENT) * TABLE * 8
        part = _part_of(h, table, place % SEGMENT, column)
        if part >= 0:
            exact = read64(table + T_EXACT * 8) + (place % SEGMENT * stride + part) * 16
            write64(out + found * 8, read64(exact))
            write64(out + (found + 1) * 8, read64(exact + 8) + 1)
            found += 2
    return found


@kernel
def _rewrite_codes(h: int, table: int, block: int, column: int, scratch: int) -> None:
    """Rewrite a block's fine codes in a column, and prepare its bits in the column's rows.

    Writes to `scratch` a line per row: the subscriptions whose interval begins there or has ended
    before; and behind the last row a line of those that use the column.
    """
    rows, stride = column_rows(h, column), read64(h + H_STRIDE * 8)
    size = record_bytes(stride)
    bounds = read64(h + H_BOUNDS * 8) + column * BOUNDS * 8
    for word in range((rows + 2) * 8):
        write64(scratch + word * 8, 0)
    for at in range(block * BLOCK, (block + 1) * BLOCK):
        part = _part_of(h, table, at, column)
        if part < 0:
            continue
        exact = read64(table + T_EXACT * 8) + (at * stride + part) * 16
        low, high = read64(exact), read64(exact + 8)
        first, last = row_of(bounds, low), row_of(bounds, high)
        lows = read64(table + T_RECORDS * 8) + at * size + R_LOWS + part * 2
        write16(lows, fine(h, column, first, low))
        write16(lows + stride * 2, fine(h, column, last, high))
        word, bit = (at >> 6) % 8 * 8, 1 << (at & 63)
        for row in (first, last + 1, rows + 1):
            turn = scratch + row * LINE + word
            write64(turn, read64(turn) ^ bit)


@kernel
def rebucket(h: int, column: int, blocks: int, scratch: int) -> None:
    """Rewrite all that depends on a column's bounds in the first `blocks` blocks.

    `scratch`: int64[ROWS + 2, 8]. A subscription with more parts than its record has room for may
    use the column without the record saying so: then it fails in none of the rows and is an edge in
    all of them.
    """
    rows, first = column_rows(h, column), first_row(h, column)
    for block in range(blocks):
        table = read64(h + H_TABLE * 8) + (block // BLOCKS) * TABLE * 8
        _rewrite_codes(h, table, block % BLOCKS, column, scratch)
        line = read64(table + T_FAILS * 8) + first * ROW + block % BLOCKS * LINE
        for word in range(0, LINE, 8):
            users = read64(scratch + (rows + 1) * LINE + word)
            holds = 0
            for row in range(rows):
                holds ^= read64(scratch + row * LINE + word)
                write64(line + row * ROW + word, users & ~holds)
        for number in range(block * 8, block * 8 + 8):
            tighten_rows(h, number, first, rows)
