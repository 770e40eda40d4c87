"""How the trial of churn sorts what is missing."""

from __future__ import annotations

from math import inf

import pytest

from bench.endurance.churn import Account, Seen, Told
from bench.endurance.load import SELECTORS, attributes
from bench.endurance.oracle import HEALED, MARGIN, Ledger
from canopy.client.notices import Gap

OFFSET = 1_000.0


class Rig:
    """One program at node a, and an event that it wants, published at 20 and accepted at 21."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.account = Account(self.ledger, OFFSET)
        self.seen = Seen("a", 0, since=10.0)
        self.account.seen.append(self.seen)
        while True:
            (self.number,) = self.ledger.ask(1, 20.0)
            if SELECTORS[0].means(attributes(self.number)):
                break
        self.ledger.answer(range(self.number, self.number + 1), 21.0, [{"a0": "host"}])

    def found(self) -> str:
        """What the missing event is."""
        verdict = self.account.verdict(21.0 + MARGIN + 1.0)
        assert (verdict["owed"], verdict["missing"]) == (1, 1)
        outcomes = ("told", "told_vaguely", "in_flight", "in_flight_elsewhere", "untold")
        (what,) = [name for name in outcomes if verdict[name]]
        return what


@pytest.mark.parametrize(
    ("since", "until", "what"),
    [(19.0, 30.0, "told"), (21.0, 30.0, "untold"), (10.0, 19.0, "untold")],
)
def test_a_gap_tells_of_what_was_published_in_it(since: float, until: float, what: str) -> None:
    rig = Rig()
    rig.seen.gaps.append(Told(OFFSET + since, OFFSET + until, "reconnected"))
    assert rig.found() == what


def test_a_gap_without_a_begin_counts_apart() -> None:
    rig = Rig()
    rig.account.told(rig.seen, Gap("lapsed", "a reason"), OFFSET + 25.0)
    assert rig.found() == "told_vaguely"


@pytest.mark.parametrize(
    ("at", "name", "id_", "what"),
    [
        (22.0, "b", "host", "in_flight"),
        (22.0, "b", "other", "in_flight_elsewhere"),
        (22.0, "a", "host", "untold"),
        (19.0, "b", "host", "untold"),
        (40.0, "b", "host", "untold"),
    ],
)
def test_what_a_killed_node_had_was_in_flight(at: float, name: str, id_: str, what: str) -> None:
    rig = Rig()
    rig.ledger.kills.append((at, id_, name))
    assert rig.found() == what


def test_hosts_that_die_while_the_program_s_node_stands_still_excuse_nothing() -> None:
    rig = Rig()
    rig.ledger.kills.append((22.0, "host", "b"))
    rig.ledger.pauses.append(("a", 21.5, inf))
    assert rig.found() == "untold"


def test_what_was_accepted_before_the_node_was_started_is_early() -> None:
    rig = Rig()
    rig.ledger.started["a"] = 22.0
    rig.account.came(rig.seen, rig.number)
    assert rig.seen.early == 0, "it came before the end of the former process was noticed"
    rig.account.told(rig.seen, Gap("reconnected", "", since=OFFSET, until=OFFSET + 23.0), 0.0)
    rig.account.came(rig.seen, rig.number)
    assert rig.seen.early == 1
    rig.ledger.answered[rig.number] = 22.5
    rig.account.came(rig.seen, rig.number)
    assert (rig.seen.early, rig.seen.twice) == (1, 0), "a race with the acknowledgement"


@pytest.mark.parametrize(
    ("silences", "is_counted"),
    [
        ([("b", 12.0, 19.0)], True),
        ([("b", 12.0, 19.0), ("c", 15.0, 18.0)], True),
        ([("b", 12.0, 19.0), ("c", 15.0, 25.0)], False),  # still silent
        ([("b", 1.0, 20.0 - HEALED - 1.0)], False),  # long ago
        ([], False),
    ],
)
def test_delays_after_a_heal_are_those_of_events_published_while_nobody_is_silent(
    silences: list[tuple[str, float, float]], is_counted: bool
) -> None:
    rig = Rig()
    rig.ledger.silences = silences
    rig.seen.came[rig.number] = 22.5
    verdict = rig.account.verdict(21.0 + MARGIN + 1.0)
    assert verdict["after_heals"] == is_counted
    assert verdict["after_heal_s"]["p99"] == (2.5 if is_counted else None)
