"""C11 in the machines: hosts and delegates bring an event to all, whatever link breaks."""

from __future__ import annotations

import pytest

from canopy.wire.transport.codec import WireCodec
from harness.overlays import settings
from matching import EVERYTHING, compile_selector
from overlay.client import Event
from overlay.links.events import LinkDown, LinkUp, SessionEnd
from overlay.links.messages import MAX_BODY
from overlay.machine import Peer, ProtocolError
from overlay.settings import Settings
from overlay.upper_tree.delivery import deliveries as leaving
from overlay.upper_tree.delivery import relays
from overlay.upper_tree.delivery.delegation import Delegation
from overlay.upper_tree.delivery.deliveries import Deliveries
from overlay.upper_tree.delivery.fan_out import CopyBudget, Recipient
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.messages import DelegateShare, Deliver, Undelivered, Visit
from overlay.upper_tree.subscriber.receiver import Receiver
from tests.support.trees import HostNode, event, registration
from tests.support.world import World, WorldNode, one_node, peer
from tests.upper_tree.delivery.delivering import make_delegation, make_holding
from tests.upper_tree.host.test_tree_hosting import assign, install

TWO = settings(tree={"fan_out": 2})


class Interested:
    """A node with a receiver and its part as a delegate; `events` are those that came."""

    def __init__(self, port: WorldNode, chosen: Settings = TWO) -> None:
        self.port = port
        self.receiver = made_receiver(port, chosen)
        self.delegation = make_delegation(port, chosen)
        port.add(self.receiver, self.delegation, self.delegation.holding)

    @property
    def events(self) -> list[int]:
        return seen(self.receiver)


def made_receiver(port: WorldNode, chosen: Settings) -> Receiver:
    """One with a subscription to all events: what nobody wants does not count as seen."""
    receiver = Receiver(port, chosen, EventHistory(10))
    receiver.add("all", compile_selector("x IS NOT NULL OR y IS NOT NULL"), {"all/0": 1})
    return receiver


def seen(receiver: Receiver) -> list[int]:
    """Sequences of the events that came."""
    return [number for some in receiver.seen._counts.values() for number in some]


class Rig:
    """A host h that serves x, with registrations `x > 0` of nodes s0, s1 …"""

    def __init__(self, count: int, chosen: Settings = TWO) -> None:
        self.net = World()
        self.host = HostNode(self.net.node("h"), chosen).lease()
        hosting = self.host.hosting
        self.delegation = Delegation(self.host.port, hosting.copies, hosting.holding)
        self.host.port.add(self.delegation)
        self.nodes = [Interested(self.net.node(f"s{n}"), chosen) for n in range(count)]
        assign(self.host, EVERYTHING)
        for number in range(count):
            install(self.host, registration(f"{number}/0", "x", "x > 0", peer(f"s{number}")))
        self.net.flush()

    def publish(self, *events: Event) -> None:
        self.host.port.hear(Visit(peer("pub"), 1, ("x",), events), peer("pub"))

    def delegates(self) -> dict[str, list[str]]:
        """Whom the host has sent the event to, with their shares of the others."""
        return {
            to.id: [p.id for onward in message.onward for share in onward for p in share.peers]
            for to, message in self.host.port.sent
            if isinstance(message, Deliver) and message.onward
        }

    def reached(self) -> list[list[int]]:
        return [node.events for node in self.nodes]

    def copies(self) -> list[int]:
        """Per node, host first, how many copies of events it sent to another one."""
        ports = [self.host.port, *(node.port for node in self.nodes)]
        return [
            sum(len(m.events) for to, m in port.sent if isinstance(m, Deliver) and to != port.me)
            for port in ports
        ]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_all_are_reached_and_no_node_sends_more_than_the_fan_out(count: int) -> None:
    rig = Rig(count)
    rig.publish(event(1, x=5))
    rig.net.flush()
    assert rig.reached() == [[1]] * count
    assert max(rig.copies()) <= 2
    assert sum(rig.copies()) == count, "one message per interested node"


def test_hops_are_counted_along_the_delegates() -> None:
    rig = Rig(7)
    rig.publish(event(1, x=5))
    rig.net.flush()
    hops = sorted(t["hop"] for n in rig.nodes for t in n.port.traced("arrive"))
    assert hops == [2, 2, 3, 3, 3, 3, 4]


def test_events_of_one_visit_travel_together_through_a_delegate() -> None:
    rig = Rig(6)
    rig.publish(event(1, x=5), event(2, x=6))
    rig.net.flush()
    assert rig.reached() == [[1, 2]] * 6
    messages = [m for port in rig.net.nodes.values() for _, m in port.sent]
    assert sum(isinstance(m, Deliver) for m in messages) == 6


def test_a_host_that_is_interested_itself_needs_no_message_for_it() -> None:
    rig = Rig(4)
    receiver = made_receiver(rig.host.port, TWO)
    rig.host.port.add(receiver)
    install(rig.host, registration("me/0", "x", "x > 0", peer("h")))
    rig.publish(event(1, x=5))
    rig.net.flush()
    assert seen(receiver) == [1]
    assert rig.reached() == [[1]] * 4
    assert sum(rig.copies()) == 4


def test_the_trees_of_one_host_share_one_fan_out() -> None:
    node = HostNode(one_node("h"), TWO).lease()
    for attribute in ("x", "y"):
        assign(node, EVERYTHING, attribute=attribute)
        for number in range(2):
            who = peer(f"{attribute}{number}")
            install(node, registration(f"{number}/0", attribute, f"{attribute} > 0", who))
    node.port.hear(Visit(peer("pub"), 1, ("x", "y"), (event(1, x=5, y=5),)), peer("pub"))
    sent = node.port.sent_to(Deliver)
    assert len(sent) == 2
    shares = [share for _, m in sent for each in m.onward for share in each]
    found = [(m.attribute, to) for to, m in sent] + [(s.attribute, p.id) for s in shares
                                                     for p in s.peers]  # fmt: skip
    assert sorted(found) == [("x", "x0"), ("x", "x1"), ("y", "y0"), ("y", "y1")]


def test_counting_sends_to_all_recipients_itself_as_the_paper_has_it() -> None:
    rig = Rig(5, settings(tree={"fan_out": 2, "routing": "counting"}))
    rig.publish(event(1, x=5))
    assert sum(rig.copies()) == rig.copies()[0] == 5


def test_delegates_take_turns() -> None:
    rig = Rig(8)
    for number in range(100):
        rig.publish(event(number, publisher=f"p{number}", x=5))
    rig.net.run(0.1)
    rig.net.flush()
    assert all(len(events) == 100 for events in rig.reached())
    copies = rig.copies()
    assert copies[0] == 200  # the host: two per event, and 600 are left for the eight
    assert 30 < min(copies[1:]) <= max(copies[1:]) < 150


@pytest.mark.parametrize("place", range(2))
def test_a_delegate_that_is_lost_before_it_has_the_event_delays_no_other_recipient(
    place: int,
) -> None:
    rig = Rig(9)
    rig.publish(event(1, x=5))
    lost = list(rig.delegates())[place]
    rest = [node for node in rig.nodes if node.port.me.id != lost]
    del rig.net.nodes[lost]
    rig.net.cut("h", lost)
    rig.net.flush()
    assert [node.events for node in rest] == [[1]] * 8
    assert max(rig.copies()) <= 5  # the fan-out, once more to the lost one, and twice for its share


def test_what_a_delegate_cannot_deliver_the_host_does() -> None:
    rig = Rig(3)
    rig.publish(event(1, x=5))
    ((delegate, (other,)),) = rig.delegates().items()
    rig.net.deliver(("h", delegate))
    rig.net.cut(delegate, other)
    rig.net.flush()
    assert rig.reached() == [[1]] * 3
    assert rig.host.port.counts["deliveries_given_back"] == 1


def test_a_node_that_left_is_not_tried_again() -> None:
    rig = Rig(3)
    rig.publish(event(1, x=5))
    ((delegate, (other,)),) = rig.delegates().items()
    rig.net.deliver(("h", delegate))
    rig.net.cut(delegate, other, left=True)
    assert rig.net.nodes[delegate].take(Undelivered) == []


def test_what_a_lost_link_did_not_carry_is_sent_again() -> None:
    rig = Rig(2)
    rig.publish(event(1, x=5))
    rig.net.cut("h", "s0")
    rig.net.flush()
    assert rig.reached() == [[1], [1]]
    assert rig.host.port.counts["deliveries_held"] == 1


def test_around_a_broken_link_a_relay_delivers() -> None:
    rig = Rig(2)
    rig.delegation.relays.others = lambda: (peer("s1"),)
    rig.publish(event(1, x=5))
    rig.net.cut("h", "s0")
    assert rig.delegates() == {"s1": ["s0"]}
    rig.net.flush()
    assert rig.reached() == [[1], [1]]
    assert rig.host.port.counts["deliveries_relayed"] == 1


def test_a_node_whose_process_is_gone_is_given_up_at_once() -> None:
    rig = Rig(2)
    rig.delegation.relays.others = lambda: (peer("s1"),)
    rig.publish(event(1, x=5))
    lost = tuple(rig.net.links.pop(("h", "s0")))
    rig.host.port.hear(LinkDown(peer("s0"), "s7 is at s0:1", False, lost, SessionEnd.GONE))
    rig.net.flush()
    assert rig.host.port.counts["deliveries_to_ended"] == 1
    assert "deliveries_lost" not in rig.host.port.counts, "its next process hears of it"


def test_a_link_that_came_up_meanwhile_is_tried_as_long_again() -> None:
    rig = Rig(2)
    port = rig.host.port
    rig.publish(event(1, x=5))
    rig.net.cut("h", "s0")
    port.hear(LinkUp(peer("s0"), True))
    port.world.jump(relays.RETRY_FOR)
    rig.net.cut("h", "s0")
    rig.net.flush()
    assert rig.reached() == [[1], [1]]


def test_a_delegate_passes_on_what_it_has_seen_before() -> None:
    node = Interested(one_node("me"))
    node.port.hear(Deliver("x", EVERYTHING, 2, (event(1, x=5),)), peer("h"))
    onward = ((DelegateShare("x", EVERYTHING, (peer("s"),)),),)
    node.port.hear(Deliver("x", EVERYTHING, 2, (event(1, x=5),), (), onward), peer("h"))
    ((to, message),) = node.port.sent_to(Deliver)
    assert (to, message.hop, message.host) == ("s", 3, peer("h"))


def test_shares_that_do_not_fit_the_events_are_refused() -> None:
    node = Interested(one_node("me"))
    with pytest.raises(ProtocolError, match="recipients"):
        node.port.hear(Deliver("x", EVERYTHING, 2, (event(1, x=5),), (), ((), ())), peer("h"))


def test_a_share_too_large_for_one_message_goes_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "SHARE_MOST", 3)
    port = one_node("h")
    deliveries = Deliveries(port, CopyBudget(1), make_holding(port), 1)
    deliveries.spread(event(1), (Recipient(peer(f"s{n}"), "x", EVERYTHING) for n in range(9)))
    deliveries.send()
    sent = port.sent_to(Deliver)
    found = [p.id for _, m in sent for onward in m.onward for s in onward for p in s.peers]
    (delegate,) = {to for to, _ in sent}
    assert sorted([delegate, *found]) == [f"s{n}" for n in range(9)]


def test_the_largest_message_fits_into_a_frame() -> None:
    port = one_node("h")
    deliveries = Deliveries(port, CopyBudget(1), make_holding(port), 1)
    recipients = [
        Recipient(Peer(f"{n:016x}", "h" * 40), "a" * 40, EVERYTHING) for n in range(9_000)
    ]
    for number in range(40):
        deliveries.spread(event(number, text="t" * 50_000), recipients)
    deliveries.send()
    messages = port.take(Deliver)
    assert max(len(WireCodec().encode_one(message)) for message in messages) < MAX_BODY
    assert len(messages) >= 40
