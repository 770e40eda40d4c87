"""C6: virtual nodes are split, moved, merged and uprooted, and each change has two steps."""

from __future__ import annotations

import msgspec
import pytest

from matching import place
from overlay.chord.events import MemberJoined, MemberLeaving, MemberLost, RoleChanged
from overlay.chord.keys import attribute_key
from overlay.client import Event
from overlay.links.messages import BODY_MOST
from overlay.settings import Settings
from overlay.upper_tree.messages import Assign, Assigned, Install, Register, Registered, Unregister
from overlay.upper_tree.state import MapChanged, Uprooted, decode
from tests.support.overlays import settings
from tests.support.tree_net import (
    HostNode,
    OwnerNode,
    TreeNet,
    cluster_of,
    event,
    peer,
    registration,
)

S = peer("s")
SMALL = settings(tree={"split_at": 4})


class Rig:
    """The owner p, match brokers that host, and the subscriber s."""

    def __init__(self, *brokers: str, chosen: Settings = SMALL) -> None:
        self.net = TreeNet()
        self.settings = chosen
        self.subscriber = self.net.node("s")
        self.hosts = {name: HostNode(self.net.node(name), chosen) for name in brokers}
        self.owner = OwnerNode(self.net.node("p"), chosen, cluster_of("p", *brokers))

    def register(self, *selectors: str, first: int = 0) -> None:
        made = tuple(
            registration(f"s/{first + n}", "x", text, S) for n, text in enumerate(selectors)
        )
        self.owner.port.hear(Register(1, made), S)
        self.owner.clusters.commit()
        self.net.flush()

    def settle(self, seconds: float = 5.0) -> None:
        """Time passes in steps; messages arrive at once."""
        for _ in range(int(seconds * 5)):
            self.net.advance(0.2)
            self.owner.clusters.commit()
            self.net.flush()

    def pause(self, kind: type) -> None:
        """Time passes until a message of this kind is on its way; it is not delivered."""
        for _ in range(50):
            self.net.advance(0.2)
            while self.net.busy():
                link = self.net.busy()[0]
                if any(isinstance(message, kind) for message in self.net.links[link]):
                    return
                self.net.deliver(link)
        raise AssertionError(f"no {kind.__name__}")

    @property
    def spread(self) -> list[str]:
        """Hosts of the map's virtual nodes, in order."""
        return [entry.host.id for entry in self.owner.owner.trees["x"].tree.map.entries]

    def serving(self, value: int, name: str = "") -> list[str]:
        """Hosts (or only `name`) that match this value now."""
        return [
            host
            for host, node in self.hosts.items()
            if name in ("", host) and served(node, event(1, x=value)) is not None
        ]

    def members(self, *brokers: str) -> None:
        self.owner.clusters.cluster = cluster_of("p", *brokers)


def served(node: HostNode, what: Event) -> list[str] | None:
    """What the host would match, None if it does not serve the value."""
    tree = node.hosting.trees.get("x")
    spot = place(what.attributes["x"] or 0)
    for virtual in [] if tree is None else tree.virtual_nodes:
        if virtual.interval.lo <= spot < virtual.interval.hi:
            return list(virtual.index.match(what.attributes))
    return None


def ranges(count: int) -> list[str]:
    return [f"x BETWEEN {n * 10} AND {n * 10 + 5}" for n in range(count)]


def test_a_virtual_node_over_the_threshold_is_cut_and_spread() -> None:
    rig = Rig("h1", "h2")
    rig.register(*ranges(4))
    rig.settle()
    assert rig.spread == ["h1"]
    rig.register(*ranges(9)[4:], first=4)
    rig.settle()
    assert sorted(set(rig.spread)) == ["h1", "h2"]
    counts = [
        sum(r.interval.overlaps(e.interval) for r in tree.registrations.values())
        for tree in [rig.owner.owner.trees["x"].tree]
        for e in tree.map.entries
    ]
    assert max(counts) <= 4
    for number in range(9):
        (host,) = rig.serving(number * 10)
        assert served(rig.hosts[host], event(1, x=number * 10)) == [f"s/{number}"]


def test_a_hot_value_is_not_cut() -> None:
    rig = Rig("h1", "h2")
    rig.register(*["x = 7"] * 9)
    rig.settle()
    assert rig.spread == ["h1"]


def test_neighbours_that_have_little_are_merged_again() -> None:
    rig = Rig("h1", "h2", chosen=settings(tree={"split_at": 5}))
    rig.register(*ranges(9))
    rig.settle()
    assert len(rig.spread) >= 2
    rig.owner.port.hear(Unregister("x", tuple(f"s/{n}" for n in range(1, 9))), S)
    rig.settle()
    assert len(rig.spread) == 1
    (host,) = rig.serving(3)
    assert served(rig.hosts[host], event(1, x=3)) == ["s/0"]


def test_a_tree_without_registrations_is_uprooted_after_a_while() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    rig.owner.port.hear(Unregister("x", ("s/0",)), S)
    rig.settle(4.0)
    assert "x" in rig.owner.owner.trees, "a subscriber may come back"
    rig.settle(4.0)
    assert rig.owner.owner.trees == {}
    assert rig.hosts["h1"].hosting.trees == {}
    assert isinstance(decode(rig.owner.clusters.log[-1]), Uprooted)
    assert rig.owner.port.watched["hosts"] == ()


def test_a_tree_that_is_used_again_in_time_stays() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    rig.owner.port.hear(Unregister("x", ("s/0",)), S)
    rig.settle(3.0)
    rig.register("x > 2", first=1)
    rig.settle(10.0)
    assert rig.spread == ["h1"]


# --- two steps ---


def test_the_coming_host_serves_before_the_old_one_stops() -> None:
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    rig.members("h2")
    rig.owner.port.hear(MemberJoined(peer("h2")))
    rig.pause(Assign)
    assert rig.serving(5) == ["h1"]
    rig.net.deliver(("p", "h2"))  # Install
    rig.net.deliver(("p", "h2"))  # Assign
    assert rig.serving(5) == ["h1", "h2"], "prepared, not committed"
    assert rig.spread == ["h1"], "the map is not changed yet"
    rig.net.flush()
    assert rig.serving(5) == ["h2"]
    assert rig.spread == ["h2"]


def test_registrations_during_a_change_wait_for_the_hosts_of_both_maps() -> None:
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    rig.subscriber.add()  # hears nothing, only collects
    rig.members("h2")
    rig.owner.port.hear(MemberJoined(peer("h2")))
    rig.pause(Assign)
    rig.owner.port.take(Registered)
    rig.owner.port.take(Install)
    rig.owner.port.hear(Register(1, (registration("s/9", "x", "x > 2", S),)), S)
    rig.owner.clusters.commit()
    assert [to for to, _ in rig.owner.port.sent_to(Install)] == ["h1", "h2"]
    for link in (("p", "h2"),) * 3 + (("p", "h1"),):
        rig.net.deliver(link)
    assert rig.owner.port.take(Registered) == []
    rig.net.flush()
    assert [m.ids for m in rig.owner.port.take(Registered)] == [("s/9",)]
    assert served(rig.hosts["h2"], event(1, x=5)) == ["s/0", "s/9"]


def test_one_change_at_a_time() -> None:
    rig = Rig("h1", "h2", "h3")
    rig.register("x > 1")
    rig.members("h2")
    rig.owner.port.hear(MemberJoined(peer("h2")))
    rig.pause(Assign)
    rig.members("h3")
    before = len(rig.owner.clusters.log)
    rig.net.advance(5)  # the host h2 is slow
    assert len(rig.owner.clusters.log) == before
    rig.settle()
    assert rig.spread == ["h3"]


def test_an_answer_to_an_older_change_does_not_count() -> None:
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    old = rig.owner.owner.trees["x"].tree.map.version
    rig.members("h2")
    rig.owner.port.hear(MemberJoined(peer("h2")))
    rig.pause(Assign)
    rig.owner.port.hear(Assigned("x", old), peer("h2"))
    assert rig.spread == ["h1"]


def test_a_change_whose_host_is_lost_is_given_up_and_tried_elsewhere() -> None:
    rig = Rig("h1", "h2", "h3")
    rig.register("x > 1")
    rig.members("h2", "h3")
    rig.owner.port.hear(MemberJoined(peer("h2")))
    rig.pause(Assign)
    rig.net.cut("p", "h2")
    assert rig.spread == ["h1"]
    rig.settle()
    assert rig.spread == ["h3"]
    assert rig.serving(5) == ["h3"]
    assert all(isinstance(decode(e), MapChanged) for e in rig.owner.clusters.log[2:])


def test_a_host_that_prepared_in_vain_stops_when_it_is_back() -> None:
    rig = Rig("h1", "h2", "h3")
    rig.register("x > 1")
    rig.members("h2", "h3")
    rig.owner.port.hear(MemberJoined(peer("h2")))
    rig.pause(Assign)
    rig.net.deliver(("p", "h2"))
    rig.net.deliver(("p", "h2"))
    rig.net.cut("p", "h2")  # its answer is lost
    rig.settle()
    assert rig.serving(5) == ["h2", "h3"], "out of reach"
    rig.net.join("p", "h2")
    rig.settle()
    assert rig.serving(5) == ["h3"]


def test_long_selectors_move_in_messages_that_a_frame_can_carry() -> None:
    rig = Rig("h1", "h2", chosen=Settings())
    rig.register(*(f"x > {n} AND y <> '{'a' * 8_000}'" for n in range(200)))
    rig.members("h2")
    rig.owner.port.hear(MemberJoined(peer("h2")))
    rig.owner.port.take(Install)
    rig.settle()
    sizes = [len(msgspec.msgpack.encode(m)) for m in rig.owner.port.take(Install)]
    assert sum(sizes) > BODY_MOST > max(sizes)
    assert rig.spread == ["h2"]
    assert len(rig.hosts["h2"].hosting.trees["x"].registrations) == 200


# --- lost and leaving hosts ---


def test_virtual_nodes_of_a_lost_host_move() -> None:
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    rig.net.cut("p", "h1")
    rig.members("h2")
    rig.owner.port.hear(MemberLost(peer("h1")))
    rig.settle()
    assert rig.spread == ["h2"]
    assert rig.serving(5, "h2") == ["h2"]


def test_an_install_that_was_lost_with_the_link_is_sent_again() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    rig.owner.port.hear(Register(1, (registration("s/9", "x", "x > 2", S),)), S)
    rig.owner.clusters.commit()
    rig.net.cut("p", "h1")
    rig.net.join("p", "h1")
    rig.owner.port.take(Registered)
    rig.settle()
    assert [m.ids for m in rig.owner.port.take(Registered)] == [("s/9",)]
    assert served(rig.hosts["h1"], event(1, x=5)) == ["s/0", "s/9"]


def test_a_restarted_host_is_given_everything_anew() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    rig.net.cut("p", "h1")
    rig.hosts["h1"] = HostNode(rig.net.node("h1"), rig.settings)
    rig.net.join("p", "h1")
    assert rig.serving(5) == []
    rig.settle()
    assert served(rig.hosts["h1"], event(1, x=5)) == ["s/0"]


def test_what_ended_while_a_host_was_cut_off_is_gone_when_it_is_back() -> None:
    rig = Rig("h1")
    rig.register("x > 1", "x > 2")
    rig.net.cut("p", "h1")
    rig.owner.port.hear(Unregister("x", ("s/0",)), S)
    rig.net.flush()
    rig.net.join("p", "h1")
    rig.settle()
    assert served(rig.hosts["h1"], event(1, x=5)) == ["s/1"]


@pytest.mark.parametrize("who", ["h1", "idle"])
def test_a_leaving_member_is_released_when_it_hosts_nothing(who: str) -> None:
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    rig.owner.port.hear(MemberLeaving(peer(who)))
    rig.net.advance(1.0)  # looked at, but no host has answered yet
    assert rig.owner.clusters.released == ([] if who == "h1" else ["idle"])
    rig.settle()
    assert rig.owner.clusters.released == [who]
    assert rig.spread == (["h2"] if who == "h1" else ["h1"])


def test_a_small_cluster_hosts_at_its_standby_or_at_its_primary() -> None:
    rig = Rig("h1")
    rig.owner.clusters.cluster = cluster_of("p", standby="h1")
    rig.register("x > 1")
    assert rig.spread == ["h1"]
    rig.owner.clusters.cluster = cluster_of("p")
    rig.owner.port.hear(MemberLost(peer("h1")))
    rig.settle()
    assert rig.spread == ["p"]
    assert rig.owner.hosting.trees["x"].virtual_nodes


# --- the cluster as a whole ---


@pytest.mark.parametrize(
    ("chosen", "asked"),
    [
        (settings(cluster={"split_trees": 4}), False),
        (settings(cluster={"split_trees": 3}), True),
        (settings(cluster={"split_registrations": 3}), True),
    ],
)
def test_a_cluster_with_too_much_asks_for_a_split_in_the_middle_of_its_trees(
    chosen: Settings, asked: bool
) -> None:
    rig = Rig("h1", chosen=chosen)
    names = ["a", "b", "c", "d"]
    for name in names:
        made = registration(f"s/{name}", name, f"{name} > 1", S)
        rig.owner.port.hear(Register(1, (made,)), S)
    rig.settle(1.0)
    assert bool(rig.owner.clusters.split_at) is asked
    if asked:
        cluster = rig.owner.clusters.cluster
        assert cluster is not None

        def clockwise(key: str) -> tuple[bool, str]:
            return (key <= cluster.start, key)

        in_order = sorted((attribute_key(name) for name in names), key=clockwise)
        assert rig.owner.clusters.split_at[0] == in_order[1], "two trees go, two stay"


def test_a_node_that_leads_no_more_changes_nothing() -> None:
    rig = Rig("h1", "h2")
    rig.register(*ranges(9))
    rig.owner.clusters.cluster = cluster_of("q", "h1", "h2", version=(2, 1))
    rig.owner.port.hear(RoleChanged(rig.owner.clusters.cluster, "none"))
    before = len(rig.owner.clusters.log)
    rig.settle()
    assert len(rig.owner.clusters.log) == before
