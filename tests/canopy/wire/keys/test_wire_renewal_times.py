"""An issuer that was away is not kept from coming back by those who wait for it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from canopy.wire.keys.certificates import DAY, NODE_DAYS, RENEW_AFTER
from canopy.wire.keys.rotation import (
    RENEW_AGAIN,
    RENEW_AGAIN_MOST,
    RENEW_APART,
    RENEW_SPREAD,
    RenewalTimes,
)

NODES = 400
SERVED = 8
"""Requests that an issuer takes in a second; what is beyond is refused, as a flood is."""


def asked(begins: float, is_wanted: bool, back_at: float, until: float) -> Counter[int]:
    """How many ask in each second, of nodes whose certificates all began at 0. The issuer is there
    from `back_at` on. All have another certificate in the end."""
    rng = Random(1)
    waiting = [RenewalTimes(rng.random) for _ in range(NODES)]
    if is_wanted:
        for one in waiting:
            one.soon(begins)
    counts: Counter[int] = Counter()
    now = begins
    while waiting and now < until:
        due = [one for one in waiting if one.may_ask(now) and (is_wanted or one.is_time(now, 0.0))]
        counts[int(now - begins)] = len(due)
        for one in due:
            one.asks(now)
        if now >= back_at:
            for one in due[:SERVED]:
                one.granted()
                waiting.remove(one)
        now += 1.0
    assert not waiting
    return counts


def test_certificates_that_began_together_are_renewed_one_after_the_other() -> None:
    begins = RENEW_AFTER * DAY
    counts = asked(begins, False, begins, begins + RENEW_APART + 60)
    assert sum(counts.values()) == NODES
    assert max(counts.values()) <= 5


@pytest.mark.parametrize("away", [0.0, 1_800.0])
def test_all_that_ended_at_one_moment_come_back_without_a_storm(away: float) -> None:
    """All nodes are started when their certificates have ended, and the issuer is away."""
    begins = (NODE_DAYS + 1) * DAY
    back = begins + away
    counts = asked(begins, True, back, back + 4 * RENEW_AGAIN_MOST)
    assert counts[0] <= 2 * NODES / RENEW_SPREAD
    later = [count for second, count in counts.items() if second > away + 60 or away > second > 600]
    assert max(later, default=0) <= 1.5 * SERVED  # in step they would be 20
    assert sum(counts.values()) <= NODES * (6 + away / RENEW_AGAIN_MOST * 1.2)


def test_who_fails_asks_later_and_later_and_one_that_is_granted_begins_again() -> None:
    times = RenewalTimes(lambda: 0.5)
    waits = []
    now = 1e6
    for _ in range(5):
        times.asks(now)
        at = now
        while not times.may_ask(at):
            at += 1.0
        waits.append(at - now)
        now = at
    assert waits == [RENEW_AGAIN, 2 * RENEW_AGAIN, 4 * RENEW_AGAIN, RENEW_AGAIN_MOST, 300.0]
    times.granted()
    times.asks(now)
    assert times.may_ask(now + RENEW_AGAIN)
