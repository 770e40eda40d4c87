"""C3, C5, C7, C10 as transcripts: from an event whose tree is unknown to its acceptance, message by
message, with the machines of publisher, walk and hosts; the owner answers as the test says.

CBDLO sections 3.1 (figure 2) and 4 (figure 4). P publishes, N is its only neighbour, and M that of
N; a walk has two hops. H and I are hosts of the tree of x, O is its owner, and P knows that it is.
"""

from __future__ import annotations

from textwrap import dedent

from harness.overlays import settings
from matching import BOTTOM, EVERYTHING, TOP, Interval, place
from overlay.client import Draft
from overlay.lower_random.messages import AccessPoint, StalePoint, Walk, WalkHit, WalkMiss
from overlay.machine import Message
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.events import EventsAccepted
from overlay.upper_tree.messages import (
    EVENT_TREE,
    Accepted,
    AskTree,
    Assign,
    Entry,
    Location,
    TreeAnswer,
    TreeMoved,
    Visit,
)
from overlay.upper_tree.partition import PartitionMap, ranked
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.summary_cache import SummaryCache
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from tests.support.trees import FakeRing, HostNode, cluster_of
from tests.support.walks import walker
from tests.support.world import World, peer

LOW, HIGH = Interval(BOTTOM, place(10)), Interval(place(10), TOP)


class Searching:
    """P, N, the hosts H and I, and what they say to each other."""

    def __init__(self) -> None:
        self.world = World()
        self.port = self.world.node("P")
        self.settings = settings(walk={"hops": 2})
        crawl, self.points = walker(self.port, "N")
        _, self.neighbour = walker(self.world.node("N"), "P", "M")
        walker(self.world.node("M"), "N")
        replicas = ReplicaSelector("P", 3.0)
        summaries = SummaryCache(100, self.settings.tree.summary_visits)
        self.locations = LocationCache(100, replicas, summaries=summaries)
        self.locations.learn_absent(EVENT_TREE, 1e9, 1, 0.0)
        ring = FakeRing(self.port)
        ring.learn(cluster_of("O"))
        finder = TreeFinder(self.port, self.settings, crawl, ring, self.locations)
        self.publisher = Publisher(
            self.port, self.settings, 1, finder, self.locations, self.points, EventHistory(10),
            CopyBudget(16),
        )  # fmt: skip
        self.port.add(finder, self.publisher)
        self.hosts = {name: HostNode(self.world.node(name), self.settings) for name in "HI"}
        self.owner = self.world.node("O")
        for kind in (AskTree, StalePoint, TreeAnswer):
            self.owner.ignore(kind)
        self.world.forget()  # the views' first shuffles: the graph shall stay as it is
        self.world.sent.clear()

    def knows(self, *hosts: str) -> None:
        """N has access points of x."""
        for host in hosts:
            self.neighbour.learn(AccessPoint("x", peer(host), (1, 1), 0))

    def serves(self, host: str, *intervals: Interval) -> None:
        """The host serves these of x; what remains is the other host's."""
        other = peer("I" if host == "H" else "H")
        parts = [EVERYTHING] if intervals == (EVERYTHING,) else [LOW, HIGH]
        entries = tuple(
            Entry(part, (peer(host) if part in intervals else other,)) for part in parts
        )
        known = PartitionMap((1, 1), entries).slice_for(host)
        node = self.hosts[host].lease()
        node.port.hear(Assign("x", (1, 1), intervals, len(entries), known), peer("O"))
        self.world.sent.clear()
        self.world.links.clear()

    def publish(self, **attributes: int) -> None:
        self.publisher.publish([Draft(dict(attributes))])
        self.port.turn()
        self.world.flush()

    def answer(self, found: str = "") -> None:
        """The owner says where the tree is, or that there is none."""
        entries = (Location("x", (2, 1), EVERYTHING, (peer(found),)),) if found else ()
        absent = () if found else ("x",)
        self.owner.send(self.port.me, TreeAnswer(entries, absent, 10.0, 1))
        self.world.flush()

    def transcript(self) -> str:
        lines = [f"{one} -> {to}: {say(message)}" for one, to, message in self.world.sent]
        self.world.sent.clear()
        return "\n".join(line for line in lines if not line.endswith(": "))

    def accepted(self) -> int:
        """How many events every tree has taken."""
        return sum(len(each.sequences) for each in self.port.of(EventsAccepted))


def say(message: Message) -> str:
    """The messages of a search in words; "" for others."""
    match message:
        case Walk():
            return (
                f"walk for {' '.join(message.attributes)}, {message.left} of {message.limit} left"
            )
        case WalkHit():
            return "hit: " + ", ".join(f"{p.attribute} at {p.peer.id}" for p in message.found)
        case WalkMiss():
            return f"miss: {' '.join(message.attributes)}"
        case StalePoint():
            return f"{message.attribute} is not at {message.peer}"
        case AskTree():
            return f"where is {' '.join(message.attributes)}?"
        case TreeAnswer():
            return "no subscribers" if message.absent else f"at {message.entries[0].hosts[0].id}"
        case Visit():
            return f"visit {' '.join(message.attributes)}, hop {message.hop}"
        case Accepted():
            return "accepted"
        case TreeMoved():
            return "moved"
        case _:
            return ""


def text(lines: str) -> str:
    return dedent(lines).strip()


def test_a_hit_names_where_the_event_goes_at_once_and_no_owner_is_asked() -> None:
    """Section 3.1, step 2.1: "found: send to that node." """
    node = Searching()
    node.knows("H")
    node.serves("H", EVERYTHING)
    node.publish(x=5)
    assert node.transcript() == text(
        """
        P -> N: walk for x, 1 of 2 left
        N -> P: hit: x at H
        P -> H: visit x, hop 1
        H -> P: accepted
        """
    )
    assert node.accepted() == 1
    node.world.run(0.1)
    node.world.sent.clear()
    node.publish(x=6)
    assert node.transcript() == text(
        """
        P -> H: visit x, hop 1
        H -> P: accepted
        """
    )


def test_a_hit_in_the_publishers_own_table_costs_no_message() -> None:
    """Section 3.1: "each node looks in its table first", the source too."""
    node = Searching()
    node.points.learn(AccessPoint("x", peer("H"), (1, 1), 0))
    node.serves("H", EVERYTHING)
    node.publish(x=5)
    assert node.transcript() == text(
        """
        P -> H: visit x, hop 1
        H -> P: accepted
        """
    )


def test_a_host_of_another_interval_passes_the_event_on_along_the_tree() -> None:
    """Section 4: the entry translates to a virtual node, and the tree leads to the value's."""
    node = Searching()
    node.knows("H")
    node.serves("H", LOW)
    node.serves("I", HIGH)
    node.publish(x=50)
    assert node.transcript() == text(
        """
        P -> N: walk for x, 1 of 2 left
        N -> P: hit: x at H
        P -> H: visit x, hop 1
        H -> I: visit x, hop 2
        I -> P: accepted
        """
    )
    assert node.accepted() == 1


def test_a_host_that_does_not_serve_the_tree_gives_the_event_back_for_the_next_one() -> None:
    """Section 4: the entry has left. The hit named another one, so no second walk is needed."""
    node = Searching()
    node.knows("H", "I")
    first, second = [host.id for host in ranked("P", (peer("H"), peer("I")))]
    node.serves(second, EVERYTHING)
    node.publish(x=5)
    walk, hit, *rest = node.transcript().split("\n")
    assert walk == "P -> N: walk for x, 1 of 2 left"
    assert hit in ("N -> P: hit: x at H, x at I", "N -> P: hit: x at I, x at H")
    assert rest == [
        f"P -> {first}: visit x, hop 1",
        f"{first} -> P: moved",
        f"P -> N: x is not at {first}",
        f"P -> {second}: visit x, hop 1",
        f"{second} -> P: accepted",
    ]
    assert node.accepted() == 1


def test_when_all_entries_are_wrong_a_walk_of_half_the_hops_and_then_the_owner_follow() -> None:
    """Section 4: "a random walk is started anew …, and the largest number of hops is halved". In
    the paper the event is lost if that misses; here it is kept, and the owner knows for certain."""
    node = Searching()
    node.knows("H")
    node.publish(x=5)
    assert node.transcript() == text(
        """
        P -> N: walk for x, 1 of 2 left
        N -> P: hit: x at H
        P -> H: visit x, hop 1
        H -> P: moved
        P -> N: x is not at H
        P -> N: walk for x, 0 of 1 left
        N -> P: miss: x
        P -> O: where is x?
        """
    )
    assert node.accepted() == 0
    node.serves("I", EVERYTHING)
    node.answer(found="I")
    assert node.transcript() == text(
        """
        O -> P: at I
        P -> I: visit x, hop 1
        I -> P: accepted
        """
    )
    assert node.accepted() == 1


def test_only_the_owner_says_that_there_are_no_subscribers() -> None:
    node = Searching()
    node.publish(x=5)
    assert node.transcript() == text(
        """
        P -> N: walk for x, 1 of 2 left
        N -> M: walk for x, 0 of 2 left
        M -> P: miss: x
        P -> O: where is x?
        """
    )
    assert node.accepted() == 0
    node.answer()
    assert node.transcript() == "O -> P: no subscribers"
    assert node.accepted() == 1
    node.publish(x=6)
    assert node.transcript() == ""
    assert node.accepted() == 2
