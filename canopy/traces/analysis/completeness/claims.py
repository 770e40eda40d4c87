"""What a run's records say of themselves, held against its other records.

The header of a file says which share of the events its node keeps, and each record has a number and
a time of the hybrid logical clock. Where others contradict that it is a *doubt*: nothing is called
right by what is in doubt (`outcome.absences`). The claims on events and subscriptions, which need
the records themselves, are held in ``verdict/``. The table of all is in docs/design/traces.md.
"""

from __future__ import annotations

from typing import Final

EVENTS_COUNTED: Final = 1_000
"""Different events of a run that are counted at most: they show a share that is 2 % too large."""

HASHES: Final = 2**32
"""How many CRC-32 there are; an event is kept where that of its identity is below the share."""

UNLIKELY: Final = 1e-6
"""The probability below which it counts as no chance that all events of a run have hashes in a
smaller share than the one that its header names."""

NO_HEADER: Final = (
    "no header of {node} can be read: which share of the events it keeps is not known"
)
MORE: Final = (
    "{node} says that it keeps {said:.6g} of the events, and its records are of others, too"
)
FEWER: Final = "{node} says that it keeps {said:.6g} of the events, and its records are of fewer"
DISORDER: Final = "the times of {node} contradict the numbers of its records {count:,} times"


def share_of(said: float | None, highest: int, events: int) -> tuple[float | None, str]:
    """The share of the events that a run keeps, and the text of a doubt or "".

    `said` is what its headers say, None without one; `highest` the greatest CRC-32 among its
    `events`, -1 without any. None: it is not known.
    """
    if said is None:
        return None, NO_HEADER
    limit = said * HASHES
    if highest >= limit:
        return (highest + 1) / HASHES, MORE
    if events and ((highest + 1) / limit) ** events < UNLIKELY:
        return (highest + 1) / HASHES, FEWER
    return said, ""
