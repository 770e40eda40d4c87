"""At defaults a node that is about to fail does not lead: it judges itself, and says so (T6)."""

from __future__ import annotations

from bench.experiments.health.trial import HealthPlan, HealthTrial
from canopy.wire.transport.codec import WireCodec

PLAN = HealthPlan(free=27_000, watched=125.0, after=120.0)


def test_a_sick_node_that_judges_itself_is_not_elected() -> None:
    """The standby's disk is slow and nearly full, and the primary is lost. Nothing but what each
    node measures of itself says so."""
    nobody, itself = (
        HealthTrial(PLAN, 1, WireCodec(), None, judged=judged).run() for judged in (False, True)
    )
    assert (nobody.sick_named, nobody.sick_leads) == (False, True)
    assert nobody.failure_s is not None, "it died of its disk"
    assert (itself.sick_named, itself.sub_healthy) == (True, 1)
    assert not itself.sick_leads
    assert itself.failure_s is None
    assert (nobody.elections, itself.elections) == (2, 1)
