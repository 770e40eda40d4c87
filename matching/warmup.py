"""Preparing the block engine in a process: its compiled kernels are loaded, or compiled first.

Loading takes a tenth of a second, compiling several; see `engine.kernels`. A program that must not
block calls `warm` in a thread, at its start or once `warm_wanted` returns True. If it never does,
an index calls it when waiting costs less than going on with the plain engine.
"""

from __future__ import annotations

# Conjunctions of an index from which it calls `warm` itself if the program has not: the plain
# engine takes 12 ms per match at 10,000, and more than twice that here. Not measured; would be
# measured by the number of matches after which compiling has paid.
BLOCKING_SIZE = 20_000


class _State:
    """Whether the block engine has been prepared; the same for all indexes of a process."""

    warm = False
    begun = False
    wanted = False


def prepare_parser() -> None:
    """Load and build the parser of selectors, which takes some 0.1 s, before the first is compiled.
    It may be called in a thread."""
    from matching.selector.parser import prepare

    prepare()


def warm() -> None:
    """Prepare the block engine; blocks for seconds if `warm_is_slow`, else for a tenth of one.

    May be called in a thread while indexes are in use in another one.
    """
    _State.begun = True
    if not _State.warm:
        import numpy as np

        from matching.engine.block_engine import BlockEngine
        from matching.engine.group_matcher import GroupMatcher

        GroupMatcher(BlockEngine(()))  # imports everything and loads the kernels
        np.unique(np.zeros(1))  # … but this, which has NumPy import more of itself: 30 ms
        _State.warm = True


def is_warm() -> bool:
    """Whether `warm` has finished, and the block engine can be used at once."""
    return _State.warm


def warm_wanted() -> bool:
    """Whether some index would use the block engine, and `warm` has not been called yet.

    This package starts no threads: a program that has threads polls this and calls `warm` in one.
    """
    return _State.wanted and not _State.begun


def warm_is_slow() -> bool:
    """Whether `warm` will have to compile: there is no compiled code for this process on disk."""
    if _State.warm:
        return False
    from matching.engine.kernels.loader import are_cached

    return not are_cached()


def usable_for(conjunctions: int) -> bool:
    """Return whether an index of `conjunctions` conjunctions can use the block engine now.

    Has the effect that `warm_wanted` returns True, or calls `warm` for a very large index.
    """
    _State.wanted = True
    if conjunctions >= BLOCKING_SIZE and not _State.begun:
        warm()
    return _State.warm
