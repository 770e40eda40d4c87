"""The compiled code of the block engine: functions on raw memory, written in Python for numba.

What it promises: each kernel is an ordinary function of 64-bit integers (counts, and addresses of
arrays whose layout `layout` defines) that allocates nothing, raises nothing and never calls back
into the interpreter. So the machine code depends on neither numba nor LLVM at run time; it is
compiled once per machine and version, stored on disk, and loaded like any shared library. A process
that only matches imports neither numba (60 MB with LLVM, and a second) nor a kernel's source.

Read in this order: `layout` (sizes, and what lies where), `cache_lines` (512 bits as one value, and
access to memory by address), `rows` (values as rows of a column), `search` (the kernel of a match)
and `records` (its second half: comparing candidates exactly, and the bitmap of what can be
skipped), `groups` (a batch of events in one call, and its pairs by group), `updates` (insert,
remove, move, and other buckets for a column), `placement_tree` (which subscriptions share a block).
Then how the code comes into a process: `code_cache` (which kernels Python calls, and machine code
on disk), `compiler` (from source to machine code), `loader` (the functions that Python calls).

Called by the bookkeeping in `matching.engine` only, which imports `layout` and `loader`; the
modules with kernels are imported only by `compiler` and each other.

The names of the constants are grouped by prefix: `H_` fields of the header (the one address that
every kernel gets, as `h`), `T_` of the table with a segment's addresses, `N_` of a node of the
placement tree, `J_` of an insert job, `R_` of a record, `E_` of an event, `G_` of the header for
grouping. All are indices of 64-bit words unless said otherwise, hence the many ``* 8``. See
docs/design/matching.md for the whole design.
"""
