"""Assigns a block to the next subscription of each leaf of the placement tree.

A leaf is assigned one block at a time, a block some leaves that are neighbours in the tree. A full
block is split: half of its leaves, with their subscriptions, are assigned a fresh block; if it has
a single leaf, a subtree is grown under this leaf first. A block without leaves is reused once it is
empty.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from matching.engine.kernels import layout
from matching.engine.kernels.layout import BLOCK, aligned
from matching.engine.kernels.loader import Kernels
from matching.engine.memory import Memory

# Subscriptions per block after a bulk load: some room for later ones. Not measured; would be
# measured by the splits during the first tenth of insertions after it.
BULK_FILL = BLOCK - 16

Numbers = npt.NDArray[np.int64]
Rows = npt.NDArray[np.uint8]


class Blocks:
    """The blocks of one engine, by number, and the nodes of its placement tree."""

    def __init__(self, kernels: Kernels, memory: Memory, indexed: int) -> None:
        """`indexed`: how many columns have rows."""
        self._kernels = kernels
        self._memory = memory
        self._indexed = indexed
        self._live_counts: list[int] = []  # subscriptions in each
        self._leaf_counts: list[int] = []  # leaves assigned to each; -1: it is free
        self._free: list[int] = []
        self._node_count = 1
        memory.nodes[0, layout.N_COLUMN] = -1
        memory.nodes[0, layout.N_BLOCK] = self._new()
        self._leaf_counts[0] = 1

    def __len__(self) -> int:
        return len(self._live_counts)

    @property
    def tree(self) -> Numbers:
        """The nodes of the placement tree: int64[nodes, NODE]."""
        return self._memory.nodes[: self._node_count]

    def _new(self) -> int:
        """The number of an empty block that no leaf is assigned to."""
        if self._free:
            block = self._free.pop()
            self._leaf_counts[block] = 0
            self._tighten(block)
            return block
        block = len(self._live_counts)
        self._live_counts.append(0)
        self._leaf_counts.append(0)
        self._memory.reserve_block(block)
        return block

    def _tighten(self, block: int) -> None:
        """Set the bits of the skip bitmap for a block as sharply as its contents allow."""
        self._kernels.tighten(self._memory.header, block * 8, block * 8 + 8)

    def count_inserted(self, places: Iterable[int]) -> None:
        """Subscriptions have been inserted at these places."""
        for place in places:
            self._live_counts[place // BLOCK] += 1

    def count_removal(self, block: int) -> None:
        """A subscription has been removed from a block, which is free if it was the last."""
        self._live_counts[block] -= 1
        if self._live_counts[block] == 0 and self._leaf_counts[block] == 0:
            self._free.append(block)
            self._leaf_counts[block] = -1

    def make_room(self, leaf: int) -> None:
        """Assign a block with room to a leaf whose block is full, by splitting that block."""
        block = int(self._memory.nodes[leaf, layout.N_BLOCK])
        leaves_of = self._memory.leaves(block)
        who, counts = np.unique(leaves_of, return_counts=True)
        if len(who) == 1:
            self._split(leaf, block, leaves_of)
            who, counts = np.unique(leaves_of, return_counts=True)
        fresh = self._new()
        if len(who) == 1:
            # All have the same rows, so no tree separates them: the leaf goes on in another block.
            self._assign(leaf, block, fresh)
            return
        moving = who[np.cumsum(counts) <= max(BLOCK // 2, counts[0])]
        for node in moving.tolist():
            if self._memory.nodes[node, layout.N_BLOCK] == block:
                self._assign(node, block, fresh)
        moved = np.flatnonzero(np.isin(leaves_of, moving))
        self._kernels.move(self._memory.header, block, fresh, moved.ctypes.data, len(moved))
        self._live_counts[fresh] = len(moved)
        self._live_counts[block] -= len(moved)
        self._tighten(fresh)
        self._tighten(block)

    def _assign(self, leaf: int, block: int, fresh: int) -> None:
        """Assign a leaf of one block to another one."""
        self._memory.nodes[leaf, layout.N_BLOCK] = fresh
        self._leaf_counts[block] -= 1
        self._leaf_counts[fresh] += 1

    def _split(self, leaf: int, block: int, leaves_of: npt.NDArray[np.int32]) -> None:
        """Grow a subtree under a leaf that is the only one of a block."""
        places = block * BLOCK + np.arange(BLOCK)
        low = np.empty((BLOCK, self._indexed), np.uint8)
        high = np.empty((BLOCK, self._indexed), np.uint8)
        self._kernels.extents_of(
            self._memory.header, places.ctypes.data, BLOCK, low.ctypes.data, high.ctypes.data
        )
        order, ends = self._grow(low, high, leaf)
        start = 0
        for number, (node, end) in enumerate(ends):
            leaves_of[order[start:end]] = node
            self._memory.nodes[node, layout.N_BLOCK] = block
            self._leaf_counts[block] += number > 0
            start = end

    def _grow(self, low: Rows, high: Rows, root: int) -> tuple[Numbers, list[list[int]]]:
        """Grow the tree under a leaf for the subscriptions with these first and last rows.

        Returns an order of them, and a list of (leaf, end of its part in that order).
        """
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
        """Grow the tree for a bulk load of subscriptions with these first and last rows in each
        column (uint8[count, indexed], see `placement_tree.extents`).

        Returns an order of them, and in this order each one's leaf and place.
        """
        order, ends = self._grow(low, high, 0)
        places = np.empty(len(low), np.int64)
        leaves = np.empty(len(low), np.int64)
        block, used, start = 0, 0, 0
        self._leaf_counts[0] = 0
        for node, end in ends:
            leaves[start:end] = node
            while end - start > 0:
                if used == BULK_FILL or (
                    end - start > BULK_FILL - used and end - start <= BULK_FILL
                ):
                    block, used = self._new(), 0
                some = min(end - start, BULK_FILL - used)
                places[start : start + some] = block * BLOCK + used + np.arange(some)
                start, used = start + some, used + some
            self._memory.nodes[node, layout.N_BLOCK] = block
            self._leaf_counts[block] += 1
        for number, count in enumerate(np.bincount(places // BLOCK).tolist()):
            self._live_counts[number] = count
        return order, leaves, places
