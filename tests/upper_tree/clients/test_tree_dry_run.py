"""The node of a dry run: owners and hosts are asked, once more where they are silent."""

from __future__ import annotations

from itertools import pairwise
from textwrap import dedent
from typing import Any

import pytest

from matching import BOTTOM, EVERYTHING, TOP, Interval, place
from overlay.client import Draft, DryRun, Recipients
from overlay.machine import ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.clients.dry_run import NO_HOST, NO_OWNER, DryRuns, HostsAgain
from overlay.upper_tree.inspection_messages import (
    AskMatches,
    FindHosts,
    HostsFound,
    MatchesFound,
    NodeMatch,
)
from overlay.upper_tree.messages import (
    EVENT_TREE,
    Location,
    Register,
)
from tests.support.transcript import Transcript
from tests.support.trees import OwnerNode, cluster_of, registration
from tests.support.trees import Rig as Trees
from tests.support.world import one_node, peer

HOSTS = (peer("h1"), peer("h2"))


class Rig:
    """A node that leads a cluster, and a program of it; the ring answers as the test says."""

    def __init__(self) -> None:
        self.port = one_node("p")
        self.node = OwnerNode(self.port, Settings(), cluster_of("q"), primary=False)
        owner, restoration = self.node.owner, self.node.restoration
        self.dry_runs = DryRuns(self.port, Settings(), owner, restoration, self.node.ring)  # type: ignore[arg-type]
        self.port.add(self.dry_runs)

    def ask(self, *events: dict[str, Any]) -> None:
        """The owner of everything, q, is found."""
        self.dry_runs.dry_run(5, DryRun(9, tuple(map(Draft, events))))
        self.port.turn()
        for attribute in list(self.dry_runs._queries[1].lookups):
            self.node.ring.answer(attribute, cluster_of("q"))

    def hosts(self, *locations: Location, absent: tuple[str, ...] = ()) -> None:
        self.port.hear(HostsFound(1, locations, absent), peer("q"))

    def matches(self, host: str, *subscriptions: str, moved: Any = (), nodes: int = 0) -> None:
        match = NodeMatch(peer("s"), len(subscriptions), subscriptions)
        listed = (match,) if subscriptions else ()
        count = nodes or len(listed)
        self.port.hear(MatchesFound(1, (0,), (count,), (listed,), moved), peer(host))

    def asked(self) -> list[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]]]:
        return [(to, message.trees) for to, message in self.port.sent_to(AskMatches)]

    def answer(self) -> Any:
        ((found,),) = [answer.events for answer in self.port.answers(Recipients)]
        assert self.dry_runs._queries == {}
        return found


def whole(attribute: str) -> Location:
    return Location(attribute, (1, 1), EVERYTHING, HOSTS)


def test_an_owner_is_asked_once_for_all_its_attributes() -> None:
    rig = Rig()
    rig.ask({"x": 1, "y": None, "z": 2})
    ((to, question),) = rig.port.sent_to(FindHosts)
    assert (to, set(question.attributes)) == ("q", {EVENT_TREE, "x", "z"})
    rig.hosts(whole("x"), absent=(EVENT_TREE, "z"))
    ((host, trees),) = rig.asked()
    assert trees == (("x", (0,)),)
    rig.matches(host, "s.1.1")
    found = rig.answer()
    assert [(one.node, one.subscriptions, one.ids) for one in found.listed] == [
        ("s", 1, ("s.1.1",))
    ]
    assert found.unanswered == ()


def test_a_host_of_each_shard_of_a_value_is_asked() -> None:
    rig = Rig()
    rig.ask({"x": 1})
    ends = [BOTTOM, (1, 1, 0), (1, 1, 0.25), (1, 1, 1), TOP]
    names = ["h1", "h2", "h3", "h1"]
    rig.hosts(
        *(
            Location("x", (1, 1), Interval(lo, hi), (peer(name),))
            for (lo, hi), name in zip(pairwise(ends), names, strict=True)
        ),
        absent=(EVENT_TREE,),
    )
    assert sorted(rig.asked()) == [("h2", (("x", (0,)),)), ("h3", (("x", (0,)),))]
    rig.matches("h2", "s.1.1")
    assert not rig.port.answers(Recipients), "h3 has the rest"
    rig.port.hear(
        MatchesFound(1, (0,), (1,), ((NodeMatch(peer("t"), 1, ("t.1.1",)),),), ()), peer("h3")
    )
    assert [one.node for one in rig.answer().listed] == ["s", "t"]


def test_each_value_is_asked_for_at_the_host_of_its_virtual_node() -> None:
    rig = Rig()
    rig.dry_runs.dry_run(5, DryRun(9, (Draft({"x": 5}), Draft({"x": 50}))))
    rig.port.turn()
    for attribute in list(rig.dry_runs._queries[1].lookups):
        rig.node.ring.answer(attribute, cluster_of("q"))
    low, high = Interval(BOTTOM, place(10)), Interval(place(10), TOP)
    rig.hosts(
        Location("x", (1, 1), low, (peer("h1"),)), Location("x", (1, 1), high, (peer("h2"),)),
        absent=(EVENT_TREE,),
    )  # fmt: skip
    assert rig.asked() == [("h1", (("x", (0,)),)), ("h2", (("x", (1,)),))]


def test_subscriptions_that_several_trees_find_are_counted_once() -> None:
    rig = Rig()
    rig.ask({"x": 1, "y": 2})
    one = Location("x", (1, 1), EVERYTHING, (peer("h1"),))
    other = Location("y", (1, 1), EVERYTHING, (peer("h2"),))
    rig.hosts(one, other, absent=(EVENT_TREE,))
    rig.matches("h1", "a", "b")
    assert rig.port.answers(Recipients) == []
    rig.matches("h2", "b", "c", nodes=4)
    found = rig.answer()
    ((node,), count) = found.listed, found.nodes
    assert (node.subscriptions, set(node.ids), count) == (3, {"a", "b", "c"}, 4)


def test_after_a_move_the_next_replica_is_asked_and_then_the_owner_again() -> None:
    rig = Rig()
    rig.ask({"x": 1})
    rig.hosts(whole("x"), absent=(EVENT_TREE,))
    ((first, _),) = rig.asked()
    rig.matches(first, moved=(("x", (0,)),))
    ((second, _),) = rig.asked()
    assert {first, second} == {"h1", "h2"}
    rig.matches(second, moved=(("x", (0,)),))
    assert rig.asked() == []
    rig.port.sent_to(FindHosts)
    rig.port.advance(1.1)
    rig.node.ring.answer("x", cluster_of("q"))
    ((_, question),) = rig.port.sent_to(FindHosts)
    assert question.attributes == ("x",)
    rig.hosts(Location("x", (1, 2), EVERYTHING, (peer("h3"),)))
    assert rig.asked() == [("h3", (("x", (0,)),))]
    rig.matches("h3", "a")
    assert rig.answer().unanswered == ()


def test_what_is_silent_in_the_end_is_named() -> None:
    rig = Rig()
    rig.ask({"x": 1, "y": 1})
    rig.hosts(whole("x"), absent=(EVENT_TREE,))
    rig.port.advance(2.9)
    assert [to for to, _ in rig.asked()] != []
    assert rig.port.answers(Recipients) == []
    rig.port.advance(0.2)
    assert rig.answer().unanswered == (("x", NO_HOST), ("y", NO_OWNER))
    rig.matches("h1", "late")
    rig.hosts(whole("y"))
    assert rig.port.replies == []
    assert not rig.port.timers


def test_a_primary_names_the_hosts_of_its_trees_and_which_have_none() -> None:
    port = one_node("p")
    node = OwnerNode(port, Settings(), cluster_of("p"))
    port.add(DryRuns(port, Settings(), node.owner, node.restoration, node.ring))  # type: ignore[arg-type]
    port.hear(Register(1, (registration("s/0", "x", "x > 1", peer("s")),)), peer("s"))
    port.hear(FindHosts(4, ("x", "y")), peer("asker"))
    ((to, answer),) = port.sent_to(HostsFound)
    assert (to, answer.number, answer.absent) == ("asker", 4, ("y",))
    assert [(at.attribute, at.hosts) for at in answer.locations] == [("x", (peer("p"),))]


def test_a_node_that_does_not_lead_says_neither() -> None:
    rig = Rig()
    rig.port.hear(FindHosts(4, ("x",)), peer("asker"))
    ((_, answer),) = rig.port.sent_to(HostsFound)
    assert (answer.locations, answer.absent) == ((), ())


def test_an_answer_that_makes_no_sense_is_the_senders_fault() -> None:
    rig = Rig()
    rig.ask({"x": 1})
    rig.hosts(whole("x"), absent=(EVENT_TREE,))
    with pytest.raises(ProtocolError):
        rig.port.hear(MatchesFound(1, (0,), (), (), ()), HOSTS[0])
    rig.matches("elsewhere", "a")
    rig.port.hear(MatchesFound(1, (77,), (1,), ((),), ()), HOSTS[0])
    assert rig.port.answers(Recipients) == [], "it has not answered for this event"


def test_a_dry_run_message_by_message() -> None:
    """The owner names the hosts of the trees; the first host is silent, the second answers."""
    trees = Trees("a", "b", replicas=2)
    owner = trees.owner
    owner.port.add(DryRuns(owner.port, trees.settings, owner.owner, owner.restoration, owner.ring))  # type: ignore[arg-type]
    trees.register("x > 1")
    trees.settle()
    cluster = owner.clusters.cluster
    assert cluster is not None
    asker = OwnerNode(trees.net.node("me"), trees.settings, cluster, primary=False)
    dry_runs = DryRuns(asker.port, trees.settings, asker.owner, asker.restoration, asker.ring)  # type: ignore[arg-type]
    asker.port.add(dry_runs)
    names = {"me": "asker", "p": "owner", "a": "host a", "b": "host b"}
    kinds = (FindHosts, HostsFound, AskMatches, MatchesFound, HostsAgain)
    said = Transcript(trees.net, names, kinds)
    dry_runs.dry_run(5, DryRun(9, (Draft({"x": 5, "y": 1}),)))
    for attribute in list(dry_runs._queries[1].lookups):
        asker.ring.answer(attribute, cluster)
    trees.net.deliver(("me", "p"))
    trees.net.deliver(("p", "me"))
    trees.net.run(1.0)
    trees.net.deliver(("me", "b"))
    trees.net.deliver(("b", "me"))
    assert said.text() == dedent("""\
        asker: event OwnerFound
            -> owner: FindHosts (of 3 trees)
        owner <- asker: FindHosts (of 3 trees)
            -> asker: HostsFound (1 location, 2 absent)
        asker <- owner: HostsFound (1 location, 2 absent)
            -> host a: AskMatches (1 event, 1 tree)
        asker: timer HostsAgain
            -> host b: AskMatches (1 event, 1 tree)
        host b <- asker: AskMatches (1 event, 1 tree)
            -> asker: MatchesFound (1 node, 0 moved)
        asker <- host b: MatchesFound (1 node, 0 moved)""")
    ((one,),) = [answer.events for answer in asker.port.answers(Recipients)]
    assert [each.node for each in one.listed] == ["s"]
