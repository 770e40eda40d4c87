"""Who shares a block: the tree's leaves, and the block that takes the next subscription of each.

A leaf has one block at a time, a block has some leaves that are side by side in the tree. A block
that is full hands half of its leaves, and who is in them, to a fresh one; if it has one leaf alone,
this becomes a subtree first. A block that no leaf has any more is used again when it is empty.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from matching.engine.kernels import layout
from matching.engine.kernels.layout import BLOCK, aligned
from matching.engine.kernels.loading import Kernels
from matching.engine.memory import Memory

# How much of a block is filled when many are put in at once.
FILLED = BLOCK - 16

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint8]


class Blocks:
    """The blocks of one engine, by number."""

    def __init__(self, kernels: Kernels, memory: Memory, indexed: int) -> None:
        """`indexed`: how many columns have rows."""
        self._kernels = kernels
        self._memory = memory
        self._indexed = indexed
        self._filled: list[int] = []  # how many live in each
        self._owners: list[int] = []  # how many leaves put their next one there; -1: it is free
        self._free: list[int] = []
        self._node_count = 1
        memory.nodes[0, layout.N_COLUMN] = -1
        memory.nodes[0, layout.N_BLOCK] = self._new()
        self._owners[0] = 1

    def __len__(self) -> int:
        return len(self._filled)

    @property
    def tree(self) -> Numbers:
        """The nodes in use; int64[…, NODE]."""
        return self._memory.nodes[: self._node_count]

    def _new(self) -> int:
        """A block without owner in which nobody is."""
        if self._free:
            block = self._free.pop()
            self._owners[block] = 0
            self._tighten(block)
            return block
        block = len(self._filled)
        self._filled.append(0)
        self._owners.append(0)
        self._memory.reserve_block(block)
        return block

    def _tighten(self, block: int) -> None:
        self._kernels.tighten(self._memory.header, block * 8, block * 8 + 8)

    def entered(self, block: int) -> None:
        """Somebody has been put into a block."""
        self._filled[block] += 1

    def left(self, block: int) -> None:
        """Somebody has been taken out of a block."""
        self._filled[block] -= 1
        if self._filled[block] == 0 and self._owners[block] == 0:
            self._free.append(block)
            self._owners[block] = -1

    def relieve(self, leaf: int) -> None:
        """Make room for the next subscription of a leaf whose block is full."""
        block = int(self._memory.nodes[leaf, layout.N_BLOCK])
        tenants = self._memory.leaves(block)
        who, counts = np.unique(tenants, return_counts=True)
        if len(who) == 1:
            self._split(leaf, block, tenants)
            who, counts = np.unique(tenants, return_counts=True)
        fresh = self._new()
        if len(who) == 1:
            # They are all alike: the block stays as it is, and the leaf goes on in another.
            self._hand_over(leaf, block, fresh)
            return
        moving = who[np.cumsum(counts) <= max(BLOCK // 2, counts[0])]
        for node in moving.tolist():
            if self._memory.nodes[node, layout.N_BLOCK] == block:
                self._hand_over(node, block, fresh)
        who_moves = np.flatnonzero(np.isin(tenants, moving))
        self._kernels.move(self._memory.header, block, fresh, who_moves.ctypes.data, len(who_moves))
        self._filled[fresh] = len(who_moves)
        self._filled[block] -= len(who_moves)
        self._tighten(fresh)
        self._tighten(block)

    def _hand_over(self, leaf: int, block: int, fresh: int) -> None:
        self._memory.nodes[leaf, layout.N_BLOCK] = fresh
        self._owners[block] -= 1
        self._owners[fresh] += 1

    def _split(self, leaf: int, block: int, tenants: npt.NDArray[np.int32]) -> None:
        """Grow a subtree under a leaf that has a whole block for itself."""
        places = block * BLOCK + np.arange(BLOCK)
        low = np.empty((BLOCK, self._indexed), np.uint8)
        high = np.empty((BLOCK, self._indexed), np.uint8)
        self._kernels.extents_of(
            self._memory.header, places.ctypes.data, BLOCK, low.ctypes.data, high.ctypes.data
        )
        order, ends = self._grow(low, high, leaf)
        start = 0
        for number, (node, end) in enumerate(ends):
            tenants[order[start:end]] = node
            self._memory.nodes[node, layout.N_BLOCK] = block
            self._owners[block] += number > 0
            start = end

    def _grow(self, low: Rows, high: Rows, root: int) -> tuple[Numbers, list[list[int]]]:
        """Grow the tree under a leaf; the order of the rows given, and each leaf's end in it."""
        memory, used = self._memory, self._node_count
        memory.reserve_nodes(used + 3 * (len(low) // 4 + 4))
        order = np.arange(len(low), dtype=np.int64)
        ends = np.empty((len(low) + 4, 2), np.int64)
        room = len(memory.nodes)
        scratch = aligned(layout.tree_scratch(len(low), room - used), np.int64)
        arrays = [array.ctypes.data for array in (low, high, order, ends, scratch)]
        self._node_count = self._kernels.grow(memory.header, len(low), root, used, room, *arrays)
        return order, ends[: int(np.argmax(ends[:, 0] == -1))].tolist()

    def lay_out(self, low: Rows, high: Rows) -> tuple[Numbers, Numbers, Numbers]:
        """Grow the tree for those who are put in first, of whom these are the first and last rows
        (`tree.extents`): their order, and in this order each one's leaf and place."""
        order, ends = self._grow(low, high, 0)
        places = np.empty(len(low), np.int64)
        leaves = np.empty(len(low), np.int64)
        block, used, start = 0, 0, 0
        self._owners[0] = 0
        for node, end in ends:
            leaves[start:end] = node
            while end - start > 0:
                if used == FILLED or (end - start > FILLED - used and end - start <= FILLED):
                    block, used = self._new(), 0
                some = min(end - start, FILLED - used)
                places[start : start + some] = block * BLOCK + used + np.arange(some)
                start, used = start + some, used + some
            self._memory.nodes[node, layout.N_BLOCK] = block
            self._owners[block] += 1
        for number, count in enumerate(np.bincount(places // BLOCK).tolist()):
            self._filled[number] = count
        return order, leaves, places
