"""M1 in the machines: an event crosses a border once, whoever is behind it and whoever dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.overlays import settings
from matching import EVERYTHING
from overlay.client import Event
from overlay.links.events import LinkSuspected
from overlay.machine import Message, Peer
from overlay.regions import entered
from overlay.settings import Settings
from overlay.upper_tree.delivery.delegation import Delegation
from overlay.upper_tree.delivery.fan_out import Recipient, share_out
from overlay.upper_tree.delivery.hold import AccessNodes
from overlay.upper_tree.messages import Deliver, Undelivered, Visit
from tests.support.trees import HostNode, event, registration
from tests.support.world import World, one_node, peer
from tests.upper_tree.delivery.delivering import make_holding
from tests.upper_tree.delivery.test_tree_delegation import Interested
from tests.upper_tree.host.test_tree_hosting import assign, install

SIXTEEN = settings()
TWO = settings(tree={"fan_out": 2})
Places = Mapping[str, tuple[str, int]]


class Regions:
    """A host h in `us` that serves x, and nodes in their places (region, tier), each of which
    wants `x > 0` unless it is in `others`."""

    def __init__(
        self, places: Places, chosen: Settings = SIXTEEN, others: tuple[str, ...] = ()
    ) -> None:
        self.net = World()
        self.places = {"h": ("us", 0), **places}
        self.host = HostNode(self.net.node("h", region="us"), chosen).lease()
        hosting = self.host.hosting
        self.relays = hosting.holding.relays
        self.delegation = Delegation(self.host.port, hosting.copies, hosting.holding)
        self.host.port.add(self.delegation)
        self.nodes = {
            name: Interested(self.net.node(name, region=region, tier=tier), chosen)
            for name, (region, tier) in places.items()
        }
        self.wanting = [name for name in places if name not in others]
        assign(self.host, EVERYTHING)
        for name in self.wanting:
            install(self.host, registration(f"{name}/0", "x", "x > 0", self.peer(name)))
        self.net.run(0.1)  # much is installed a piece at a time
        self.net.flush()

    def peer(self, name: str) -> Peer:
        return Peer(name, peer(name).address, *self.places[name])

    def publish(self, *events: Event) -> None:
        self.host.port.hear(Visit(peer("pub"), 1, ("x",), events), peer("pub"))

    def crossings(self) -> Counter[str]:
        """By the border that they cross (``eu+`` to what is in no part of eu, from one of these):
        copies of events, whoever sent them."""
        found: Counter[str] = Counter()
        for sender, receiver, message in self.net.sent:
            if isinstance(message, Deliver):
                here, there = self.places[sender][0], self.places[receiver][0]
                border = entered(here, there)
                found[border + "+" * here.startswith(f"{border}/")] += len(message.events)
        del found[""]
        return found

    def entries(self, border: str) -> list[str]:
        """The nodes by which events entered a region, in order."""
        return [
            receiver
            for sender, receiver, message in self.net.sent
            if isinstance(message, Deliver)
            and entered(self.places[sender][0], self.places[receiver][0]) == border
        ]

    def missing(self) -> dict[str, list[int]]:
        """What came to nodes that did not get exactly the event 1."""
        found = {name: self.nodes[name].events for name in self.wanting if name in self.net.nodes}
        return {name: events for name, events in found.items() if events != [1]}


def everywhere(regions: int, each: int) -> dict[str, tuple[str, int]]:
    """`each` nodes in every one of so many regions beside the host's, and in its own."""
    names = ["us", *(f"r{number}" for number in range(regions))]
    return {f"{name}.{n}": (name, 0) for name in names for n in range(each)}


@pytest.mark.parametrize(("regions", "each"), [(1, 2), (4, 7), (4, 40), (20, 3)])
def test_an_event_crosses_once_into_each_interested_region(regions: int, each: int) -> None:
    rig = Regions(everywhere(regions, each))
    rig.publish(event(1, x=5))
    rig.net.flush()
    assert not rig.missing()
    assert rig.crossings() == {f"r{number}": 1 for number in range(regions)}


def test_a_region_without_interest_is_not_entered() -> None:
    rig = Regions(everywhere(2, 3), others=("r0.0", "r0.1", "r0.2"))
    rig.publish(event(1, x=5))
    rig.net.flush()
    assert rig.crossings() == {"r1": 1}


@pytest.mark.parametrize("chosen", [TWO, settings(tree={"fan_out": 1})])
def test_with_more_regions_than_copies_each_is_still_entered_once(chosen: Settings) -> None:
    rig = Regions(everywhere(9, 3), chosen)
    rig.publish(event(1, x=5))
    rig.net.flush()
    assert not rig.missing()
    assert rig.crossings() == {f"r{number}": 1 for number in range(9)}
    copies = Counter(sender for sender, _, m in rig.net.sent if isinstance(m, Deliver))
    assert max(copies.values()) <= chosen.tree.fan_out


def test_nodes_without_a_region_are_sent_to_one_by_one() -> None:
    rig = Regions({f"s{n}": ("", 0) for n in range(5)})
    rig.publish(event(1, x=5))
    assert [to for to, m in rig.host.port.sent_to(Deliver) if not m.onward] == list(rig.nodes)


def test_each_level_of_a_path_is_entered_once_on_the_way_down() -> None:
    """Tandem levels: into eu once, from there once into each land, and there into each town."""
    places = {
        f"{region}.{n}": (region, 0)
        for region in ("eu/de/b", "eu/de/m", "eu/fr/p", "eu/fr/l", "eu", "us", "as/jp/t")
        for n in range(4)
    }
    rig = Regions(places)
    rig.publish(event(1, x=5))
    rig.net.flush()
    assert not rig.missing()
    found = rig.crossings()
    assert (found["eu"], found["as"]) == (1, 1)
    inside = {"eu+", "eu/de", "eu/fr", "eu/de/b", "eu/de/m", "eu/fr/p", "eu/fr/l"}
    assert set(found) <= {"eu", "as", *inside}
    assert max(found.values()) == 1, found


def test_what_enters_a_region_enters_it_at_its_highest_tier() -> None:
    places = {**everywhere(1, 6), "r0.gate": ("r0", 2), "r0.lower": ("r0", 1)}
    rig = Regions(places)
    rig.publish(event(1, x=5))
    rig.net.flush()
    assert rig.entries("r0") == ["r0.gate"]
    assert not rig.missing()


def test_nodes_of_a_higher_tier_pass_on_before_others() -> None:
    places = {f"us.{n}": ("us", 1 if n in (3, 11) else 0) for n in range(20)}
    rig = Regions(places, TWO)
    rig.publish(event(1, x=5))
    first = [to for to, message in rig.host.port.sent_to(Deliver) if message.onward]
    assert sorted(first) == ["us.11", "us.3"]


def test_an_access_node_with_a_tier_need_not_want_the_event() -> None:
    rig = Regions({**everywhere(1, 3), "gate": ("r0", 1)}, others=("gate",))
    rig.relays.tiered = lambda: (rig.peer("gate"),)
    rig.publish(event(1, x=5))
    rig.net.flush()
    assert rig.entries("r0") == ["gate"]
    assert not rig.missing()


def test_the_access_node_is_the_same_for_all_events_of_a_host() -> None:
    rig = Regions(everywhere(2, 30))
    for number in range(1, 200):
        rig.publish(event(number, publisher=f"p{number % 7}", x=5))
        rig.net.flush()
    assert len(set(rig.entries("r0"))) == len(set(rig.entries("r1"))) == 1


def test_hosts_have_access_nodes_of_their_own() -> None:
    """So that no node works for all hosts."""
    some = [Recipient(Peer(f"n{n}", "", "eu"), "x", EVERYTHING) for n in range(8)]
    chosen: Counter[str] = Counter()
    for number in range(200):
        port = one_node(f"host{number}")
        ((access, _),) = AccessNodes(port, make_holding(port).relays).divide(some)[1]
        chosen[access.peer.id] += 1
    assert len(chosen) == 8
    assert max(chosen.values()) < 60


@pytest.mark.parametrize("took", [False, True])
def test_when_the_access_node_dies_no_other_node_loses_anything(took: bool) -> None:
    rig = Regions(everywhere(2, 8))
    rig.publish(event(1, x=5))
    (dead,) = rig.entries("r0")
    if took:  # it had the event, and dies with what it was to pass on still unsent
        rig.net.held[dead] = None
        rig.net.flush()
    del rig.net.nodes[dead]
    rig.net.cut("h", dead)
    rig.net.held.clear()
    rig.net.flush()
    assert not rig.missing()
    assert rig.crossings()["r0"] <= 3, "to the dead one, to another, and what is tried for the dead"


def test_while_access_nodes_are_silent_more_are_tried_at_once() -> None:
    """A region that is cut off is found out in some steps, not one node after the other."""
    rig = Regions({f"r0.{n}": ("r0", 0) for n in range(16)})
    rig.places["relay"] = ("us", 0)
    rig.relays.others = lambda: (rig.peer("relay"),)
    rig.publish(event(1, x=5))
    silent: list[str] = []
    steps: list[int] = []
    while len(silent) < 16:
        new = [name for name in dict.fromkeys(rig.entries("r0")) if name not in silent]
        steps.append(len(new))
        silent += new
        for name in new:
            rig.host.port.hear(LinkSuspected(rig.peer(name), tuple(rig.net.links["h", name])))
    assert len(steps) <= 5, steps


def test_a_relay_adds_no_border_to_the_way() -> None:
    """What one lost frame brings about stays in its region."""
    rig = Regions({"us.0": ("us", 0), "us.1": ("us", 0), "eu.0": ("eu", 0), "as.0": ("as", 0)})
    rig.relays.others = lambda: tuple(map(rig.peer, ("eu.0", "as.0", "us.1", "us.0")))
    for _ in range(20):
        near = rig.relays.relay("us.0", "us")
        assert near is not None
        assert near.id == "us.1"
        far = rig.relays.relay("eu.0", "eu")
        assert far is not None
        assert far.region == "us", "as.0 would be one border more"
    rig.net.cut("h", "us.1")
    only = rig.relays.relay("us.0", "us")
    assert only is not None
    assert only.region != "us", "rather than none"


@pytest.mark.parametrize("relay_fails", [False, True])
def test_what_a_delegate_cannot_bring_stays_behind_the_border(relay_fails: bool) -> None:
    """A frame that is lost between two nodes of one region concerns no other region, unless a relay
    there cannot help either."""
    rig = Regions({f"eu.{number}": ("eu", 0) for number in range(4)})
    for name, node in rig.nodes.items():
        others = tuple(rig.peer(each) for each in rig.places if each != name)
        node.delegation.relays.others = lambda others=others: others  # type: ignore[misc]
    rig.publish(event(1, x=5))
    (entry,) = rig.entries("eu")
    rig.net.deliver(("h", entry))
    victim = next(name for name in rig.nodes if rig.net.links.get((entry, name)))
    waiting = rig.net.links[entry, victim]
    rig.net.nodes[entry].hear(LinkSuspected(rig.peer(victim), tuple(waiting)))
    waiting.clear()
    if relay_fails:
        (relay,) = [to for one, to, m in rig.net.sent if one == entry and is_for(m, victim)]
        rig.net.deliver((entry, relay))
        rig.net.deliver((entry, relay))
        rig.net.cut(relay, victim)
    rig.net.flush()
    assert not rig.missing()
    back = [m for _, to, m in rig.net.sent if isinstance(m, Undelivered) and to == "h"]
    assert len(back) == relay_fails
    assert rig.crossings() == {"eu": 1 + relay_fails}


def is_for(message: Message, name: str) -> bool:
    """Whether this is a delivery whose receiver is to pass it on to this node only."""
    return isinstance(message, Deliver) and any(
        [peer.id for share in shares for peer in share.peers] == [name] for shares in message.onward
    )


def test_where_a_near_relay_has_failed_one_in_a_third_region_is_tried() -> None:
    """The links between two regions may be broken, and those over a third not."""
    rig = Regions({"us.0": ("us", 0), "eu.0": ("eu", 0), "as.0": ("as", 0)})
    rig.relays.others = lambda: tuple(map(rig.peer, ("us.0", "as.0")))
    rig.net.cut("h", "eu.0")
    rig.relays.gave_back("eu.0", "us.0")
    other = rig.relays.relay("eu.0", "eu")
    assert other is not None
    assert other.id == "as.0"


@given(st.integers(0, 60), st.lists(st.integers(0, 9), max_size=30), st.integers(1, 17))
def test_shares_hold_each_recipient_once_and_never_send_near_work_across(
    near: int, far: list[int], most: int
) -> None:
    crossings = [(f"a{n}", tuple(f"a{n}.{m}" for m in range(size))) for n, size in enumerate(far)]
    parts = share_out([f"n{n}" for n in range(near)], crossings, most)
    assert len(parts) <= most
    found = sorted(name for each, share in parts for name in (each, *share))
    wanted = [f"n{n}" for n in range(near)]
    wanted += [name for access, share in crossings for name in (access, *share)]
    assert found == sorted(wanted)
    for each, share in parts:
        if each.startswith("a"):
            assert not any(name.startswith("n") for name in share)
        by_region = Counter(name.partition(".")[0] for name in (each, *share) if name[0] == "a")
        assert all(count == 1 + far[int(region[1:])] for region, count in by_region.items())
