"""Voters that lie, in whole overlays: small runs of `python -m bench.experiments liars`."""

from __future__ import annotations

from bench.experiments.liars.defences import MORE, NONE
from bench.experiments.liars.trial import LiarsPlan
from bench.experiments.liars.voter_trial import VoterTrial
from canopy.wire.transport.codec import WireCodec


def test_one_lying_voter_of_five_leads_nobody_and_loses_nothing() -> None:
    """As primaries die, four rounds."""
    outcome = VoterTrial(LiarsPlan(attack="voter"), MORE, WireCodec(), rounds=4).run()
    assert outcome.acknowledged
    assert outcome.lost == 0
    assert outcome.led_by_liar == 0.0
    assert outcome.new_primary is not None
    assert outcome.new_primary <= 3.0


def test_without_keys_it_leads_everybody() -> None:
    """So that the test above can fail."""
    outcome = VoterTrial(LiarsPlan(attack="voter"), NONE, WireCodec(), rounds=2).run()
    assert outcome.led_by_liar == 1.0
