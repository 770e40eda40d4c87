"""Revoked certificates: every link to their nodes is closed, and none is opened again."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from bench.experiments.__main__ import experiments, main
from bench.experiments.frame import no_progress
from bench.experiments.revocation import REVOKE, RevocationPlan, RevocationReport, trials
from canopy.sim.world.driver import SimDriver
from canopy.sim.world.signer import SimulatedRevocations, revoked
from canopy.sim.world.world import LOOK, RECHECK
from canopy.wire import constants
from canopy.wire.process import security
from overlay.settings import ClusterSettings, Settings

SMALL = RevocationPlan(
    nodes=12, voters=10, revoked=2, subscriptions=12, settle=3.0, watch=6.0,
    settings=Settings(cluster=ClusterSettings(size=3, split_trees=2)),
)  # fmt: skip


def measure() -> RevocationReport:
    (report,) = trials(SMALL, no_progress)
    return report


def test_every_link_is_closed_within_five_seconds_and_stays_closed() -> None:
    report = measure()
    assert report.connections > report.links > 10
    assert report.listed_s is not None
    assert report.closed_s is not None
    assert report.half_closed_s is not None
    assert report.half_closed_s <= report.closed_s <= 5.0
    assert (report.reopened, report.primaries, report.led) == (0, 1, True)
    assert report.refused > 0


def test_who_does_not_look_at_live_connections_closes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    monkeypatch.setattr(SimDriver, "recheck", lambda driver: None)
    report = measure()
    assert report.closed_s is None


def test_a_simulated_process_looks_as_often_as_a_real_one() -> None:
    assert (LOOK, RECHECK) == (security.LOOK, constants.RECHECK)


def test_only_a_newer_list_is_taken_that_is_genuine() -> None:
    store, told = SimulatedRevocations(), []
    store.taken = lambda: told.append(store.version)
    assert store.current() == (0, b"")
    assert store.accept(revoked(2, ["a", "b"])) == 2
    assert store.accept(revoked(1, [])) == 2
    assert store.accept(b"forged" + revoked(3, [])) == 2
    assert store.ids == {"a", "b"}
    assert store.current() == (2, revoked(2, ["a", "b"]))
    assert told == [2]


def test_the_command_says_what_became_of_the_links() -> None:
    sets = ("nodes=5", "revoked=1", "subscriptions=1", "watch=4.0", "settle=1.0")
    arguments = ["revoke", *(f"--set={one}" for one in sets), "--json", "--quiet"]
    found = CliRunner().invoke(experiments, arguments)
    assert found.exit_code == 0, found.output
    (row,) = json.loads(found.output)
    assert row["closed_s"] <= 4.0
    assert f"| all closed, s | {row['closed_s']:.2f} |" in REVOKE.shown([row])
    assert REVOKE.is_good(row)
    assert not REVOKE.is_good({**row, "closed_s": None})
    assert not REVOKE.is_good({**row, "reopened": 1})


def test_somebody_has_to_be_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["revoke", "--set", "nodes=4", "--set", "revoked=4", "--quiet"]) == 2
    assert "at least one node" in capsys.readouterr().err
