"""What documents, kept results and the papers' list say to run can be run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from bench.experiments.__main__ import experiments
from bench.experiments.registry import EXPERIMENTS
from bench.lab.record import RESULTS, ROOT
from bench.papers.registry import EXPERIMENTS as OF_PAPERS
from canopy.cli.parameters import changed

COMMAND = "python -m bench.experiments "


def named_commands() -> Iterator[str]:
    for path in RESULTS.glob("*.json"):
        yield from (run["command"] for run in json.loads(path.read_text(encoding="utf-8")))
    for one in OF_PAPERS:
        yield from (*one.fast, *one.full)
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        yield from (
            line.partition("  #")[0].strip() for line in re.findall(r"^    (.*)", text, re.M)
        )


def test_every_command_that_is_named_somewhere_has_its_experiment_and_parameters() -> None:
    plans = {experiment.name: experiment.plan for experiment in EXPERIMENTS}
    found = [line.removeprefix(COMMAND) for line in named_commands() if line.startswith(COMMAND)]
    assert len(found) > 20
    for name, *arguments in map(shlex.split, found):
        arguments = [each for each in arguments if each != "--help"]
        asked = experiments.commands[name].make_context(name, arguments)
        changed(plans[name], asked.params["changes"])


def test_a_command_of_another_experiment_is_refused() -> None:
    """So that the test above can fail."""
    with pytest.raises(click.UsageError):
        experiments.commands["scaling"].make_context("scaling", ["--attack", "voter"])
    with pytest.raises(click.UsageError):
        changed(EXPERIMENTS[0].plan, ("attack=eclipse",))


def test_help_names_all_experiments_and_their_parameters() -> None:
    context = click.Context(experiments)
    assert experiments.list_commands(context) == sorted(each.name for each in EXPERIMENTS)
    scaling = experiments.commands["scaling"]
    assert "processor.per_match=" in scaling.get_help(click.Context(scaling))
