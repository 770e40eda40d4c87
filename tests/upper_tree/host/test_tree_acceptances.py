"""A publisher hears at once that its events were taken, or together of those that come one by
one."""

from __future__ import annotations

from overlay.machine import Peer
from overlay.upper_tree.host.acceptances import Acceptances, AcceptancesDue
from overlay.upper_tree.host.constants import ACCEPTED_FEW, ACCEPTED_TOGETHER, ACCEPTED_WITHIN
from overlay.upper_tree.host_load import HostLoad
from overlay.upper_tree.messages import Accepted
from tests.support.world import WorldNode, one_node, peer

P, Q = peer("p"), peer("q")


class Host:
    """Says to publishers what was taken."""

    def __init__(self) -> None:
        self.port: WorldNode = one_node("h")
        self.acceptances = Acceptances(self.port, self)
        self.load: HostLoad | None = None
        self.number = 0

    def take(self, events: int = 1, to: Peer = P, incarnation: int = 1) -> None:
        numbers = tuple(range(self.number, self.number + events))
        self.number += events
        self.acceptances.add(to, incarnation, [(("x", "y"), numbers)], ())

    def heard(self) -> list[tuple[str, list[int]]]:
        """Who heard of which events since the last look."""
        return [
            (to, [number for trees, numbers in message.taken for number in numbers])
            for to, message in self.port.sent_to(Accepted)
        ]

    def due(self) -> None:
        self.port.world.jump(ACCEPTED_WITHIN)
        self.acceptances.on_due(AcceptancesDue())


def test_the_first_event_is_accepted_at_once_and_the_next_together() -> None:
    host = Host()
    host.take()
    assert host.heard() == [("p", [0])]
    for _ in range(3):
        host.port.world.jump(ACCEPTED_WITHIN / 10)
        host.take()
    assert host.heard() == []
    host.take(to=Q)
    assert host.heard() == [("q", [4])]
    host.due()
    assert host.heard() == [("p", [1, 2, 3])]
    host.port.world.jump(2 * ACCEPTED_WITHIN)
    host.take()
    assert host.heard() == [("p", [5])], "after a pause it is the first again"


def test_many_events_and_news_are_said_at_once_with_what_waits() -> None:
    host = Host()
    host.take()
    host.take()
    host.heard()
    host.take(ACCEPTED_FEW + 1)
    assert host.heard() == [("p", list(range(1, ACCEPTED_FEW + 3)))]
    host.take()
    host.load = HostLoad(1.0, 1.0, 1)
    host.take()
    assert len(host.heard()) == 1


def test_what_waits_is_bounded() -> None:
    host = Host()
    host.take()
    host.heard()
    for _ in range(ACCEPTED_TOGETHER):
        host.take()
    assert host.heard() == []
    host.take()
    assert len(host.heard()) == 1


def test_each_start_of_a_publisher_hears_of_its_own_events() -> None:
    host = Host()
    host.take()
    host.take()
    host.port.take(Accepted)
    host.take(incarnation=2)
    host.due()
    found = [(message.incarnation, message.taken[0][1]) for message in host.port.take(Accepted)]
    assert found == [(1, (1,)), (2, (2,))]
