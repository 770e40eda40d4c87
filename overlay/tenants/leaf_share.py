"""What one leaf may have registered (docs/design/security.md#quotas)."""

from __future__ import annotations

from typing import Final

LEAF_REGISTRATIONS: Final = 20_000
"""Registrations of one leaf, where no policy says how many: as many as one host has room for
(`tree.host_entries`)."""

LEAF_TREES: Final = 1_024
"""Trees in which one leaf may have registrations: what one selector of so many alternatives, which
is the longest, may need."""

PLANTED_RATE: Final = 16.0
"""Trees per second that one leaf may have an owner plant: half of what its
rate of registrations costs, since a tree costs as much as 32 of them (measured). Guess."""

PLANTED_AT_ONCE: Final = 256.0
"""… and so many at once: 0.8 s of the owner's time. A program that starts may plant the trees of
all attributes that it asks for. Guess."""

FORMER: Final = 2
"""An owner takes so many times what a leaf may have: of one that has started anew it also has what
the former process registered, until its lease has ended."""


def over_share(registrations: int, trees: int, most: int) -> str:
    """What of it is more than a leaf may have; "": nothing. `most`: registrations that a policy
    gives it, 0 for none."""
    most = most or LEAF_REGISTRATIONS
    if registrations > most:
        return f"{most:,} registrations (one for each alternative of a selector)"
    return f"registrations in {LEAF_TREES:,} attribute trees" if trees > LEAF_TREES else ""
