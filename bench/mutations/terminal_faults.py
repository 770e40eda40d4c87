"""Faults in what a person at a terminal sees: the command line and the terminal UI."""

from __future__ import annotations

from collections.abc import Sequence

from bench.mutations.planting import fault, replace
from canopy.client.hints import hints, never_true
from matching import Predicate


@fault(
    "commands: warnings",
    "tests/canopy/cli/test_cli_commands.py",
    "test_an_odd_selector_is_subscribed_with_a_warning",
)
def unseen_attributes_in_silence() -> None:
    """What a selector names and no event has had is not pointed out."""

    def _hints(predicate: Predicate, seen: Sequence[str]) -> tuple[str, ...]:
        return never_true(predicate)

    replace(hints, _hints)
