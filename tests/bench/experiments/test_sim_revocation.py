"""Revoked certificates: every link to their nodes is closed, and none is opened again."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from bench.experiments.commands.revoke import print_report, revoke
from bench.experiments.revocation import RevocationPlan, RevocationReport, measure
from canopy.sim.world.driver import SimDriver
from canopy.sim.world.revocation_store import SimulatedRevocations, revoked
from canopy.sim.world.world import LOOK, RECHECK
from canopy.wire import constants
from canopy.wire.process import security
from canopy.wire.transport.codec import WireCodec
from overlay.settings import ClusterSettings, Settings

SMALL = RevocationPlan(
    nodes=12, voters=10, revoked=2, subscriptions=12, settle=3.0, watch=6.0,
    settings=Settings(cluster=ClusterSettings(size=3, split_trees=2)),
)  # fmt: skip


def test_every_link_is_closed_within_five_seconds_and_stays_closed() -> None:
    report = measure(SMALL, WireCodec())
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
    report = measure(SMALL, WireCodec())
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


def test_the_command_says_what_became_of_the_links(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--nodes", "5", "--revoked", "1", "--set", "subscriptions=1", "--set", "watch=4.0")
    found = CliRunner().invoke(revoke, [*small, "--set", "settle=1.0", "--json", "--quiet"])
    assert found.exit_code == 0, found.output
    facts = json.loads(found.output)
    assert facts["closed_s"] <= 4.0
    report = msgspec.convert(facts, RevocationReport)
    print_report(report)
    print_report(msgspec.structs.replace(report, closed_s=None, led=False))
    shown = capsys.readouterr().out
    assert f"all after {report.closed_s:.2f} s" in shown
    assert "all after never" in shown
    assert "every key is not led" in shown


def test_somebody_has_to_be_left() -> None:
    found = CliRunner().invoke(revoke, ["--nodes", "4", "--revoked", "4", "--quiet"])
    assert found.exit_code == 2
    assert "at least one node" in found.output
