"""When a node asks for its next certificate.

Certificates of nodes that were started together end together, and an issuer that was away finds all
of them waiting. So nodes ask at times of their own: the first time within an hour from when it is
time, after each failure twice as long after it as before, up to five minutes, and never in step
with others. What comes at once is spread, and as long as the issuer is away it costs little.
"""

from __future__ import annotations

from collections.abc import Callable
from random import random
from typing import Final

from canopy.wire.keys.certificates import DAY, RENEW_AFTER

RENEW_SPREAD: Final = 20.0
"""Seconds over which nodes renew that hear of another root, or start, at once. Guess: an issuer
takes some 3 ms for each."""

RENEW_APART: Final = 3_600.0
"""Seconds over which those renew whose certificates began at the same time: they hold for five days
more."""

RENEW_AGAIN: Final = 60.0
RENEW_AGAIN_MOST: Final = 300.0
"""Seconds until a renewal that failed is tried again, after the first failure and after many; half
of them to half as much again. So 3,000 nodes ask ten times a second. Guess."""


RENEW_LATER: Final = 3_600.0
"""The same where the certificate holds for long, and there may be another root or not."""


class RenewalTimes:
    """The times of one process. Times are seconds since 1970."""

    def __init__(self, chance: Callable[[], float] = random) -> None:
        """`chance`: draws from 0 to 1."""
        self._chance = chance
        self._at = 0.0
        self._failed = 0
        self._apart = chance() * RENEW_APART

    def is_time(self, now: float, begins: float) -> bool:
        """Whether a certificate that began then is to be renewed."""
        return now >= begins + RENEW_AFTER * DAY + self._apart

    def may_ask(self, now: float) -> bool:
        """Whether it is this node's turn, if it wants another certificate."""
        return now >= self._at

    def soon(self, now: float) -> None:
        """Others have the same reason to ask at this very moment."""
        self._at = now + self._chance() * RENEW_SPREAD

    def asks(self, now: float, has_to: bool = True) -> None:
        """The node asks: if it hears nothing of `granted`, when again? Not `has_to`: its own
        certificate holds for long, and there may be another root or not."""
        wait = min(RENEW_AGAIN * 2.0 ** min(self._failed, 16), RENEW_AGAIN_MOST)
        wait = wait if has_to else RENEW_LATER
        self._failed += 1
        self._at = now + wait * (0.5 + self._chance())

    def granted(self) -> None:
        """There is a new certificate."""
        self._failed = 0
