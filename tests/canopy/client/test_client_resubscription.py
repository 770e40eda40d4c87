"""What outlives a connection: subscriptions, gaps, the next attempt; drafts and receipts."""

from __future__ import annotations

import pytest

from canopy.client.errors import (
    CommandFailed,
    CommandTimeoutError,
    NodeLeavingError,
    UnreachableError,
)
from canopy.client.notices import Disconnected, Gap, gap_of
from canopy.client.publication import BATCH, BATCH_BYTES, Drafting, PublishResult, result_of
from canopy.client.resubscription import CLOCK_SET, KeptSelector, Resubscription
from canopy.wire.control.client_output import timed
from overlay.client import (
    Done,
    Draft,
    Dropped,
    Failed,
    Gather,
    Lapsed,
    Published,
    Subscribe,
    Subscribed,
)

GONE = UnreachableError("the node at here has gone")


def opened(state: Resubscription, *ids: str, wall: float = 0.0) -> Gap | None:
    return state.opened([Subscribed(0, id_) for id_ in ids], wall)


class TestResubscription:
    def test_the_first_connection_has_no_gap_and_the_next_shows_from_when_to_when(self) -> None:
        state = Resubscription(gathers=False)
        state.add(KeptSelector("a = 1", "name", 3))
        assert state.opening() == [Subscribe(0, "a = 1", "name", 3, True)]
        assert opened(state, "s1", wall=50.0) is None
        assert list(state.ids) == ["s1"]
        state.left_at(None, 88.0)
        assert state.lost(GONE, now=10.0, wall=100.0) == Disconnected(str(GONE))
        assert state.opening() == [Subscribe(0, "a = 1", "name", 3, True, 88.0)]
        assert state.ids == {}
        assert state.lost(GONE, now=11.0, wall=101.0) is None, "reported once"
        gap = opened(state, "s7", wall=103.5)
        assert gap is not None
        assert (gap.cause, gap.since, gap.until) == ("reconnected", 88.0, 103.5)
        assert "away for 3.5 s" in gap.reason
        assert "of the last 15.5 s may be missing" in gap.reason
        assert list(state.ids) == ["s7"]

    @pytest.mark.parametrize(
        ("mark", "since"),
        [(0.0, 50.0), (40.0, 50.0), (88.0, 88.0), (3_700.0, 100.0 - CLOCK_SET)],
        ids=["no mark yet", "of before the acknowledgement", "a mark", "the clock was set back"],
    )
    def test_a_gap_begins_where_deliveries_were_known_to_be_complete(
        self, mark: float, since: float
    ) -> None:
        state = Resubscription(gathers=False)
        state.add(KeptSelector("a = 1"))
        opened(state, "s1", wall=50.0)
        state.left_at(None, mark)
        state.lost(GONE, now=10.0, wall=100.0)
        gap = opened(state, "s2", wall=103.5)
        assert gap is not None
        assert gap.since == since
        state.left_at(None, 101.0)
        state.lost(GONE, now=20.0, wall=110.0)
        gap = opened(state, "s3", wall=111.0)
        assert gap is not None
        assert gap.since == 103.5, "what was missing until then was told"

    def test_what_another_program_has_ended_is_not_made_again(self) -> None:
        state = Resubscription(gathers=True)
        state.add(KeptSelector("a = 1"))
        state.add(KeptSelector("b = 1"))
        opened(state, "s1", "s2")
        assert not state.ended("other")
        assert not state.ended("s1")
        assert state.opening() == [Gather(0), Subscribe(0, "b = 1", marks=True)]
        assert state.ended("s2"), "none is left"

    def test_a_node_that_is_found_late_for_the_first_time_leaves_no_gap(self) -> None:
        state = Resubscription(gathers=False)
        assert isinstance(state.lost(GONE, 0.0, 0.0), Disconnected)
        assert opened(state) is None

    def test_a_leaving_node_is_informed_once_and_the_gap_begins_when_it_said_so(self) -> None:
        state = Resubscription(gathers=False)
        state.add(KeptSelector("a = 1"))
        opened(state, "s1", wall=50.0)
        notice = state.notice(Failed(0, "leaving", "the node is leaving"), wall=97.0)
        state.left_at(None, 89.0)
        assert notice == Disconnected("the node is leaving")
        assert state.lost(GONE, now=10.0, wall=100.0) is None, "reported already"
        refused = NodeLeavingError("leaving", "the node is leaving")
        assert state.lost(refused, now=10.5, wall=100.5) is None, "another one may be there soon"
        gap = opened(state, "s2", wall=104.0)
        assert gap is not None
        assert (gap.since, gap.until) == (89.0, 104.0), "what was under way then did not come"
        assert "away for 7.0 s" in gap.reason

    def test_gathered_subscriptions_are_made_after_gather_and_may_come_and_go(self) -> None:
        state = Resubscription(gathers=True)
        first, same = KeptSelector("a = 1"), KeptSelector("a = 1")
        state.add(first)
        assert state.opened([Done(0), Subscribed(0, "s1")], 0.0) is None
        state.add(same, "s2")
        assert state.remove(same) in ("s1", "s2"), "equal ones are interchangeable"
        state.lost(GONE, 0.0, 0.0)
        assert state.opening() == [Gather(0), Subscribe(0, "a = 1", marks=True)]
        assert state.remove(first) == "", "no connection has it"
        assert state.opening() == [Gather(0)]

    def test_attempts_back_off_and_begin_again_after_a_success(self) -> None:
        state = Resubscription(gathers=False)
        assert state.delay(0.0) == 0.0
        delays = []
        for _ in range(7):
            state.lost(GONE, now=50.0, wall=0.0)
            delays.append(state.delay(50.0))
        assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
        assert state.delay(57.0) == 1.0
        opened(state)
        assert state.delay(50.0) == 0.0
        state.lost(GONE, now=50.0, wall=0.0)
        assert state.delay(50.0) == 0.25

    def test_patience_ends(self) -> None:
        state = Resubscription(gathers=False, patience=5.0)
        state.lost(GONE, now=0.0, wall=0.0)
        state.lost(GONE, now=4.9, wall=0.0)
        with pytest.raises(UnreachableError, match="gave up after 5 s"):
            state.lost(GONE, now=5.0, wall=0.0)
        with pytest.raises(UnreachableError, match="has gone"):
            Resubscription(gathers=False, patience=0.0).lost(GONE, 0.0, 0.0)

    def test_a_time_out_is_tried_again_and_a_refusal_is_not(self) -> None:
        state = Resubscription(gathers=False)
        state.lost(CommandTimeoutError("slow"), 0.0, 0.0)
        state.lost(CommandFailed("time-out", "the ring did not answer"), 0.0, 0.0)
        with pytest.raises(CommandFailed, match="no such"):
            state.lost(CommandFailed("selector", "no such"), 0.0, 0.0)


def test_notices_of_the_node_become_gaps() -> None:
    dropped = Dropped(0, "overflow", "7 were dropped", 7, "p.1.1", "p.1.7", 1.0, 2.0)
    assert gap_of(dropped, 9.0) == Gap("overflow", "7 were dropped", 7, "p.1.1", "p.1.7", 1.0, 2.0)
    begun = Lapsed(0, "gap", "lost it", "s1", 4.5, False)
    assert gap_of(begun, 9.0) == Gap("lapsed", "lost it", since=4.5, subscriptions=("s1",))
    over = Lapsed(0, "gap", "has it", "s1", 5.0, True)
    of_s1 = Gap("lapsed", "has it", since=4.5, until=9.5, subscriptions=("s1",))
    assert gap_of(over, 9.5) == of_s1
    unheard = Dropped(0, "lapsed", "not heard", 0, "", "", 0.0, 0.0, seconds=6.0)
    assert gap_of(timed(unheard, 9.0), 70.0) == Gap("lapsed", "not heard", since=3.0)
    assert gap_of(timed(begun, 9.0), 70.0).since == 4.5, "whenever it is read"
    counted = Dropped(0, "lapsed", "given up", 2, "p.1.1", "p.1.2", 1.0, 2.0, ("s2",), 6.0)
    assert gap_of(timed(counted, 9.0), 9.0) == Gap(
        "lapsed", "given up", 2, "p.1.1", "p.1.2", 1.0, subscriptions=("s2",)
    )
    divided = Dropped(0, "lapsed", "divided", 2, "p.1.1", "p.1.2", 1.0, 2.0)
    known = (2, "p.1.1", "p.1.2")
    assert gap_of(timed(divided, 9.0), 9.0) == Gap("lapsed", "divided", *known), (
        "it is not known since when"
    )
    assert str(gap_of(Failed(0, "usage", "a grant"), 9.0)) == "a grant"


class TestPublishing:
    def test_an_event_gets_an_id_and_a_type_where_it_has_none(self) -> None:
        drafting = Drafting()
        first, second = drafting.draft({"a": 1}), drafting.draft({"a": 1, "id": None, "type": 3})
        assert first.attributes["type"] == second.attributes["type"] == "event"
        assert first.attributes["id"] != second.attributes["id"]
        own = {"a": 1, "id": 7, "type": "t"}
        assert drafting.draft(own, b"x", "text/plain") == Draft(own, b"x", "text/plain")
        draft = Draft({})
        assert drafting.draft(draft) is draft, "a draft goes as it is"

    def test_batches_are_cut_by_number_and_by_size_and_keep_the_order(self) -> None:
        many = [Draft({"n": n}) for n in range(2 * BATCH + 1)]
        commands = list(Drafting().batches(many, receipt=True))
        assert [len(command.events) for command in commands] == [BATCH, BATCH, 1]
        assert [draft for command in commands for draft in command.events] == many
        assert all(command.receipt for command in commands)
        large = [Draft({"n": n}, bytes(BATCH_BYTES // 2)) for n in range(5)]
        assert [len(c.events) for c in Drafting().batches(large, receipt=False)] == [2, 2, 1]
        assert not list(Drafting().batches([], receipt=False))

    def test_one_result_for_all_replies(self) -> None:
        replies = [Published(1, 2, "p", 1, 5), Published(2, 3, "p", 1, 7, ((1, "NaN"),))]
        result = result_of(replies, asked=True)
        identities = ("p.1.5", "p.1.6", "p.1.7", "", "p.1.8")
        assert result == PublishResult(identities, ((3, "NaN"),), True, ({},) * 5)
        assert result.count == 4
