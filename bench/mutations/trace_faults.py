"""Faults in traces, in the analysis, and in the figures of CBDLO."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bench.experiments.routing_model.counting_routing import EventCost
from bench.mutations.planting import fault, replace, replace_constant
from canopy.traces.analysis.selection.matcher import Ints, Matcher
from canopy.traces.analysis.selection.trees import Attributes
from overlay.incidents import IncidentLog
from overlay.links.events import LinkDown


@fault(
    "T7",
    "tests/canopy/traces/test_traces_selectors.py",
    "test_the_join_finds_what_evaluating_all_pairs_finds",
)
def ranges_decide_alone() -> None:
    """What ranges do not say of a selector (arithmetic, LIKE) is not evaluated."""
    original = Matcher._evaluated

    def evaluated(
        self: Matcher,
        events: Sequence[Attributes],
        at: Ints,
        number: Ints,
        right: npt.NDArray[np.bool_],
        several: npt.NDArray[np.bool_],
    ) -> tuple[Ints, Ints]:
        return original(self, events, at, number, np.ones_like(right), several)

    replace(original, evaluated)


@fault(
    "P8",
    "tests/overlay/questions/test_overlay_incidents.py",
    "test_who_said_that_it_leaves_is_not_lost_when_it_is_dialled_afterwards",
)
def leaving_nodes_are_lost() -> None:
    """A node that said that it leaves counts as lost when a node dials it afterwards."""
    original = IncidentLog.on_link_down

    def on_link_down(self: IncidentLog, event: LinkDown) -> None:
        self._left.clear()
        original(self, event)

    replace(original, on_link_down)


@fault(
    "C12",
    "tests/bench/experiments/test_sim_figures.py",
    "test_figure_7_counts_what_delivers_on_both_sides",
)
def figures_leave_node_lists_out() -> None:
    """The figures of CBDLO do not count the messages that deliver an event."""
    replace_constant(EventCost, "messages", EventCost.routing)
