"""What is for a node out of reach is held within bounds; drops are traced and reported."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.overlays import settings
from matching import EVERYTHING
from overlay.client import Event
from overlay.links.events import (
    TOO_LARGE,
    LinkCongested,
    LinkDown,
    LinkRelieved,
    LinkUp,
    MessageDropped,
    SessionEnd,
)
from overlay.machine import Message, NodeId, Peer, ProtocolError
from overlay.upper_tree.delivery.constants import (
    GIVEN_UP_AT_ONCE,
    HOLD_BACK_MOST,
    HOLD_CHECK,
    NOTICE_ATTRIBUTES,
    NOTICE_DIALLED,
    NOTICE_FOR,
    NOTICE_PAUSE,
    ON_ITS_WAY,
    PIECE_PAUSE,
    RELAY_TRIAL,
)
from overlay.upper_tree.delivery.delegation import Delegation
from overlay.upper_tree.delivery.fan_out import CopyBudget
from overlay.upper_tree.delivery.hold import BOUND, LEASE, HoldDue
from overlay.upper_tree.events import DeliveriesMissed, MatchingInterrupted
from overlay.upper_tree.messages import (
    Deliver,
    DeliveriesGivenUp,
    NoticeHandedOver,
    Undelivered,
)
from tests.support.trees import event
from tests.support.world import one_node, peer
from tests.upper_tree.delivery.delivering import make_holding
from tests.upper_tree.delivery.test_tree_delegation import Interested

S = peer("s")


def message(*numbers: int, host: Peer | None = None) -> Deliver:
    events = tuple(Event("p", 1, number, float(number), {"x": number}) for number in numbers)
    return Deliver("x", EVERYTHING, 1, events, host=host)


class Host:
    """A node that holds for s, whose link is lost."""

    def __init__(self, *others: str, **bounds: int) -> None:
        self.port = one_node("h")
        self.registered = True
        relays = tuple(peer(name) for name in others)
        chosen = settings(tree={"lease": 60.0, **bounds})
        self.holding = make_holding(self.port, chosen, lambda: relays, self)
        self.notices = self.holding.notices
        self.port.add(self.notices, self.holding)

    def has_registrations(self, node: NodeId) -> bool:
        return self.registered

    def life_of(self, node: NodeId) -> int:
        return 0

    def lose(self, *lost: Message, end: SessionEnd = SessionEnd.UNREACHABLE) -> None:
        """The link to s ends; as `Delegation` does, what was on it is put back."""
        if end is SessionEnd.UNREACHABLE:
            self.holding.relays.link_lost("s")
        self.holding.link_lost(S)
        self.port.hear(LinkDown(S, "silent", False, tuple(lost), end))
        mine = [one for one in lost if isinstance(one, Deliver)]
        if end is SessionEnd.GONE:
            self.holding.process_ended(S, mine)
        elif mine:
            self.holding.put_back(S, mine)

    def deliver(self, *numbers: int) -> None:
        for number in numbers:
            self.holding.send(S, message(number))

    def deliver_together(self, *numbers: int) -> None:
        self.holding.send(S, message(*numbers))

    def arrives(self) -> list[int]:
        """Numbers of the events in what was sent to s itself; forgets all that was sent."""
        sent, self.port.sent = self.port.sent, []
        return [
            event.sequence
            for to, one in sent
            if to == S and isinstance(one, Deliver)
            for event in one.events
        ]

    def leave(self) -> list[NoticeHandedOver]:
        """It leaves; returns the notices that it hands over, and forgets all that was sent."""
        self.port.sent.clear()
        self.holding.leave()
        sent = [one for _, one in self.port.sent_to(NoticeHandedOver)]
        self.port.sent.clear()
        return sent

    def reported(self) -> list[tuple[int, str, str]]:
        """What is reported to s: how many deliveries, the first and the last."""
        return [(one.count, one.first, one.last) for one in self.port.take(DeliveriesGivenUp)]

    def dropped(self) -> list[tuple[str, str]]:
        return [(record["event"], record["reason"]) for record in self.port.traced("drop")]


def test_what_is_for_a_node_out_of_reach_waits_and_follows_in_order() -> None:
    host = Host()
    host.deliver(1)
    assert host.arrives() == [1], "sent directly as long as the node is in reach"
    host.lose(message(2, 3))
    assert host.arrives() == [2, 3], "the oldest asks for the link"
    host.deliver(4, 5)
    host.port.advance(50.0)
    assert host.arrives() == [], "one at a time"
    host.port.hear(LinkUp(S, True))
    assert host.arrives() == [4, 5]
    host.deliver(6)
    assert host.arrives() == [6]
    assert not host.reported()
    assert not host.dropped()


def test_what_comes_back_stands_before_what_came_meanwhile() -> None:
    host = Host()
    host.lose(message(1))
    host.deliver(2)
    host.port.advance(6.0)
    host.arrives()
    host.lose(message(1))
    host.port.hear(LinkUp(S, True))
    assert host.arrives() == [1, 2]


def test_beyond_the_bound_the_oldest_are_given_up_and_the_node_is_notified_in_its_place() -> None:
    host = Host(held_events=5)
    host.lose(message(1))
    host.deliver(*range(2, 9))  # 1 is on its way
    assert host.holding.held.events <= 5
    assert host.dropped() == [("p.1.2", BOUND), ("p.1.3", BOUND)]
    host.arrives()
    host.port.hear(LinkUp(S, True))
    (first, *_) = [one for _, one in host.port.sent]
    assert isinstance(first, DeliveriesGivenUp), "ahead of what is held"
    assert (first.since, first.until, first.lapsed) == (2.0, 3.0, False)
    assert host.reported() == [(2, "p.1.2", "p.1.3")]
    assert host.arrives() == [4, 5, 6, 7, 8]
    assert host.port.counts["deliveries_lost"] == 2


def test_bytes_are_bounded_too_and_the_node_that_most_is_held_for_loses() -> None:
    host = Host(held=4_096)
    other = peer("t")
    host.lose(message(1))
    host.holding.put_back(other, (message(1), message(2)))
    big = Deliver("x", EVERYTHING, 1, (Event("p", 1, 9, 9.0, {}, b"-" * 1_500),))
    for _ in range(5):
        host.holding.send(S, big)
    assert host.holding.held.bytes <= 4_096
    assert [reason for _, reason in host.dropped()] == [BOUND] * 3
    held = host.holding.held.find("t")
    assert held is not None
    assert held.events == 1, "nothing is taken from the other one"


def test_holding_ends_with_the_lease_and_the_node_hears_of_it_when_it_is_back() -> None:
    host = Host()
    host.lose(message(1))
    host.deliver(2, 3)
    host.port.advance(100.0)
    assert not host.dropped(), "as long as its registrations are here"
    host.registered = False
    host.port.advance(HOLD_CHECK)
    assert host.dropped() == [("p.1.2", LEASE), ("p.1.3", LEASE)]
    assert not host.holding.holds("s")
    host.lose(message(1))  # what was on its way comes back
    assert host.dropped()[2:] == [("p.1.1", LEASE)]
    host.port.hear(LinkUp(S, True))
    assert host.reported() == [(3, "p.1.1", "p.1.3")], "by when they were published"
    host.port.sent.clear()
    host.port.advance(NOTICE_FOR)
    assert not host.port.sent, "nothing more is sent to it"


def test_very_much_that_is_given_up_is_traced_a_part_in_each_turn() -> None:
    host = Host(held_events=10_000)
    host.lose(message(0))
    for start in range(1, 6_001, 50):
        host.deliver_together(*range(start, start + 50))
    host.registered = False
    host.port.ignore(HoldDue)
    host.port.advance(70.0)
    given_up: list[int] = []
    while host.holding.held:
        before = len(host.dropped())
        host.holding.on_hold_due(HoldDue())
        host.port.turn()
        given_up.append(len(host.dropped()) - before)
        assert len(given_up) < 10
    assert max(given_up) < GIVEN_UP_AT_ONCE + 50
    assert sum(given_up) == 6_000, "all but the attempt"
    host.port.hear(LinkUp(S, True))
    (told,) = host.reported()
    assert told[0] == sum(given_up)


def test_a_lease_that_is_over_before_its_term_is_no_reason_yet() -> None:
    host = Host()
    host.registered = False  # its owner heard it 20 s before the link was lost
    host.lose(message(1))
    host.deliver(2)
    host.port.advance(59.0)
    assert host.holding.held.events == 1
    host.port.advance(2 * HOLD_CHECK)
    assert host.dropped() == [("p.1.2", LEASE)]


def test_who_has_a_notice_to_get_is_dialled_until_it_has_it() -> None:
    host = Host()
    host.notices.given_up(S, [event(7, "p")], LEASE)
    for _ in range(3):
        host.port.advance(NOTICE_PAUSE)
        (notice,) = host.port.take(DeliveriesGivenUp)
        host.notices.given_up(S, [event(8, "p")], LEASE)
        host.lose(notice)
    host.port.hear(LinkUp(S, True))
    (notice,) = host.port.take(DeliveriesGivenUp)
    assert (notice.count, notice.first, notice.last) == (4, "p.1.7", "p.1.8")
    host.port.advance(3 * NOTICE_PAUSE)
    assert not host.reported()
    assert len(host.notices) == 0


def test_who_is_away_for_too_long_is_not_informed_any_more() -> None:
    host = Host()
    host.notices.given_up(S, [event(7, "p")], LEASE)
    for _ in range(int(NOTICE_FOR / NOTICE_PAUSE) + 2):
        host.port.advance(NOTICE_PAUSE)
        host.lose(*host.port.take(DeliveriesGivenUp))
    host.port.advance(NOTICE_PAUSE)
    assert len(host.notices) == 0
    assert not host.reported()


def test_an_owner_reports_whom_it_took_for_dead() -> None:
    host = Host()
    host.port.hear(MatchingInterrupted(S, "silent"))
    host.port.hear(LinkUp(S, True))
    (notice,) = host.port.take(DeliveriesGivenUp)
    assert (notice.count, notice.lapsed, notice.reason) == (0, True, "silent")


def test_a_notice_names_attributes_and_since_when_nothing_was_matched() -> None:
    host = Host(held_events=2)
    host.lose(message(1))
    for number in (2, 3, 4, 5):
        more = Event(
            "p", 1, number, float(number), {"x": number, "y": 1} if number < 4 else {"z": 1}
        )
        host.holding.send(S, Deliver("x", EVERYTHING, 1, (more,)))
    host.port.hear(MatchingInterrupted(S, "not heard", ("w",), host.port.now))
    (first,) = host.port.take(DeliveriesGivenUp)
    assert set(first.attributes) == {"x", "y", "w"}, (
        "of the two that were given up, and of the tree"
    )
    assert (first.count, first.lapsed, first.lapsed_for) == (2, True, ON_ITS_WAY)
    host.port.advance(5.0)
    host.port.hear(LinkDown(S, "silent", False, (first,), SessionEnd.UNREACHABLE))
    host.port.advance(2.0)
    host.port.hear(LinkUp(S, True))
    (again,) = host.port.take(DeliveriesGivenUp)
    assert set(again.attributes) == {"x", "y", "w"}
    assert (again.count, again.lapsed_for) == (2, 7.0 + ON_ITS_WAY), "it began as early as before"
    many = [f"a{number}" for number in range(NOTICE_ATTRIBUTES + 1)]
    host.port.hear(MatchingInterrupted(S, "divided", tuple(many)))
    (unknown,) = host.port.take(DeliveriesGivenUp)
    assert (unknown.attributes, unknown.lapsed_for) == ((), 0.0)


def test_what_was_for_a_process_that_has_ended_its_next_one_gets_a_notice_of() -> None:
    host = Host()
    host.lose(message(1))
    host.deliver(2)
    host.lose(message(1), end=SessionEnd.GONE)
    assert host.port.counts["deliveries_to_ended"] == 2
    assert not host.dropped()
    assert not host.holding.held
    host.port.sent.clear()
    dialled = 0
    for _ in range(int(3 * NOTICE_DIALLED / NOTICE_PAUSE)):
        host.port.advance(NOTICE_PAUSE)
        notices = host.port.take(DeliveriesGivenUp)
        assert all((one.count, one.first, one.last) == (2, "p.1.1", "p.1.2") for one in notices)
        host.lose(*notices, end=SessionEnd.GONE)  # nobody is there yet
        dialled += len(notices)
    assert 0 < dialled <= NOTICE_DIALLED / NOTICE_PAUSE, "then it is waited for"
    host.port.hear(LinkUp(S, True, 2))
    assert host.reported() == [(2, "p.1.1", "p.1.2")]


def test_a_notice_outlives_the_process_that_was_to_get_it() -> None:
    host = Host(held_events=1)
    host.lose(message(1))
    host.deliver(2, 3)
    host.lose(message(1), end=SessionEnd.GONE)
    host.port.sent.clear()
    host.port.hear(LinkUp(S, True, 2))
    ((count, first, last),) = host.reported()
    assert (count, first, last) == (3, "p.1.1", "p.1.3"), "with what was held when it ended"


def test_what_is_held_for_an_earlier_process_is_not_sent_to_the_next_one() -> None:
    host = Host()
    first, second = (replace(message(number), life=number) for number in (1, 2))
    host.lose(first)
    host.holding.send(S, second)
    host.holding.send(S, message(3))
    host.lose(first)
    host.port.sent.clear()
    host.port.hear(LinkUp(S, True, 2))
    sent = host.port.sent[:]
    assert host.arrives() == [2, 3], "of the third it is not known"
    host.port.sent = sent
    assert host.reported() == [(1, "p.1.1", "p.1.1")]


def test_what_is_held_says_for_how_long() -> None:
    host = Host()
    host.lose(message(1))
    host.deliver(2)
    host.port.advance(0.5)
    host.lose(message(1))
    host.port.sent.clear()
    host.port.hear(LinkUp(S, True))
    host.port.hear(LinkUp(S, True))
    held = {one.events[0].sequence: one.held for _, one in host.port.sent_to(Deliver)}
    assert held[2] == 500
    assert held[1] <= 500


def test_a_relay_that_gives_nothing_back_brings_the_rest() -> None:
    host = Host("r")
    host.lose(message(1))
    ((to, first),) = host.port.sent_to(Deliver)
    assert (to, [e.sequence for e in first.events]) == ("r", [1])
    host.deliver(2, 3)
    host.port.advance(RELAY_TRIAL + 2 * HOLD_CHECK)
    rest = host.port.sent_to(Deliver)
    assert [(to, e.sequence) for to, one in rest for e in one.events] == [("r", 2), ("r", 3)]
    assert all(share.peers == (S,) for _, one in rest for (share,) in one.onward)
    assert not host.holding.held


def test_a_relay_that_is_lost_itself_has_brought_nothing() -> None:
    host = Host("r")
    host.lose(message(1))
    host.deliver(2)
    host.holding.link_lost(peer("r"))
    host.port.sent.clear()
    host.port.advance(RELAY_TRIAL + 2 * HOLD_CHECK)
    assert host.holding.holds("s")
    assert [to for to, _ in host.port.sent_to(Deliver)] == ["s"], "the link is next"


def test_a_delegate_gives_back_at_once_what_is_for_a_node_out_of_its_reach() -> None:
    host = Host()
    host.lose(message(1))
    host.port.sent.clear()
    host.holding.send(S, message(2, host=peer("other")))
    ((to, back),) = host.port.sent_to(Undelivered)
    assert (to, back.peer, [e.sequence for e in back.events]) == ("other", S, [2])
    assert host.holding.held.events == 0


def test_a_node_that_leaves_hands_over_what_it_holds() -> None:
    host = Host("r")
    host.lose(message(1))
    host.deliver(2, 3)
    host.port.sent.clear()
    host.holding.leave()
    host.lose(message(1))  # what was on its way comes back
    back = host.port.sent_to(Undelivered)
    assert [(to, e.sequence) for to, one in back for e in one.events] == [
        ("r", 2),
        ("r", 3),
        ("r", 1),
    ]
    assert not host.holding.held


def test_a_node_that_leaves_hands_over_to_one_that_failed_as_a_relay_rather_than_drop() -> None:
    host = Host("r")
    host.lose(message(1))
    host.deliver(2)
    host.holding.relays.gave_back(S.id, "r")
    host.port.sent.clear()
    host.holding.leave()
    back = host.port.sent_to(Undelivered)
    assert [(to, e.sequence) for to, one in back for e in one.events] == [("r", 2)]
    assert not host.dropped()


def test_a_node_that_leaves_hands_over_the_notices_that_wait() -> None:
    host, other = Host("r", held_events=1), Host()
    host.lose(message(1))
    host.deliver(2, 3)
    (before,) = (one.notice for one in host.leave() if one.peer == S)
    assert (before.count, before.first, before.last) == (2, "p.1.2", "p.1.3")
    host.port.hear(LinkDown(S, "silent", False, (replace(before, count=1),)))
    assert [(to, one.notice.count) for to, one in host.port.sent_to(NoticeHandedOver)] == [("r", 1)]
    other.port.hear(NoticeHandedOver(S, before), peer("h"))
    assert other.reported() == [(2, "p.1.2", "p.1.3")]
    other.lose(before)
    other.port.hear(LinkUp(S, False))
    assert other.reported() == [(2, "p.1.2", "p.1.3")], "it did not arrive the first time"


def test_the_interested_node_passes_it_on_and_refuses_nonsense() -> None:
    node = Interested(one_node("me"))
    node.port.hear(DeliveriesGivenUp(3, "p.1.2", "p.1.4", 2.0, 4.0, LEASE), peer("h"))
    (missed,) = node.port.of(DeliveriesMissed)
    found = missed.notice
    assert (found.count, found.first, found.last, found.lapsed) == (3, "p.1.2", "p.1.4", False)
    with pytest.raises(ProtocolError):
        node.port.hear(DeliveriesGivenUp(-1, "", "", 0.0, 0.0, ""), peer("h"))


def test_what_a_congested_link_does_not_take_waits_and_follows_in_pieces() -> None:
    host = Host()
    host.deliver(1)
    host.port.hear(LinkCongested(S))
    big = [Event("p", 1, number, 9.0, {}, b"-" * 700_000) for number in range(2, 6)]
    for one in big:
        host.holding.send(S, Deliver("x", EVERYTHING, 1, (one,)))
    assert host.arrives() == [1]
    host.port.hear(LinkRelieved(S))
    assert host.arrives() == [2, 3], "about a megabyte"
    host.deliver(6)
    host.port.advance(PIECE_PAUSE)
    assert host.arrives() == [4, 5]
    host.port.hear(LinkCongested(S))
    host.port.advance(1.0)
    assert host.arrives() == [], "what comes meanwhile waits behind"
    host.port.hear(LinkRelieved(S))
    assert host.arrives() == [6]
    host.deliver(7)
    assert host.arrives() == [7]


def test_what_a_slow_node_is_not_sent_is_reported_to_it_in_its_place() -> None:
    host = Host(held_events=5)
    host.port.hear(LinkCongested(S))
    host.deliver(*range(1, 9))
    assert [event for event, _ in host.dropped()] == ["p.1.1", "p.1.2", "p.1.3", "p.1.4"]
    host.port.sent.clear()
    host.port.hear(LinkRelieved(S))
    sent = [one for _, one in host.port.sent]
    assert isinstance(sent[0], DeliveriesGivenUp)
    assert sent[0].count == 4
    assert host.arrives() == [5, 6, 7, 8]


def test_a_link_that_goes_on_holds_publishers_back_and_one_that_stands_still_does_not() -> None:
    host = Host()
    assert not host.holding.holds_back
    host.port.hear(LinkCongested(S))
    assert host.holding.holds_back
    host.deliver(1, 2)
    host.port.hear(LinkRelieved(S))
    assert not host.holding.holds_back
    host.port.hear(LinkCongested(S))
    host.port.advance(HOLD_BACK_MOST + 0.01)
    assert not host.holding.holds_back, "others need not wait for it"
    host.lose()
    assert not host.holding.holds_back


def test_a_congested_link_that_is_lost_is_out_of_reach() -> None:
    host = Host()
    host.port.hear(LinkCongested(S))
    host.deliver(2)
    host.lose(message(1))
    assert host.arrives() == [1], "the oldest asks for the link"
    host.port.hear(LinkUp(S, True))
    assert host.arrives() == [2]


def test_what_finds_no_room_on_a_link_is_not_lost() -> None:
    host = Host()
    hosting = Delegation(host.port, CopyBudget(16), host.holding)
    host.port.add(hosting)
    host.port.hear(MessageDropped(S, message(1), "queue full"))
    host.port.hear(LinkCongested(S))
    host.port.hear(LinkRelieved(S))
    assert host.arrives() == [1]
    host.port.hear(MessageDropped(S, message(2, host=peer("other")), "queue full"))
    ((to, back),) = host.port.sent_to(Undelivered)
    assert (to, back.peer) == ("other", S)
    host.port.hear(MessageDropped(S, message(3), TOO_LARGE))
    assert [event for event, _ in host.dropped()] == ["p.1.3"]
    notice = DeliveriesGivenUp(2, "p.1.8", "p.1.9", 0.0, 0.0, BOUND)
    host.port.hear(MessageDropped(S, notice, "queue full"))
    host.port.hear(LinkUp(S, True))
    assert host.reported() == [(3, "p.1.8", "p.1.3")]
