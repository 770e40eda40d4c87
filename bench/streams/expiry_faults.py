"""Faults in the time of rows."""

from __future__ import annotations

from bench.mutations.planting import fault, replace
from streams.log.group_state import GroupStates
from streams.services.group.delivery import GroupDelivery
from streams.services.group.window import Pending
from streams.services.read.history import Expiry
from streams.shard.leader import Retention
from streams.steady_clock import SteadyClock

EXPIRY = "tests/streams/programs/reader/test_streams_expiry.py"
TIME = "promise: a row that is past its time is not delivered, and goes"


@fault(TIME, EXPIRY, "test_rows_are_delivered_until_they_are_past_their_time")
def expired_rows_are_delivered() -> None:
    """History delivers rows that are past their time."""

    def is_over(self: Expiry, time: int) -> bool:
        return False

    replace(Expiry.is_over, is_over)


@fault(TIME, EXPIRY, "test_rows_past_their_time_go_whether_they_were_read_or_not")
def expired_rows_stay_for_consumers() -> None:
    """A durable consumer that nobody reads as keeps rows that are past their time."""

    def _expired(self: Retention, now: int) -> int:
        return 0

    replace(Retention._expired, _expired)


@fault(TIME, EXPIRY, "test_rows_past_their_time_go_whether_they_were_read_or_not")
def expired_rows_hold_groups_back() -> None:
    """A group's floor stays below rows that went since their time was past."""

    def pass_over(self: GroupStates, offset: int) -> None:
        return None

    replace(GroupStates.pass_over, pass_over)


@fault(TIME, EXPIRY, "test_a_row_that_waits_for_a_member_is_passed_over_when_its_time_is_past")
def expired_rows_go_to_members() -> None:
    """A row that waited for a member beyond its time is delivered."""

    def _is_over(self: GroupDelivery, row: Pending) -> bool:
        return False

    replace(GroupDelivery._is_over, _is_over)


@fault(TIME, EXPIRY, "test_a_clock_that_is_set_moves_no_row_out_of_its_time")
def expiry_follows_a_clock_that_is_set() -> None:
    """Rows grow an hour old in a moment when a clock is set forward."""

    def now(self: SteadyClock) -> int:
        return self._wall()

    replace(SteadyClock.__call__, now)
