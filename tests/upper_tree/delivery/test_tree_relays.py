"""Around links that are broken or silent, and an end to it where a node is gone (P3)."""

from __future__ import annotations

from harness.overlays import settings
from matching import EVERYTHING
from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected, SessionEnd
from overlay.upper_tree.delivery import constants
from overlay.upper_tree.messages import DelegateShare, Deliver, Undelivered
from tests.support.trees import event
from tests.support.world import peer
from tests.upper_tree.delivery.test_tree_delegation import Rig


def silence(rig: Rig, name: str = "s0", holder: str = "h") -> None:
    """The link from `holder` to this node carries nothing; what waits there is reported."""
    waiting = tuple(rig.net.links.get((holder, name), ()))
    rig.net.nodes[holder].hear(LinkSuspected(peer(name), waiting))


def test_what_waits_on_a_silent_link_goes_through_a_relay_as_well() -> None:
    rig = Rig(2)
    rig.delegation.relays.others = lambda: (peer("s1"),)
    rig.publish(event(1, x=5))
    rig.net.held["s0"] = None
    silence(rig)
    helped = rig.net.links.pop(("h", "s0"))  # held back
    rig.net.held.clear()
    rig.net.flush()
    assert rig.reached() == [[1], [1]]
    rig.net.links["h", "s0"] = helped
    rig.net.cut("h", "s0")
    rig.net.flush()
    assert rig.host.port.counts["deliveries_relayed"] == 1, "the relay has it"
    assert rig.nodes[0].port.counts.get("duplicates") is None


def test_what_comes_back_while_the_link_is_silent_is_still_there() -> None:
    rig = Rig(3)
    rig.delegation.relays.others = lambda: (peer("s1"), peer("s2"))
    rig.publish(event(1, x=5))
    rig.net.held["s0"] = None
    rig.net.flush()
    silence(rig)
    rig.net.flush()
    (relay,) = (name for name, node in rig.net.nodes.items() if name[0] == "s" and node.sent)
    silence(rig, holder=relay)
    rig.net.flush()
    assert rig.host.port.counts["deliveries_given_back"] == 1
    assert len(rig.net.links["h", "s0"]) == 1, "not sent again"
    rig.publish(event(2, x=5))
    silence(rig)
    assert rig.host.port.counts["deliveries_relayed"] == 1, "it is the node that stands still"
    rig.net.cut("h", "s0")
    assert rig.host.port.counts["deliveries_relayed"] == 2, "the oldest, to see if another can"
    assert rig.delegation.holding.held.events == 1, "the other one waits for that"


def test_two_that_help_each_other_for_one_event_do_not_leave_it_to_each_other() -> None:
    rig = Rig(2)
    rig.delegation.relays.others = lambda: (peer("s1"),)
    other = next(node for node in rig.nodes if node.port.me.id == "s1")
    other.delegation.relays.others = lambda: (peer("h"),)
    rig.publish(event(1, x=5))
    rig.net.held["s0"] = None
    rig.net.flush()
    mine = Deliver("y", EVERYTHING, 1, (event(1, x=5),))  # s1 is a host of another tree
    other.port.send(peer("s0"), mine)
    silence(rig)
    silence(rig, holder="s1")
    rig.net.flush()
    for one in ("h", "s1"):
        rig.net.cut(one, "s0")
    rig.net.held.clear()
    rig.net.flush()
    assert rig.reached()[0] == [1]


def test_what_a_delegate_gives_back_survives_the_loss_of_that_link_too() -> None:
    for lost_for_good in (False, True):
        rig = Rig(3)
        rig.publish(event(1, x=5))
        ((delegate, (other,)),) = rig.delegates().items()
        rig.net.deliver(("h", delegate))
        rig.net.cut(delegate, other)
        assert [type(m) for m in rig.net.links[delegate, "h"]] == [Undelivered]
        if lost_for_good:
            lost = tuple(rig.net.links.pop((delegate, "h")))
            gone = LinkDown(peer("h"), "connection refused", False, lost, SessionEnd.GONE)
            rig.net.nodes[delegate].hear(gone)
        else:
            rig.net.cut(delegate, "h")
        rig.net.flush()
        assert rig.reached() == [[1]] * 3


def test_what_came_back_and_came_again_is_not_taken_for_the_first() -> None:
    rig = Rig(2)
    relayed = Deliver(
        "x",
        EVERYTHING,
        2,
        (event(1, x=5),),
        (),
        ((DelegateShare("x", EVERYTHING, (peer("s0"),)),),),
    )
    relay = rig.net.nodes["s1"]
    rig.net.held["s0"] = None
    relay.hear(relayed, peer("h"))
    silence(rig, holder="s1")
    relay.hear(relayed, peer("h"))
    assert len(rig.net.links["s1", "s0"]) == 2
    rig.net.cut("s1", "s0")
    assert len(relay.take(Undelivered)) == 2


def test_a_link_that_is_heard_again_is_used() -> None:
    rig = Rig(2)
    rig.delegation.relays.others = lambda: (peer("s1"),)
    rig.publish(event(1, x=5))
    silence(rig)
    rig.host.port.hear(LinkRecovered(peer("s0")))
    rig.publish(event(2, x=5))
    rig.net.cut("h", "s0")
    rig.net.flush()
    assert rig.reached() == [[1, 2], [1, 2]]
    assert rig.host.port.counts["deliveries_relayed"] == 3


def test_the_share_of_a_silent_delegate_is_spread_again() -> None:
    rig = Rig(3)
    rig.publish(event(1, x=5))
    ((delegate, (other,)),) = rig.delegates().items()
    rig.delegation.relays.others = lambda: (peer(other),)
    rig.net.held[delegate] = None
    silence(rig, delegate)
    rig.net.flush()
    assert [node.events for node in rig.nodes if node.port.me.id != delegate] == [[1], [1]]


def test_a_node_that_begins_again_is_sent_to_directly() -> None:
    rig = Rig(2)
    rig.delegation.relays.others = lambda: (peer("s1"),)
    rig.publish(event(1, x=5))
    lost = tuple(rig.net.links.pop(("h", "s0")))
    rig.host.port.hear(LinkDown(peer("s0"), "it restarted", False, lost, SessionEnd.RESET))
    rig.net.flush()
    assert rig.reached() == [[1], [1]]
    assert rig.host.port.counts["deliveries_sent_again"] == 1


def test_what_no_relay_can_deliver_is_held_and_costs_one_message_at_a_time() -> None:
    rig = Rig(20, settings(tree={"fan_out": 30}))
    rig.delegation.relays.others = lambda: tuple(peer(f"s{n}") for n in range(1, 20))
    del rig.net.nodes["s0"]
    carried = 0
    for number in range(1, 101):
        rig.host.lease()
        rig.publish(event(number, x=5))
        for name in ("h", *rig.net.nodes):
            for waiting in rig.net.links.get((name, "s0"), ()):
                carried += isinstance(waiting, Deliver)
            if rig.net.links.get((name, "s0")):
                rig.net.cut(name, "s0")
        for link in [link for link in rig.net.busy() if link[1] != "s0"]:
            rig.net.deliver(link)
        rig.net.run(0.5)
    holding = rig.delegation.holding
    on_its_way = 100 - holding.held.events
    assert 0 <= on_its_way <= 1, "nothing is lost, and hardly anything goes round"
    most = 50 / constants.HOLD_CHECK + 2 * constants.RELAYS_MOST
    assert carried <= most, "one message a second, whatever is held"
    tried = rig.host.port.counts["deliveries_relayed"]
    assert tried <= constants.RELAYS_MOST * 2, "and few relays are asked"


def test_while_one_relay_reaches_a_node_it_is_not_given_up() -> None:
    rig = Rig(3)
    rig.delegation.relays.others = lambda: (peer("s1"), peer("s2"))
    for number in range(1, 41):
        rig.publish(event(number, x=5))
        while rig.net.busy():
            for name in ("h", "s1"):
                if rig.net.links.get((name, "s0")):
                    rig.net.cut(name, "s0")
            if rig.net.busy():
                rig.net.deliver(rig.net.busy()[0])
        rig.net.run(5.0)
        rig.host.lease()
    assert sorted(rig.nodes[0].events) == list(range(1, 41))
    assert "deliveries_lost" not in rig.host.port.counts
