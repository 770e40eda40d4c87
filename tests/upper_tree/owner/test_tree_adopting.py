"""P5: the trees of a lost cluster are planted from a copy of its log."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.overlays import settings
from overlay.chord.events import (
    Elected,
    EntryObserved,
    ObservedArc,
    ObservedEnded,
    ObservedReset,
    ObserversProgressed,
    Replanted,
    RoleChanged,
)
from overlay.chord.keys import attribute_key
from overlay.upper_tree.messages import (
    AskCached,
    AskTree,
    CacheReport,
    Install,
    NotOwner,
    Register,
    Registration,
    Renew,
    RenewRefused,
    TreeAnswer,
    Uninstall,
    ids_digest,
)
from overlay.upper_tree.owner.constants import RESTORE_LEAST
from overlay.upper_tree.owner.tree_log import (
    CacheHoldersChanged,
    MapChanged,
    Operation,
    RegistrationAdded,
    RegistrationsRemoved,
    encode,
)
from overlay.upper_tree.partition import PartitionMap
from tests.support.trees import Rig, cluster_of, registration
from tests.support.world import peer

S, T, PUBLISHER = peer("s"), peer("t"), peer("pub")
LOST = replace(cluster_of("dead"), key="7" * 40, start="7" * 40)
LEASE = 20.0


def made(number: int, subscriber: str = "s") -> Registration:
    who = peer(subscriber)
    return registration(f"{subscriber}/{number}", "x", f"x = {number}", who)


def rig() -> Rig:
    """An owner, two hosts, and a copy of a cluster that had a tree of x."""
    found = Rig("h1", "h2", chosen=settings(tree={"lease": LEASE}), replicas=2)
    map_ = PartitionMap.single((3, 7), (peer("dead"),))
    operations: list[Operation] = [MapChanged("x", map_.version, map_.entries)]
    operations += [RegistrationAdded("x", made(n), 1) for n in range(4)]
    operations += [RegistrationAdded("x", made(9, "t"), 2)]
    observe(found, *operations)
    return found


def observe(found: Rig, *operations: Operation, reset: bool = True) -> None:
    if reset:
        found.owner.port.hear(ObservedReset(LOST.key))
    for operation in operations:
        found.owner.port.hear(EntryObserved(LOST.key, encode(operation)))


def lose(found: Rig, whole: bool = True) -> None:
    """The lost cluster's arc is ours, under an epoch above its own."""
    found.owner.clusters.whole = (LOST.key,) if whole else ()
    cluster = found.owner.clusters.cluster = cluster_of("p", "h1", "h2", version=(9, 0))
    found.owner.port.hear(RoleChanged(cluster, "primary"))
    found.owner.port.hear(Replanted(LOST))


def held(found: Rig, host: str = "h1") -> set[str]:
    tree = found.hosts[host].hosting.trees.get("x")
    return set() if tree is None else {f"s/{n}" for n in range(9) if tree.finds(f"s/{n}")}


def ids(found: Rig) -> list[str]:
    return sorted(found.owner.owner.trees["x"].tree.registrations)


def test_a_copy_of_an_arc_that_shrank_has_the_trees_no_more_that_went_with_it() -> None:
    found = rig()
    key = attribute_key("x")
    found.owner.port.hear(ObservedArc(LOST.key, key))  # (key, LOST.key]: not x
    assert not found.owner.restoration.replicas[LOST.key].trees
    found = rig()
    found.owner.port.hear(ObservedArc(LOST.key, LOST.key))
    assert list(found.owner.restoration.replicas[LOST.key].trees) == ["x"]


ALL = ["s/0", "s/1", "s/2", "s/3", "t/9"]


def test_a_lost_clusters_trees_are_served_before_their_subscribers_register_again() -> None:
    found = rig()
    lose(found)
    found.settle(3)
    assert ids(found) == ALL
    for host in ("h1", "h2"):
        assert held(found, host) == {"s/0", "s/1", "s/2", "s/3"}
        assert found.serving(2, host) == [host]
    assert found.owner.owner.trees["x"].tree.map.version[0] == 9, "above the lost cluster's"
    assert found.owner.clusters.forgotten == [LOST.key]
    assert found.owner.clusters.log, "it is in the own log"


@pytest.mark.parametrize("others", [False, True])
def test_where_all_clusters_are_lost_no_tree_is_said_to_be_absent_at_once(others: bool) -> None:
    """Else what is published for a tree of another lost cluster is taken for unwanted."""
    found = rig()
    found.owner.clusters.whole = (LOST.key,)
    cluster = found.owner.clusters.cluster = cluster_of("p", "h1", "h2", version=(9, 0))
    found.owner.port.hear(RoleChanged(cluster, "primary"))
    arc = replace(LOST, start=f"{int(LOST.key, 16) - 1:040x}")  # of which y is not
    found.owner.port.hear(Replanted(arc, others))
    assert absent(found) == ([] if others else ["y"])
    found.owner.port.advance(RESTORE_LEAST + 0.1)
    assert absent(found) == ["y"]


def absent(found: Rig) -> list[str]:
    """Which trees of y a publisher is answered to be absent."""
    found.owner.port.sent.clear()
    found.owner.port.hear(AskTree(("y",), 1, ()), PUBLISHER)
    found.owner.clusters.commit()
    answers = [one for _, one in found.owner.port.sent_to(TreeAnswer)]
    return [attribute for answer in answers for attribute in answer.absent]


def test_a_copy_follows_the_log() -> None:
    found = rig()
    observe(
        found, RegistrationsRemoved("x", ("s/1",)), RegistrationAdded("x", made(5), 1), reset=False
    )
    lose(found)
    assert ids(found) == ["s/0", "s/2", "s/3", "s/5", "t/9"]


def test_a_copy_that_is_needed_no_more_is_forgotten() -> None:
    found = rig()
    found.owner.port.hear(ObservedEnded(LOST.key))
    lose(found)
    assert not found.owner.owner.trees


def test_a_tree_that_is_known_already_and_one_of_another_arc_are_left_alone() -> None:
    found = rig()
    found.register("x = 77")
    lose(found)
    assert ids(found) == ["s/0"], "what was registered here is newer"
    other = rig()
    other.owner.clusters.giving_away = cluster_of("q")  # owns nothing
    lose(other)
    assert not other.owner.owner.trees


def ask(found: Rig) -> list[type]:
    """What a publisher is answered about x; nothing, while no answer is allowed."""
    found.owner.port.hear(AskTree(("x",), 1, ()), PUBLISHER)
    found.owner.clusters.commit()
    return [
        kind for kind in (NotOwner, TreeAnswer)
        for to, _ in found.owner.port.sent_to(kind) if to == "pub"
    ]  # fmt: skip


def test_publishers_learn_nothing_before_the_hosts_serve() -> None:
    found = rig()
    lose(found)
    assert ask(found) == [NotOwner]
    found.owner.port.take(NotOwner)
    found.settle(1)
    assert found.serving(2) == ["h1", "h2"]
    assert ask(found) == [TreeAnswer]


def test_what_an_older_copy_may_lack_is_waited_for() -> None:
    found = rig()
    lose(found, whole=False)
    found.settle(1)
    assert ask(found) == [NotOwner]
    found.owner.port.take(NotOwner)
    found.settle(1)
    assert ask(found) == [TreeAnswer]


@pytest.mark.parametrize("forked", [False, True])
def test_what_another_branch_registered_is_waited_for(forked: bool) -> None:
    """Publishers that asked would be sent to trees without it."""
    found = rig()
    found.register("x = 77")
    found.settle(1)
    assert ask(found) == [TreeAnswer]
    found.owner.port.take(TreeAnswer)
    cluster = found.owner.clusters.cluster
    assert cluster is not None
    found.owner.port.hear(Elected(cluster, cluster.primary, forked))
    assert ask(found) == [NotOwner if forked else TreeAnswer]
    found.owner.port.take(NotOwner)
    found.settle(2)
    assert ask(found) == [TreeAnswer]


def renew(found: Rig, *claimed: str, subscriber: str = "s", incarnation: int = 1) -> None:
    claim = ("x", len(claimed), ids_digest(claimed))
    found.owner.port.hear(Renew(incarnation, (claim,)), peer(subscriber))


def test_a_registration_that_its_subscriber_does_not_claim_ends() -> None:
    found = rig()
    lose(found)
    found.settle(1)
    for _ in range(6):
        renew(found, "s/0", "s/1", "s/2", "s/3")
        found.owner.port.hear(Renew(2, ()), T)  # it has none
        found.settle(LEASE / 3)
    assert not found.owner.port.sent_to(RenewRefused)
    assert ids(found) == ["s/0", "s/1", "s/2", "s/3"]


def test_what_was_adopted_is_acknowledged_when_the_log_has_it() -> None:
    found = rig()
    lose(found)
    for _ in range(60):  # 12 s: what the lost cluster answered is trusted no more
        found.net.run(0.2)
        found.net.flush()
    found.owner.port.hear(Register(1, (made(2),)), S)
    found.net.flush()
    waiting = found.owner.owner.trees["x"].pending
    assert list(waiting) == ["s/2"]
    found.owner.clusters.commit()
    assert not waiting


def test_a_suback_waits_for_the_logs_observers() -> None:
    found = rig()
    node = found.owner
    node.clusters.uncopied = 0
    found.register("x = 1")
    found.settle(1)
    assert "s/0" in node.owner.trees["x"].pending
    node.clusters.uncopied = 1 << 60
    node.port.hear(ObserversProgressed())
    assert "s/0" not in node.owner.trees["x"].pending


@pytest.mark.parametrize("count", [3, 300])
def test_hosts_get_everything_in_few_messages(count: int) -> None:
    found = Rig("h1", chosen=settings(tree={"split_at": 1000}))
    map_ = PartitionMap.single((3, 7), (peer("dead"),))
    observe(found, MapChanged("x", map_.version, map_.entries),
         *[RegistrationAdded("x", made(n), 1) for n in range(count)])  # fmt: skip
    lose(found)
    installs = [m for to, m in found.owner.port.sent_to(Install) if to == "h1"]
    found.net.run(0.1)
    installs += [m for to, m in found.owner.port.sent_to(Install) if to == "h1"]
    assert len(installs) <= 2
    found.settle(1)
    assert found.serving(2) == ["h1"]
    assert not found.owner.port.sent_to(Uninstall)


@pytest.mark.parametrize("whole", [True, False])
def test_cache_holders_of_the_lost_cluster_are_asked_if_the_copy_is_whole(whole: bool) -> None:
    found = rig()
    observe(found, CacheHoldersChanged((PUBLISHER,)), reset=False)
    lose(found, whole)
    node = found.owner
    assert [to for to, _ in node.port.sent_to(AskCached)] == (["pub"] if whole else [])
    assert node.owner.state.has_unknown_holders != whole
    found.settle(2)
    new = registration("s/50", "new", "new > 1", S)
    node.port.hear(Register(1, (new,), final=True), S)
    found.settle(1)
    waiting = node.owner.trees["new"].pending
    assert waiting, "a publisher may have cached that there are no subscribers"
    if whole:
        node.port.hear(CacheReport(node.clusters.cluster.key, 9, (), True), PUBLISHER)
        found.settle(1)
        assert not waiting


def test_a_copy_whose_cache_holders_are_not_all_known_says_so() -> None:
    found = rig()
    observe(found, CacheHoldersChanged((PUBLISHER,), (), has_unknown=True), reset=False)
    lose(found)
    assert found.owner.owner.state.has_unknown_holders
    assert not found.owner.port.sent_to(AskCached)
