"""At defaults a node that is about to fail does not lead: it judges itself, and says so (T6)."""

from __future__ import annotations

from bench.experiments.health.faults import KINDS
from bench.experiments.health.trial import HealthPlan, HealthTrial
from canopy.traces.analysis.health.job import FEATURES, NONE, SEVERITIES, TreeNode, model
from canopy.traces.analysis.health.signals import SIGNS

PLAN = HealthPlan(free=27_000, watched=125.0, after=120.0)


def test_a_sick_node_that_judges_itself_is_not_elected() -> None:
    """The standby's disk is slow and nearly full, and the primary is lost. Nothing but what each
    node measures of itself says so."""
    nobody, itself = (HealthTrial(PLAN, 1, None, judged=judged).run() for judged in (False, True))
    assert (nobody.sick_named, nobody.sick_leads) == (False, True)
    assert nobody.failure_s is not None, "it died of its disk"
    assert (itself.sick_named, itself.sub_healthy) == (True, 1)
    assert not itself.sick_leads
    assert itself.failure_s is None
    assert (nobody.elections, itself.elections) == (2, 1)


def test_the_model_names_known_features_and_faults() -> None:
    def leaves(tree: TreeNode) -> set[str]:
        if tree.left is None or tree.right is None:
            return {tree.label}
        assert tree.feature in FEATURES
        return leaves(tree.left) | leaves(tree.right)

    labels = {*KINDS, NONE}
    assert set(SEVERITIES) == labels
    assert leaves(model().tree) <= labels
    assert {sign.signal: sign.severity for sign in SIGNS} == {
        kind: SEVERITIES[kind] for kind in KINDS
    }
