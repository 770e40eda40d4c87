"""Relaying: what goes by other nodes, by which, and what is refused (P3)."""

from __future__ import annotations

import pickle

import pytest

from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected, LinkUp, SessionEnd
from overlay.lower_random.constants import RELAY_CHECK, RELAY_FOR, RELAYED_IN_VAIN
from overlay.lower_random.events import ReachedByRelay
from overlay.lower_random.messages import Relayed, Shuffle
from overlay.lower_random.relaying import Relaying, RelayPorts
from overlay.machine import Message, Peer, ProtocolError
from overlay.upper_tree.messages import AskTree, Install, Renewed, TreeAnswer, Unregister
from tests.support.world import World, WorldNode, peer

UNREGISTER = Unregister("x", ("a",))


class Rig:
    """A node "me" that is connected to some, with what it dispatches and hurries."""

    def __init__(self, *others: str) -> None:
        self.world = World(1)
        self.port: WorldNode = self.world.node("me")
        self.connected = set(others)
        self.dispatched: list[tuple[str, Message]] = []
        self.hurried: list[str] = []
        self.relaying = Relaying(
            self.port,
            RelayPorts(
                lambda: [peer(name) for name in others],
                lambda node: node in self.connected,
                self.hurried.append,
                pickle.dumps,
                pickle.loads,
                self.dispatch,
            ),
        )
        self.port.add(self.relaying)

    def dispatch(self, origin: Peer, message: Message) -> None:
        self.dispatched.append((origin.id, message))
        if message == UNREGISTER:
            raise ProtocolError("refused")

    def suspect(self, node: str, *messages: Message) -> list[tuple[str, Relayed]]:
        """What is sent when the link to `node` is silent and these wait there."""
        before = len(self.port.sent)
        self.relaying.on_link_suspected(LinkSuspected(peer(node), messages))
        sent = self.port.sent[before:]
        return [(to.id, message) for to, message in sent if isinstance(message, Relayed)]

    def envelope(self, origin: str, *messages: Message, number: int = 1, to: str = "me") -> Relayed:
        return Relayed(peer(origin), peer(to), number, pickle.dumps(list(messages)), 0)


def test_what_may_be_relayed_goes_by_two_connected_relays() -> None:
    rig = Rig("a", "b", "c", "q")
    rig.connected.discard("b")
    sent = rig.suspect("q", AskTree(("x",)), Shuffle((), (), ()), Renewed(3))
    assert {to for to, _ in sent} == {"a", "c"}, "not by q itself, nor by a node that is dialled"
    carried = [pickle.loads(message.body) for to, message in sent if to == "a"]
    assert carried == [[AskTree(("x",))], [Renewed(3)]], "a shuffle waits for the link"
    assert [message.number for to, message in sent if to == "a"] == [1, 2]
    assert rig.port.counts["messages_relayed"] == 2


def test_silent_and_lost_nodes_are_no_relays() -> None:
    rig = Rig("a", "b", "c")
    rig.suspect("a")
    rig.relaying.on_link_down(LinkDown(peer("b"), "silent", False))
    assert {to for to, _ in rig.suspect("q", Renewed(1))} == {"c"}
    rig.relaying.on_link_recovered(LinkRecovered(peer("a")))
    rig.relaying.on_link_up(LinkUp(peer("b"), True))
    assert len({to for n in range(9) for to, _ in rig.suspect("q", Renewed(n))}) == 3


def test_the_relay_that_brought_something_is_used_as_long_as_it_is_fit() -> None:
    rig = Rig("a", "b", "c")
    rig.relaying.on_relayed(peer("b"), rig.envelope("q", Renewed(1)))
    assert [to for to, _ in rig.suspect("q", Renewed(2))] == ["b"]
    rig.suspect("b")
    assert {to for to, _ in rig.suspect("q", Renewed(3))} == {"a", "c"}


def test_what_comes_by_two_relays_is_taken_once_as_from_its_origin() -> None:
    rig = Rig("a", "b")
    rig.relaying.on_relayed(peer("a"), rig.envelope("q", Renewed(1)))
    rig.relaying.on_relayed(peer("b"), rig.envelope("q", Renewed(1)))
    rig.relaying.on_relayed(peer("b"), rig.envelope("q", Renewed(2), number=2))
    assert rig.dispatched == [("q", Renewed(1)), ("q", Renewed(2))]
    assert ReachedByRelay(peer("q")) in rig.port.emitted


def test_a_relay_passes_on_what_its_sender_says_itself_and_nothing_else() -> None:
    rig = Rig("a")
    envelope = rig.envelope("p", Renewed(1), to="q")
    rig.relaying.on_relayed(peer("p"), envelope)
    assert rig.port.sent[-1] == (peer("q"), envelope)
    assert rig.dispatched == []
    with pytest.raises(ProtocolError, match="for another node"):
        rig.relaying.on_relayed(peer("x"), envelope)


def test_messages_that_need_their_order_are_refused() -> None:
    rig = Rig("a")
    install = Install("x", 1, ())
    with pytest.raises(ProtocolError, match="Install cannot be relayed"):
        rig.relaying.on_relayed(peer("a"), rig.envelope("q", install))
    assert rig.dispatched == []


def test_a_fault_of_the_origin_is_not_the_relays() -> None:
    rig = Rig("a")
    rig.relaying.on_relayed(peer("a"), rig.envelope("q", UNREGISTER))
    assert rig.port.counts["relayed_refused"] == 1


def test_nothing_that_may_be_cached_comes_by_a_relay() -> None:
    rig = Rig("a")
    answer = TreeAnswer((), ("x",), 10.0, 7, (), 3)
    rig.relaying.on_relayed(peer("a"), rig.envelope("q", answer))
    ((_, taken),) = rig.dispatched
    assert taken == TreeAnswer((), ("x",), 0.0, 7, (), 3)


def test_answers_to_a_silent_link_are_hurried_until_it_recovers() -> None:
    rig = Rig("a")
    rig.relaying.on_relayed(peer("a"), rig.envelope("q", Renewed(1)))
    rig.world.run(3.5 * RELAY_CHECK)
    assert rig.hurried == ["q"] * 3
    rig.relaying.on_link_recovered(LinkRecovered(peer("q")))
    rig.world.run(1.0)
    assert rig.hurried == ["q"] * 3


def test_a_silent_link_that_nothing_is_relayed_for_is_forgotten() -> None:
    rig = Rig("a")
    rig.relaying.on_relayed(peer("a"), rig.envelope("q", Renewed(1)))
    rig.world.run(RELAY_FOR + 1.0)
    hurried = len(rig.hurried)
    rig.world.run(5.0)
    assert len(rig.hurried) == hurried > 0


@pytest.mark.parametrize("end", [SessionEnd.GONE, SessionEnd.RESET])
def test_a_node_that_has_gone_or_is_reached_is_not_taken_for_silent(end: SessionEnd) -> None:
    rig = Rig("a")
    rig.relaying.on_relayed(peer("a"), rig.envelope("q", Renewed(1)))
    rig.relaying.on_link_down(LinkDown(peer("q"), "refused", False, end=end))
    rig.world.run(1.0)
    assert rig.hurried == []


def test_a_node_from_which_nothing_comes_back_is_given_up_until_its_link_recovers() -> None:
    rig = Rig("a", "b")
    for number in range(RELAYED_IN_VAIN):
        assert rig.suspect("q", Renewed(number))
    assert rig.suspect("q", Renewed(0)) == []
    assert rig.suspect("other", Renewed(0)) != []
    rig.relaying.on_link_recovered(LinkRecovered(peer("q")))
    assert rig.suspect("q", Renewed(0)) != []


def test_a_node_that_answers_by_a_relay_is_never_given_up() -> None:
    rig = Rig("a", "b")
    for number in range(2 * RELAYED_IN_VAIN):
        assert rig.suspect("q", Renewed(number))
        if number % 100 == 0:
            rig.relaying.on_relayed(peer("a"), rig.envelope("q", Renewed(1), number=number))
