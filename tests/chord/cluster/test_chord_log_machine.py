"""The replicated log under any order of appends, crashes, restarts and broken links (hypothesis).

Raft's safety properties (Ongaro and Ousterhout, *In search of an understandable consensus
algorithm*, figure 3), as docs/design/clusters.md claims them: an epoch has at most one primary;
logs that have an entry of the same epoch and number in common agree on all before it; what is
committed is in the log of every primary that is elected later (I3, I4). Recovery of clusters that
lost their majority (P5) gives the last one up on purpose, and is switched off here.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from overlay.chord.cluster.messages import LogEntry
from overlay.machine import NodeId
from overlay.settings import ClusterSettings
from tests.support.rings import UNRECOVERED, RingNode, RingWorld

NODES = 5
KEY = "8" * 40
WHICH = st.integers(0, NODES - 1)


def kept(node: RingNode) -> dict[int, LogEntry]:
    """The entries that the node still has in memory, by their numbers."""
    log = node.clusters.log.voter_log
    if log is None:
        return {}
    first, entries = log.tail()
    return dict(enumerate(entries, first))


class ReplicatedLog(RuleBasedStateMachine):
    """One cluster of five nodes, all of which vote."""

    def __init__(self) -> None:
        super().__init__()
        self.world = RingWorld(
            1, cluster=ClusterSettings(size=NODES), election=UNRECOVERED, delay=0.02
        )
        self.world.disk_time = (0.0, 0.06)
        self.all = [self.world.add(founder=n == 0) for n in range(NODES)]
        self.world.run(8)
        assert len(self.all[0].clusters.log.voters) == NODES
        self.written = 0
        self.committed: dict[int, LogEntry] = {}
        self.leaders: dict[int, NodeId] = {}
        self.world.checks.append(self.note)

    def note(self) -> None:
        """After every message: who leads, and what do primaries call committed?"""
        for node in self.world.primaries():
            cluster = node.clusters.cluster
            assert cluster is not None
            leader = self.leaders.setdefault(cluster.version[0], node.peer.id)
            assert leader == node.peer.id, f"two primaries of epoch {cluster.version[0]}"
            entries = kept(node)
            if node.clusters.leader_log.committed < node.clusters.leader_log.tracker.first:
                continue
            for number in range(node.clusters.leader_log.committed):
                if number in entries:
                    assert self.committed.setdefault(number, entries[number]) == entries[number]

    def is_up(self, number: int) -> bool:
        return self.all[number].peer.id in self.world.members

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        for _ in range(count):
            self.written += 1
            self.world.write(KEY, str(self.written))
        for node in self.world.members.values():
            node.port.turn()

    @rule(number=WHICH)
    def crash(self, number: int) -> None:
        if self.is_up(number):
            self.world.crash(self.all[number])

    @rule()
    def crash_the_primary(self) -> None:
        for node in self.world.primaries():
            self.world.crash(node)

    @rule(number=WHICH)
    def the_primary_dies_while_one_voter_lags(self, number: int) -> None:
        self.isolate(number)
        self.append(2)
        self.world.run(0.2)
        self.crash_the_primary()
        self.heal()

    @rule()
    def power_failure(self) -> None:
        """All at once; all are started again."""
        for node in list(self.world.members.values()):
            self.world.crash(node)
        for number in range(NODES):
            self.restart(number)

    @rule(number=WHICH)
    def restart(self, number: int) -> None:
        if not self.is_up(number):
            self.all[number] = self.world.restart(self.all[number])

    @rule(one=WHICH, other=WHICH)
    def cut(self, one: int, other: int) -> None:
        if one != other and self.is_up(one) and self.is_up(other):
            self.world.cut_link(self.all[one], self.all[other])

    @rule(number=WHICH)
    def isolate(self, number: int) -> None:
        for other in range(NODES):
            self.cut(number, other)

    @rule()
    def heal(self) -> None:
        for a, b in list(self.world.severed):
            if a in self.world.members and b in self.world.members:
                self.world.heal_link(self.world.member(a), self.world.member(b))
        self.world.severed.clear()

    @rule(seconds=st.sampled_from([0.01, 0.1, 1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.world.run(seconds)

    @invariant()
    def logs_agree_on_prefixes(self) -> None:
        logs = [kept(node) for node in self.world.members.values()]
        for at, one in enumerate(logs):
            for other in logs[:at]:
                both = sorted(one.keys() & other.keys(), reverse=True)
                same = [n for n in both if one[n].epoch == other[n].epoch]
                if same:
                    assert all(one[n] == other[n] for n in both if n <= same[0])

    @invariant()
    def the_newest_primary_has_all_that_is_committed(self) -> None:
        leading = [n for n in self.world.primaries() if n.clusters.is_followed]
        if leading:
            newest = max(leading, key=lambda n: n.clusters.cluster.version)  # type: ignore[union-attr]
            entries = kept(newest)
            assert newest.clusters.log.next > max(self.committed, default=-1)
            for number, entry in self.committed.items():
                assert entries.get(number, entry) == entry

    def teardown(self) -> None:
        """When all are up and reach one another again, one leads, with everything committed."""
        self.heal()
        for number in range(NODES):
            self.restart(number)
        self.world.run(20)
        assert len(self.world.primaries()) == 1
        self.the_newest_primary_has_all_that_is_committed()
        self.world.copies_agree()
        super().teardown()


ReplicatedLog.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestReplicatedLog = ReplicatedLog.TestCase
