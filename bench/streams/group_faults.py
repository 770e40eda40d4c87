"""Faults where rows are shared in groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import inf
from typing import Any

from msgspec.structs import replace as changed

from bench.mutations.planting import fault, replace
from canopy.client.steps import Steps
from canopy.client.streams.membership import MembershipCore
from streams.access import attachments
from streams.log.group_state import (
    DeadRow,
    FormerSelector,
    Group,
    GroupEntry,
    GroupKnown,
    GroupStates,
)
from streams.programs.group.messages import Settlement
from streams.services.group.confirmation import Confirmation
from streams.services.group.delivery import GroupDelivery
from streams.services.group.shard_groups import LookAtLeases, ShardGroups
from streams.services.group.window import Pending, Window

GROUPS = "tests/streams/programs/group/test_streams_groups.py"
EDITS = "tests/streams/programs/group/test_streams_group_edits.py"
RUNS = "tests/streams/programs/group/test_streams_group_runs.py"
DONE = "promise: each row of a group is acknowledged or dead, once"
KEY = "promise: rows of one key are with one member at a time"


@fault(DONE, GROUPS, "test_delayed_rows_come_when_they_are_due_and_hold_the_floor")
def groups_floor_passes_delayed_rows() -> None:
    """A group counts rows as done with that wait for their time."""
    original = Window.add

    def add(self: Window, row: Pending) -> None:
        original(self, row)
        if row.due > 0.0:
            self._offsets.remove(row.offset)

    replace(original, add)


@fault(DONE, RUNS, "test_runs_around_rows_reach_to_the_next_that_is_not_done_with")
def groups_runs_reach_beyond_what_was_scanned() -> None:
    """A group's run of rows that are done with goes on to a dead letter that is tried again, over
    rows that were not looked at."""
    original = Window.runs_around

    def runs_around(self: Window, offsets: list[int], scanned: int) -> list[tuple[int, int]]:
        return original(self, offsets, max([scanned, *self._offsets]))

    replace(original, runs_around)


@fault(KEY, GROUPS, "test_rows_of_one_key_are_with_one_member_in_their_order")
def groups_give_two_rows_of_one_key() -> None:
    """A row is given to a member while another of its key is with one."""

    def _may_go(self: Window, row: Pending) -> bool:
        return not row.lease and not row.is_settled

    replace(Window._may_go, _may_go)


@fault(KEY, GROUPS, "test_a_new_leader_waits_until_keys_of_the_former_one_are_free")
def groups_leaders_do_not_wait() -> None:
    """A new leader gives rows of keys at once, though the former one may have given some."""
    original = ShardGroups._may_lease

    def _may_lease(self: ShardGroups, delivery: GroupDelivery) -> bool:
        self._led_at = float("-inf")
        return original(self, delivery)

    replace(original, _may_lease)


@fault(KEY, GROUPS, "test_a_leader_that_is_cut_off_gives_no_row_of_a_key")
def groups_leaders_do_not_ask_whether_they_lead() -> None:
    """A leader gives rows of keys though no majority has said that it is one still."""

    def _count(self: Confirmation) -> None:
        self._confirmed = self.port.now

    replace(Confirmation._count, _count)


@fault(DONE, GROUPS, "test_a_row_that_was_delivered_too_often_is_a_dead_letter")
def groups_dead_letters_are_missing_from_the_state() -> None:
    """A segment's beginning says nothing of a group's dead letters."""
    original = GroupStates.entries

    def entries(self: GroupStates) -> Iterator[GroupEntry]:
        return (entry for entry in original(self) if not isinstance(entry, DeadRow))

    replace(original, entries)


@fault(DONE, GROUPS, "test_acknowledged_rows_are_not_delivered_again_by_later_leaders")
def groups_runs_are_missing_from_the_state() -> None:
    """A segment's beginning says of a group only how far its floor is."""
    original = GroupStates.entries

    def entries(self: GroupStates) -> Iterator[GroupEntry]:
        for entry in original(self):
            yield changed(entry, runs=()) if isinstance(entry, GroupKnown) else entry

    replace(original, entries)


@fault(DONE, GROUPS, "test_other_options_than_the_groups_are_refused_also_by_the_next_leader")
def groups_selector_is_missing_from_the_state() -> None:
    """A segment's beginning does not have the selector of a group, which then matches all rows."""
    original = GroupStates.entries

    def entries(self: GroupStates) -> Iterator[GroupEntry]:
        for entry in original(self):
            if isinstance(entry, GroupKnown):
                entry = changed(entry, options=changed(entry.options, selector=""))
            yield entry

    replace(original, entries)


@fault(DONE, GROUPS, "test_a_row_whose_lease_is_over_goes_to_another")
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


@fault(DONE, GROUPS, "test_a_newer_member_of_the_same_name_fences_the_older")
def groups_members_are_not_fenced() -> None:
    """Two programs are members of a group under one name."""

    def _fence(self: ShardGroups, delivery: object, former: object) -> None:
        pass

    replace(ShardGroups._fence, _fence)


@fault(DONE, GROUPS, "test_retention_keeps_what_a_group_has_not_passed_until_it_is_forgotten")
def groups_do_not_hold_the_log() -> None:
    """Retention removes rows that a group is not done with."""

    def floor(self: GroupStates) -> int | None:
        return None

    replace(GroupStates.floor, floor)


@fault(KEY, GROUPS, "test_what_comes_behind_a_dead_letter_waits_until_that_is_committed")
def groups_keys_go_on_before_a_dead_letter_is_committed() -> None:
    """The next row of a key is given while the dead letter before it may be lost."""
    original = Window.settle

    def settle(self: Window, row: Pending, is_certain: bool = True) -> None:
        original(self, row)

    replace(original, settle)


@fault(
    KEY,
    "tests/streams/test_streams_answers.py",
    "test_members_of_a_node_that_starts_again_have_numbers_that_no_leader_knows",
)
def groups_numbers_of_members_are_used_again() -> None:
    """A node that starts again gives its members numbers which leaders know from before."""

    def first_number(incarnation: int) -> int:
        return 0

    replace(attachments.first_number, first_number)


@fault(DONE, EDITS, "test_a_new_selector_holds_under_the_next_leader_and_so_does_the_former_one")
def groups_new_selectors_are_for_old_rows() -> None:
    """A group looks for rows by its newest selector, also where they stood before the change."""

    def former_at(self: Group, offset: int) -> FormerSelector | None:
        return None

    replace(Group.former_at, former_at)


@fault(DONE, EDITS, "test_a_dead_letter_that_is_tried_again_comes_by_the_selector_that_it_had")
def groups_forget_selectors_of_dead_letters() -> None:
    """A group forgets a former selector when its floor is beyond its rows, dead letters or not."""

    def _needs(self: Group, former: FormerSelector) -> bool:
        return self.done.floor < former.below

    replace(Group._needs, _needs)


@fault(KEY, EDITS, "test_a_new_leader_waits_for_the_longest_lease_that_may_be_under_way")
def groups_longer_leases_are_forgotten() -> None:
    """A new leader waits for a lease of the present length, though longer ones were given."""
    original = Group.edit

    def edit(self: Group, entry: object, chunk: object) -> None:
        original(self, entry, chunk)  # type: ignore[arg-type]
        self.longest = self.options.lease

    replace(original, edit)


@fault(KEY, EDITS, "test_options_that_are_not_committed_do_not_hold")
def groups_options_hold_before_the_commit() -> None:
    """A leader gives leases by options that are in its own log only."""
    original = ShardGroups.on_look_at_leases

    def look(self: ShardGroups, timer: LookAtLeases) -> None:
        for delivery in self.groups.values():
            delivery.options = delivery.group.options
        original(self, timer)

    replace(original, look)


@fault(DONE, EDITS, "test_a_lease_that_is_under_way_ends_when_it_would_have")
def groups_extensions_shorten_leases() -> None:
    """A lease that is extended after the group's leases became shorter ends before its member was
    told that it would."""
    original = Window.extend

    def extend(self: Window, row: Pending, until: float) -> None:
        row.until = 0.0
        original(self, row, until)

    replace(original, extend)


@fault(
    KEY,
    "tests/canopy/client/test_client_membership.py",
    "test_rows_that_lay_in_the_connection_beyond_their_lease_are_another_s",
)
def members_hand_out_rows_of_ended_leases() -> None:
    """A member's program is handed rows that lay in its connection for longer than their leases."""

    def _confirming(self: MembershipCore[Any], most: int) -> Steps[None]:
        yield from ()
        self._rest = deque((inf, row) for _, row in self._rest)

    replace(MembershipCore._confirming, _confirming)
