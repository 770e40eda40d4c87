"""Faults in what nodes and their analysis say of load and health, and in what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from bench.mutations.planting import fault, replace
from canopy.traces.analysis.health.history import NodeHistory
from canopy.traces.analysis.health.learnt import TreeNode, classify
from canopy.traces.analysis.health.signals import SIGNALS, Thresholds, find
from canopy.traces.analysis.health.tails import TraceTails
from canopy.traces.analysis.load import spread_of
from canopy.traces.health_file import NodeFinding
from canopy.wire.directory.discovery import Discovery
from canopy.wire.log import Log
from canopy.wire.process.health_watch import HealthWatch
from overlay.chord.cluster.election import Election
from overlay.chord.membership.members import ClusterMembers
from overlay.chord.messages import Cluster
from overlay.health import Health, HealthReport, NodeHealth
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.crawl import Crawl
from overlay.lower_random.messages import Walk
from overlay.machine import NodeId, Peer, Port
from overlay.settings import ViewSettings
from overlay.upper_tree.owner.host_selector import HostSelector


@fault(
    "T7",
    "tests/canopy/traces/test_traces_load_spread.py",
    "test_each_kind_of_work_has_a_spread_of_its_own",
)
def spread_of_the_messages_only() -> None:
    """The report takes the spread of the messages sent for that of every kind of work."""

    def spread(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
        found = original(rows)
        return dict.fromkeys(found, found["data_messages"])

    original = spread_of
    replace(spread_of, spread)


@fault(
    "T5",
    "tests/canopy/wire/directory/test_wire_directory.py",
    "test_only_what_some_node_looks_up_is_announced",
)
def node_announces_itself() -> None:
    """A node writes an entry of its own into the directory, which none reads."""
    original = Discovery.start

    async def start(self: Discovery, nursery: trio.Nursery, me: Peer) -> None:
        await original(self, nursery, me)
        self.publish(f"node:{me.id}", (me.address,))

    replace(original, start)


@fault(
    "T6",
    "tests/lower_random/test_lower_points.py",
    "test_among_the_newest_epoch_the_healthy_come_first_and_none_is_excluded",
)
def access_points_in_any_order() -> None:
    """A node takes access points in any order, whatever its health file says of them."""
    original = AccessPoints.__init__

    def init(
        self: AccessPoints, port: Port, settings: ViewSettings, health: Health | None = None
    ) -> None:
        original(self, port, settings)

    replace(original, init)


@fault(
    "T6",
    "tests/lower_random/test_lower_crawl.py",
    "test_a_walk_goes_by_healthy_neighbours_while_there_are_some",
)
def walks_ignore_health() -> None:
    """A walk goes to any neighbour, whatever the health file says of it."""
    original = Crawl._send

    def send(self: Crawl, kind: str, walk: Walk, ways: Sequence[Peer]) -> None:
        original(self, kind, walk, [self.port.rng.choice(ways)])

    replace(original, send)


CHORD_TESTS = "tests/chord/membership/test_chord_health.py"
FILE_TESTS = "tests/canopy/wire/process/test_wire_health.py"
SIGNAL_TESTS = "tests/canopy/traces/test_traces_health_signals.py"


@fault("T6", CHORD_TESTS, "test_a_sub_healthy_standby_leads_only_after_the_healthy")
def candidates_by_rank_only() -> None:
    """Candidates have their turns by rank, whatever the health file says."""

    def turn(self: Election, cluster: Cluster) -> int:
        return max(0, [peer.id for peer in cluster.members()].index(self.port.me.id) - 1)

    replace(Election._turn, turn)


@fault(
    "T6: excludes none",
    CHORD_TESTS,
    "test_the_only_log_that_is_far_enough_leads_though_its_node_is_sub_healthy",
)
def sub_healthy_are_no_candidates() -> None:
    """A node that its health file calls sub-healthy does not stand for election."""
    original = Election._may_campaign

    def may_campaign(self: Election) -> bool:
        return original(self) and not self.health.severity(self.port.me.id)

    replace(original, may_campaign)


@fault(
    "T6: at defaults",
    "tests/bench/experiments/test_sim_health.py",
    "test_a_sick_node_that_judges_itself_is_not_elected",
)
def nodes_judge_nothing() -> None:
    """A node measures itself and concludes nothing from it."""

    def judge(self: Health, me: NodeId, measured: Mapping[str, float]) -> None:
        self.is_judged = True

    replace(Health.judge, judge)


@fault("T6: at defaults", CHORD_TESTS, "test_a_primary_hears_from_its_standby_that_it_is_sick")
def own_word_is_not_heard() -> None:
    """A primary does not listen to what members say of their own health."""

    def hear(self: Health, node: NodeId, word: NodeHealth | None) -> None:
        pass

    replace(Health.hear, hear)


@fault("T6", CHORD_TESTS, "test_a_report_that_is_over_changes_nothing")
def health_report_without_end() -> None:
    """What a health file said holds for ever."""
    original = Health.update

    def update(self: Health, report: HealthReport) -> None:
        original(self, HealthReport(report.nodes, valid_for=1e9))

    replace(original, update)


@fault("T6", CHORD_TESTS, "test_a_primary_chooses_a_healthy_standby")
def sub_healthy_standby_stays() -> None:
    """A primary keeps a standby that the health file calls sub-healthy."""

    def keep(self: ClusterMembers) -> None: ...

    replace(ClusterMembers.prefer_healthy_standby, keep)


@fault(
    "T6: excludes none",
    "tests/upper_tree/owner/test_tree_health.py",
    "test_hosts_stay_where_all_or_too_many_are_sub_healthy",
)
def sub_healthy_hosts_excluded() -> None:
    """Virtual nodes move off all sub-healthy hosts, even if too few others are left."""
    original = HostSelector.fit_hosts

    def fit_hosts(self: HostSelector) -> list[Peer]:
        fit = original(self)
        return [peer for peer in fit if not self._clusters.health.severity(peer.id)] or fit[:1]

    replace(original, fit_hosts)


@fault("T6", FILE_TESTS, "test_a_malformed_file_changes_nothing")
def malformed_health_file_ends_the_former() -> None:
    """A health file that cannot be read ends what the former one said."""
    original = HealthWatch._ignore

    def ignore(self: HealthWatch, reason: str) -> None:
        original(self, reason)
        self._update(HealthReport({}, 1.0))

    replace(original, ignore)


@fault("T6", FILE_TESTS, "test_a_stale_file_or_one_from_the_future_changes_nothing")
def stale_health_file_is_loaded() -> None:
    """A node loads a health file however old its newest record is."""
    original = HealthWatch.__init__

    def init(
        self: HealthWatch,
        path: Path,
        max_age: float,
        log: Log,
        clock: Callable[[], float],
        update: Callable[[HealthReport], None],
    ) -> None:
        original(self, path, 1e9, log, clock, update)

    replace(original, init)


@fault(
    "T6", SIGNAL_TESTS, "test_a_start_without_a_stop_before_it_is_a_crash_and_with_one_it_is_none"
)
def every_restart_is_a_crash() -> None:
    """The health job takes every second start of a node for a crash."""
    original = NodeHistory.crashes

    def crashes(self: NodeHistory, until: float) -> list[float]:
        starts = [time for time, kind in self.lives if kind == "start"]
        return starts[1:] or original(self, until)

    replace(original, crashes)


@fault("T6", SIGNAL_TESTS, "test_of_several_signals_the_one_nearest_to_the_root_counts")
def last_signal_of_the_tree_counts() -> None:
    """The health job walks the tree of signals from its leaves to its root."""
    original = find

    def upside_down(node: NodeHistory, until: float, limits: Thresholds) -> NodeFinding:
        found = original(node, until, limits)
        for signal in reversed(SIGNALS):
            if signal.name in found.signals:
                return NodeFinding(signal.severity, signal.name, found.signals, found.name)
        return found

    replace(original, upside_down)


@fault("T6", SIGNAL_TESTS, "test_only_whole_lines_that_are_new_are_read")
def follower_reads_everything_anew() -> None:
    """A health job that follows reads all files from their beginning in each round."""
    original = TraceTails.copy_new

    def copy_new(self: TraceTails, folder: Path) -> int:
        self._read.clear()
        return original(self, folder)

    replace(original, copy_new)


@fault("T6", SIGNAL_TESTS, "test_the_learnt_tree_tells_faults_that_it_was_trained_on")
def learnt_tree_in_the_mirror() -> None:
    """The learnt tree is walked to the left where the way goes to the right."""
    original = classify

    def mirrored(tree: TreeNode, values: dict[str, float]) -> str:
        while tree.left is not None and tree.right is not None:
            tree = tree.right if values[tree.feature] <= tree.at_most else tree.left
        return tree.label

    replace(original, mirrored)
