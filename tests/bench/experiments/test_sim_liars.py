"""Voters that lie, in whole overlays: small runs of `python -m bench.experiments voter`."""

from __future__ import annotations

from bench.experiments.frame import no_progress
from bench.experiments.liars import NONE, LiarsPlan, trials
from bench.experiments.lying_voter import MORE, VoterPlan, VoterTrial


def test_one_lying_voter_of_five_leads_nobody_and_loses_nothing() -> None:
    """As primaries die, four rounds."""
    outcome = VoterTrial(VoterPlan(rounds=4), MORE).run()
    assert outcome.acknowledged
    assert outcome.lost == 0
    assert outcome.led_by_liar == 0.0
    assert outcome.new_primary <= 3.0


def test_without_keys_it_leads_everybody() -> None:
    """So that the test above can fail."""
    outcome = VoterTrial(VoterPlan(rounds=2), NONE).run()
    assert outcome.led_by_liar == 1.0


def test_several_seeds_make_one_row() -> None:
    plan = LiarsPlan(
        attack="owners",
        malicious=(0.25,),
        nodes=16,
        newcomers=1,
        trees=2,
        lies=2.0,
        events=4,
        defence="keys",
        times=2,
    )
    (row,) = trials(plan, no_progress)
    assert isinstance(row, dict)
    assert (row["defence"], row["seeds"], row["fair"]) == ("keys", 2, 0.25)
    assert row["in_views_least"] <= row["in_views"] <= row["in_views_most"]
