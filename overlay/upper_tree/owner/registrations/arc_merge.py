"""The trees of a cluster that merges with the next one (P1); the clusters' part is
overlay/chord/membership/cluster_merge.py and taking_in.py.

At the one that ends, they are stopped (tree_stop.py) and their state is handed over: so no host
serves by what the other one does not know of, and no publisher skips by it. If the merge is given
up, the hosts are given everything anew. At the one that takes them they are restored as those of a
lost cluster are (restoration.py), from a state that lacks nothing.

Registrations, and their ends, are refused meanwhile; their subscribers ask again, and find the next
owner.
"""

from __future__ import annotations

from overlay.chord.clusters import Clusters
from overlay.chord.events import ArcKept, ArcMerging, RoleChanged
from overlay.chord.merging.phase import MergePhase
from overlay.machine import Alarm, Machine, Port, Timer
from overlay.upper_tree.owner.constants import MERGE_PERIOD
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registrations.registry import Summaries
from overlay.upper_tree.owner.registrations.tree_stop import TreeStop
from overlay.upper_tree.owner.tree_log import CacheHoldersChanged, encode


class StopStepDue(Timer, frozen=True):
    """Time to check whether everything has stopped."""


class ArcMerge(Machine):
    """At the owner whose whole arc goes to the next cluster."""

    def __init__(self, port: Port, clusters: Clusters, owner: Owner, summaries: Summaries) -> None:
        super().__init__(port)
        self._clusters = clusters
        self._owner = owner
        self._stop = TreeStop(port, owner, summaries)
        self._under_way = False
        self._due = Alarm(port, StopStepDue())

    def on_arc_merging(self, event: ArcMerging) -> None:
        """Stop all trees; or, where a former primary has done so, hand over their state."""
        self._under_way = True
        self._owner.enter_merge_phase(MergePhase.STOPPED)
        if event.decided:
            self._hand_over()
        else:
            self._step()

    def on_stop_step_due(self, timer: StopStepDue) -> None:
        """Look again what has stopped."""
        self._due.rang()
        if self._under_way:
            self._step()

    def _step(self) -> None:
        if self._stop.step():
            self._hand_over()
        else:
            self._due.within(MERGE_PERIOD)

    def _hand_over(self) -> None:
        # No publisher has a summary of these trees any more.
        state = self._owner.state.operations()
        trees = [encode(one) for one in state if not isinstance(one, CacheHoldersChanged)]
        self._clusters.hand_to_successor(trees)

    def on_arc_kept(self, event: ArcKept) -> None:
        """The arc stays: serve its trees again."""
        if self._under_way:
            self._end()
            self._stop.cancel()

    def on_role_changed(self, event: RoleChanged) -> None:
        """This node leads the cluster no more: the next primary finds in the log how far it is."""
        if self._under_way and event.role != "primary":
            self._end()
            self._stop.forget()

    def _end(self) -> None:
        self._under_way = False
        self._due.cancel()
        self._owner.enter_merge_phase(MergePhase.NONE)
