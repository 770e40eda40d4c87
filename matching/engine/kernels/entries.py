"""Which kernels Python calls, and the module of this package that each is written in.

Apart from `compiling`, which needs numba, and from `loading`, which must not, so that both can know
it.
"""

from __future__ import annotations

from typing import Final

ENTRIES: Final = {
    "search": "search",
    "search_groups": "grouping",
    "divide": "dividing",
    "insert": "updates",
    "remove": "updates",
    "tighten": "skipping",
    "move": "updates",
    "extents_of": "updates",
    "fill": "updates",
    "interval_ends": "rebucketing",
    "rebucket": "rebucketing",
    "extents": "placement_tree",
    "grow": "placement_tree",
}
"""Module by name of the kernel. The functions of `loading.Kernels` have these names."""
