"""Relaying: by which nodes a silent peer is asked for, what is passed on, and what is refused."""

from __future__ import annotations

import pytest

from overlay.links.events import LinkDown, LinkUp, SessionEnd
from overlay.links.messages import Ack, Frame, Hello
from overlay.lower_random.constants import DETOURS_MOST, HELPERS, LOST_FOR, PROBES_PER_SECOND
from overlay.lower_random.messages import Relayed
from overlay.lower_random.relays import Relaying
from overlay.machine import Peer, ProtocolError
from tests.support.world import World, WorldNode, peer

ACK = Ack(1, 2)
HELLO = Hello(8, "o", peer("p"), 1, 0, 0, 1)


class Rig:
    """A node "me" that reaches some others, with what its links hear."""

    def __init__(self, *others: str) -> None:
        self.world = World(1)
        self.port: WorldNode = self.world.node("me")
        self.direct = set(others)
        self.silent: set[str] = set()
        self.accepted: list[int] = []
        self.taken: list[tuple[int, Frame]] = []
        self.closed: list[int] = []
        self.others = others
        self.relaying = Relaying(self.port, self, self)  # type: ignore[arg-type]
        self.port.add(self.relaying)

    # the view and the links of the node

    def peers(self) -> list[Peer]:
        return [peer(name) for name in self.others]

    def is_direct(self, node: str) -> bool:
        return node in self.direct

    def may_reach(self, node: str) -> bool:
        return node not in self.silent

    def on_detour_accepted(self, connection: int) -> None:
        self.accepted.append(connection)

    def on_frame(self, connection: int, frame: Frame) -> None:
        self.taken.append((connection, frame))

    def on_closed(self, connection: int, reason: str) -> None:
        self.closed.append(connection)

    def write(self, connection: int, frame: Frame = ACK) -> tuple[str, Relayed] | None:
        """What leaves when the links write a frame, and to whom."""
        before = len(self.port.sent)
        self.relaying.write(connection, frame)
        sent = [(to.id, m) for to, m in self.port.sent[before:] if isinstance(m, Relayed)]
        return sent[0] if sent else None

    def hear(
        self,
        helper: str,
        frame: Frame,
        origin: str = "p",
        *,
        to: str = "me",
        number: int = 7,
        is_answer: bool = False,
    ) -> None:
        assert isinstance(frame, Ack | Hello)
        message = Relayed(peer(origin), peer(to), number, is_answer, frame)
        self.relaying.on_relayed(peer(helper), message)


def test_a_silent_peer_is_asked_for_by_some_nodes_that_answer_themselves() -> None:
    rig = Rig("a", "b", "c", "d", "e", "p")
    rig.direct.discard("b")
    opened = rig.relaying.open(peer("p"))
    assert len(opened) == len(set(opened)) == HELPERS
    assert all(number < 0 for number in opened), "no number of the driver's"
    found = [rig.write(number) for number in opened]
    assert {to for each in found if each for to in [each[0]]} <= {"a", "c", "d", "e"}
    assert len({each[0] for each in found if each}) == HELPERS
    assert all(
        e and (e[1].to, e[1].frame, e[1].is_answer) == (peer("p"), ACK, False) for e in found
    )


def test_a_node_asks_no_more_than_so_often_in_a_second() -> None:
    rig = Rig("a", "b", "c", "d")
    asked = [len(rig.relaying.open(peer(f"p{n}"))) for n in range(100)]
    assert sum(asked) == PROBES_PER_SECOND
    assert rig.relaying.open(peer("p")) == []
    rig.world.run(1.0)
    assert len(rig.relaying.open(peer("p"))) == HELPERS


def test_both_ends_name_a_connection_alike() -> None:
    here, there = Rig("h"), Rig("h")
    (connection,) = here.relaying.open(peer("p"))
    written = here.write(connection, HELLO)
    assert written is not None
    there.relaying.on_relayed(peer("h"), Relayed(peer("x"), peer("me"), *_rest(written[1])))
    (accepted,) = there.accepted
    assert there.taken == [(accepted, HELLO)]
    answered = there.write(accepted)
    assert answered is not None
    assert (answered[0], answered[1].to.id) == ("h", "x")
    here.relaying.on_relayed(peer("h"), Relayed(peer("p"), peer("me"), *_rest(answered[1])))
    assert here.taken == [(connection, ACK)]
    assert here.accepted == []


def _rest(message: Relayed) -> tuple[int, bool, Ack | Hello]:
    assert isinstance(message.frame, Ack | Hello)
    return message.number, message.is_answer, message.frame


def test_only_a_greeting_begins_a_connection_and_later_frames_belong_to_it() -> None:
    rig = Rig("h")
    rig.hear("h", ACK)
    assert (rig.accepted, rig.taken) == ([], [])
    rig.hear("h", HELLO)
    rig.hear("h", ACK)
    rig.hear("h", HELLO, number=8)
    first, second = rig.accepted
    assert rig.taken == [(first, HELLO), (first, ACK), (second, HELLO)]
    rig.relaying.close(first, "not needed")
    rig.hear("h", ACK)
    assert len(rig.taken) == 3
    assert rig.write(first) is None


def test_an_answer_to_a_connection_that_was_closed_is_ignored() -> None:
    rig = Rig("a")
    (connection,) = rig.relaying.open(peer("p"))
    written = rig.write(connection)
    assert written is not None
    rig.relaying.close(connection, "not needed")
    rig.hear("a", HELLO, number=written[1].number, is_answer=True)
    assert (rig.accepted, rig.taken) == ([], [])


def test_a_helper_passes_on_what_its_sender_says_itself_where_it_reaches_the_other() -> None:
    rig = Rig()
    rig.hear("p", ACK, to="q")
    assert [(to.id, type(m)) for to, m in rig.port.sent] == [("q", Relayed)]
    assert rig.taken == []
    with pytest.raises(ProtocolError, match="for another node"):
        rig.hear("x", ACK, to="q")
    rig.silent.add("q")
    rig.hear("p", ACK, to="q")
    assert len(rig.port.sent) == 1
    assert rig.port.counts["frames_not_relayed"] == 1


@pytest.mark.parametrize(("helper", "origin"), [("p", "p"), ("h", "me")])
def test_nobody_relays_to_itself(helper: str, origin: str) -> None:
    rig = Rig()
    with pytest.raises(ProtocolError, match="to itself"):
        rig.hear(helper, HELLO, origin)


def test_nothing_is_sent_to_a_helper_that_is_itself_silent_or_reached_by_others() -> None:
    rig = Rig("a")
    (connection,) = rig.relaying.open(peer("p"))
    rig.silent.add("a")
    assert rig.write(connection) is None


def test_with_a_helper_all_that_leads_by_it_is_lost() -> None:
    rig = Rig("a", "b")
    opened = rig.relaying.open(peer("p"))
    by_a = [number for number in opened if (rig.write(number) or ("",))[0] == "a"]
    rig.hear("a", HELLO)
    rig.relaying.on_link_down(LinkDown(peer("a"), "silent", False))
    assert rig.closed == [*by_a, *rig.accepted]
    assert len(rig.relaying) == 1


def test_a_dead_node_is_not_dialled_again_for_each_probe() -> None:
    rig = Rig()
    rig.relaying.on_link_down(LinkDown(peer("q"), "refused", False, end=SessionEnd.GONE))
    rig.hear("p", ACK, to="q")
    assert rig.port.sent == []
    rig.relaying.on_link_up(LinkUp(peer("q"), True))
    rig.hear("p", ACK, to="q")
    assert len(rig.port.sent) == 1
    rig.relaying.on_link_down(LinkDown(peer("q"), "silent", False))
    rig.world.run(LOST_FOR)
    rig.hear("p", ACK, to="q")
    assert len(rig.port.sent) == 2
    rig.relaying.on_link_down(LinkDown(peer("q"), "again", False, end=SessionEnd.RESET))
    rig.hear("p", ACK, to="q")
    assert len(rig.port.sent) == 3, "it answers"


def test_the_oldest_connection_gives_way_to_the_one_too_many() -> None:
    rig = Rig("h")
    for number in range(DETOURS_MOST + 2):
        rig.hear("h", HELLO, number=number)
    assert rig.closed == rig.accepted[:2]
    assert len(rig.relaying) == DETOURS_MOST
