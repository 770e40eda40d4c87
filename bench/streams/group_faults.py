"""Faults where rows are shared in groups."""

from __future__ import annotations

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace
from streams.programs.group.messages import Settlement
from streams.services.group.delivery import GroupDelivery
from streams.services.group.shard_members import ShardMembers
from streams.services.group.window import Pending, Window

GROUPS = "tests/streams/programs/group/test_streams_groups.py"


@fault("S5", GROUPS, "test_delayed_rows_come_when_they_are_due_and_hold_the_floor")
def groups_floor_passes_delayed_rows() -> None:
    """A group counts rows as done with that wait for their time."""
    original = Window.add

    def add(self: Window, row: Pending) -> None:
        original(self, row)
        if row.due > 0.0:
            self._offsets.remove(row.offset)

    replace(original, add)


@fault("S6", GROUPS, "test_rows_of_one_key_are_with_one_member_in_their_order")
def groups_give_two_rows_of_one_key() -> None:
    """A row is given to a member while another of its key is with one."""

    replace(Window._may_go, lambda self, row: not row.lease and not row.is_settled)


@fault("S6", GROUPS, "test_a_new_leader_waits_until_keys_of_the_former_one_are_free")
def groups_leaders_do_not_wait() -> None:
    """A new leader gives rows of keys at once, though the former one may have given some."""
    original = ShardMembers._may_lease

    def _may_lease(self: ShardMembers, delivery: GroupDelivery) -> bool:
        self.leader.since = float("-inf")
        return original(self, delivery)

    replace(original, _may_lease)


@fault("S5", GROUPS, "test_a_row_whose_lease_is_over_goes_to_another")
def groups_late_words_count() -> None:
    """What a member says of a row counts, though the row is with another one by now."""
    original = GroupDelivery.settle

    def settle(
        self: GroupDelivery, member: object, settled: tuple[Settlement, ...], may_extend: bool
    ) -> None:
        rows = self.window.rows
        words = tuple(
            changed(one, lease=rows[one.offset].lease) if one.offset in rows else one
            for one in settled
        )
        original(self, member, words, may_extend)  # type: ignore[arg-type]

    replace(original, settle)
