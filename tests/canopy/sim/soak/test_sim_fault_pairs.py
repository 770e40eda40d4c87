"""Each fault alone and each pair of them: the catalogue, and some of its trials."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from canopy.cli.sim.soak import pairs
from canopy.sim.scenario.run import judge_scenario
from canopy.sim.scenario.scenario import check_nodes
from canopy.sim.soak.fault_pairs import CATALOGUE, scenario_of, trials
from canopy.wire.transport.codec import WireCodec

COUNT = len(CATALOGUE)


def test_each_alone_and_each_pair_once() -> None:
    names = [trial.names for trial in trials(1)]
    assert len(set(map(frozenset, names))) == len(names) == COUNT + COUNT * (COUNT - 1) // 2
    assert len(list(trials(1, ["bridge"]))) == COUNT
    assert [t.names for t in trials(1, ["one-way", "bridge"])] == [
        ("bridge",),
        ("one-way",),
        ("bridge", "one-way"),
    ]
    with pytest.raises(KeyError):
        list(trials(1, ["nothing"]))


def test_of_two_the_second_begins_while_the_first_lasts_and_both_end() -> None:
    for trial in trials(3):
        check_nodes(trial.scenario)
        faults = trial.scenario.faults
        assert [f.at for f in faults] == sorted(f.at for f in faults)
        whole = [f.do for f in faults if f.do in ("heal", "resume")]
        assert len(whole) == len(set(whole)), "one of each, the last"
        held = [f.nodes for f in faults if f.do == "clog"]
        assert sorted(held) == sorted(f.nodes for f in faults if f.do == "unclog")
        stopped = [f.at for f in faults if f.do in ("crash", "lose")]
        started = [f.at for f in faults if f.do == "restart"]
        assert not stopped or max(started) > max(stopped)


TRIED = [
    ("primary killed", "clogged"),  # two primaries under one fork, before
    ("broker killed, disk gone",),
    ("primary paused 120 s",),
    ("bridge",),
    ("cluster killed",),
]


@pytest.mark.parametrize("names", TRIED, ids="+".join)
def test_the_overlay_keeps_its_promises(names: tuple[str, ...]) -> None:
    verdict = judge_scenario(scenario_of(names, seed=1), WireCodec())
    assert not verdict.violations
    assert verdict.result is not None
    assert verdict.result.delivered > 100


def test_the_command_runs_what_is_named_and_says_what_there_is() -> None:
    done = CliRunner().invoke(pairs, ["--only", "two join", "--alone", "--json", "--quiet"])
    assert done.exit_code == 0
    assert '"trials": 1' in done.output
    assert '"bad": []' in done.output
    listed = CliRunner().invoke(pairs, ["--list"])
    assert listed.output.splitlines() == list(CATALOGUE)
    wrong = CliRunner().invoke(pairs, ["--only", "nothing"])
    assert wrong.exit_code == 2
    assert "there is no 'nothing'" in wrong.output
