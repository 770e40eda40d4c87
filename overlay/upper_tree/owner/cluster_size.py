"""The size of the cluster that owns the trees: members recruited to host them, a split when they
are too many or too busy, and the load by which it merges with the next cluster (C6, P1)."""

from __future__ import annotations

from collections import Counter

from overlay.chord.keys import attribute_key
from overlay.chord.membership.cluster_merge import ClusterLoad
from overlay.chord.messages import MergePhase
from overlay.machine import Key, Port
from overlay.settings import Settings
from overlay.upper_tree.owner.constants import LEADERS, PREFERRED_MOST, SPLIT_AFTER
from overlay.upper_tree.owner.owned_tree import ScanThrottle
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.reported_loads import middle_by_load


class ClusterSize:
    """Asks the cluster for members and for a split, as its primary's trees need."""

    def __init__(self, port: Port, settings: Settings, owner: Owner) -> None:
        self._port = port
        self._settings = settings
        self._owner = owner
        self._clusters = owner.clusters
        self._subscriber_scan = ScanThrottle()
        self._busy_since: float | None = None

    def reset(self) -> None:
        """Forget for how long the cluster has been busy: this node is not its primary."""
        self._busy_since = None

    def recruit(self, hosts: int) -> None:
        """Recruit members for a plan with this number of hosts, first the nodes that subscribe
        most: they need not be sent the events that they host. A cluster that is configured to be
        small recruits for the load only, and not for replicas."""
        replicas = self._settings.tree.replicas
        usual = min(replicas, max(1, self._settings.cluster.size - LEADERS))
        members = hosts // replicas * usual + LEADERS
        self._clusters.want(members)
        cluster, now, owned_trees = self._clusters.cluster, self._port.now, self._owner.trees
        trees = [owned.tree for owned in owned_trees.values()]
        changes = sum(tree.registration_changes for tree in trees)
        due = self._subscriber_scan.is_due(None, changes, owned_trees.registrations, now)
        if cluster is not None and len(cluster.members()) < members and due:
            self._subscriber_scan.done(None, changes, now)
            subscribed = Counter(
                registration.subscriber
                for tree in trees
                for registration in tree.registrations.values()
            )
            self._clusters.prefer([peer for peer, _ in subscribed.most_common(PREFERRED_MOST)])

    def review(self) -> None:
        """Ask for a split if one is needed, and report the load of the cluster's trees: a cluster
        with little load and too few members merges with the next one."""
        self._ask_for_split()
        trees, load = self._owner.trees, self._owner.hosts.loads.total(self._port.now)
        self._clusters.report_load(
            ClusterLoad(len(trees), trees.registrations, load, self._owner.epoch)
        )

    def _ask_for_split(self) -> None:
        cluster, trees, owner = self._clusters.cluster, self._owner.trees, self._owner
        limits = self._settings.cluster
        is_merging = owner.merge_phase is not MergePhase.NONE
        if cluster is None or len(trees) < 2 or is_merging or owner.hosts.awaits_lost_leases:
            return  # what is under way could not end soon, and the arc would wait for it
        is_full = (
            len(trees) > limits.split_trees or trees.registrations > limits.split_registrations
        )
        if not is_full and not self._is_busy_for_long():
            return
        keys = sorted(attribute_key(attribute) for attribute in trees)
        after = [key for key in keys if key > cluster.start]
        in_ring_order = after + keys[: len(keys) - len(after)]
        middle: Key | None = in_ring_order[len(keys) // 2 - 1]
        if not is_full:
            asked = {attribute_key(a): owner.hosts.load_of(owned) for a, owned in trees.items()}
            middle = middle_by_load([(key, asked[key]) for key in in_ring_order])
        if middle is not None:
            self._clusters.request_split(middle)

    def _is_busy_for_long(self) -> bool:
        """Whether events have asked for more hosts for a while than one primary should have."""
        now = self._port.now
        if self._owner.hosts.loads.total(now) <= self._settings.cluster.split_load:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = now
        return self._busy_since is not None and now - self._busy_since >= SPLIT_AFTER
