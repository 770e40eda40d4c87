"""Making the fast engine ready, which takes a process a tenth of a second or several.

Its compiled kernels are loaded from disk where they are kept, else compiled first. A program that
must not wait calls `warm` in a thread, at its start or when `warm_wanted`; for one that never does,
it is called when there is more to lose than to wait for. numba is only imported to compile.
"""

from __future__ import annotations

# Conjunctions at which an index that nobody has warmed waits for it: from here on the plain engine
# takes tens of milliseconds per match. Wild guess.
WAIT_FOR_IT = 20_000


class _State:
    """Whether the fast engine can be used at once; the same for all indexes of a process."""

    warm = False
    begun = False
    wanted = False


def warm() -> None:
    """Make the fast engine ready: seconds if `warm_is_slow`, else a tenth of one.

    Blocks until it is. It may be called in a thread while indexes are in use in another one.
    """
    _State.begun = True
    if not _State.warm:
        from matching.engine.engine import Engine
        from matching.engine.group_matcher import GroupMatcher

        GroupMatcher(Engine(()))  # all is imported, and the kernels are there
        _State.warm = True


def is_warm() -> bool:
    """Whether that has been done."""
    return _State.warm


def warm_wanted() -> bool:
    """Whether some index has become large, and nobody has called `warm` yet.

    This package starts no threads: who has some looks here now and then, and calls it in one.
    """
    return _State.wanted and not _State.begun


def warm_is_slow() -> bool:
    """Whether `warm` will have to compile: nobody has on this machine, or it is not kept there."""
    if _State.warm:
        return False
    from matching.engine.kernels.loading import are_cached

    return not are_cached()


def usable_for(conjunctions: int) -> bool:
    """Whether an index of so many can use the fast engine now; if not, it is wanted."""
    _State.wanted = True
    if conjunctions >= WAIT_FOR_IT and not _State.begun:
        warm()
    return _State.warm
