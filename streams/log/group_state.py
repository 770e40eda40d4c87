"""The consumer groups of a shard, as its log has them: their options, the rows that each has
processed, and its dead letters.

A row is *done* for a group if it was acknowledged, is a dead letter, or does not match the group's
selector: the log does not distinguish these, since the runs are shorter so. A dead letter is a
mark: the row stays in the log, and is done until an operator retries it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from streams.log.chunk import Chunk
from streams.log.runs import Run, Runs

NAME_MOST: Final = 128
"""The limit of characters of a group's name."""

SELECTOR_MOST: Final = 16 * 1024
"""The limit of characters of a group's selector (`matching.selector.expression.MAX_TEXT`)."""

ATTRIBUTE_MOST: Final = 256
"""The limit of characters of an attribute's name in a group's options."""

LEASE: Final = 30.0
"""Seconds of a lease by default: the visibility timeout of Amazon SQS."""

LEASE_LEAST: Final = 1.0
LEASE_MOST: Final = 86_400.0
"""The bounds of a lease in seconds. A shorter lease would end while its row travels; a longer one
withholds the rows of an unreachable member from the others. Guesses."""

DELIVERIES: Final = 5
"""Deliveries of a row by default. Guess."""

DELIVERIES_MOST: Final = 1_000

FORMER_MOST: Final = 8
"""Former selectors that the log keeps of a group: those that rows not yet done are matched with,
and others as far as there is room, to explain what became of their rows. Guess."""

Attribute = Annotated[str, msgspec.Meta(max_length=ATTRIBUTE_MOST)]


class DoneRows(Runs):
    """The offsets that are done for a group. The floor itself is not."""

    def add(self, first: int, end: int) -> None:
        """Add the offsets from `first` to before `end`."""
        super().add(first, end)
        if self._firsts and self._firsts[0] <= self.floor:
            self.raise_floor(self._ends[0])

    def remove(self, offset: int) -> None:
        """Remove one offset. An offset below the floor becomes the floor."""
        end = self.end_of(offset)
        if end == offset:
            return
        if offset < self.floor:
            self.floor, place, first = offset, 0, offset
        else:
            place = bisect_right(self._firsts, offset) - 1
            first = self._firsts.pop(place)
            del self._ends[place]
        parts = [(a, b) for a, b in ((first, offset), (offset + 1, end)) if a < b]
        self._firsts[place:place] = [a for a, _ in parts]
        self._ends[place:place] = [b for _, b in parts]


class GroupOptions(msgspec.Struct, frozen=True, array_like=True):
    """The options of a group, as founded or as edited since (`streams.programs.group.options`)."""

    selector: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""
    """The rows that the group gets; empty: all."""
    lease: Annotated[float, msgspec.Meta(ge=LEASE_LEAST, le=LEASE_MOST)] = LEASE
    """Seconds after which a row without acknowledgement is delivered to another member."""
    deliveries: Annotated[int, msgspec.Meta(ge=1, le=DELIVERIES_MOST)] = DELIVERIES
    """Deliveries of a row before it becomes a dead letter."""
    by: Attribute = ""
    """Rows with the same value of this attribute are delivered one after the other; empty: in no
    order."""
    priority: Attribute = ""
    """Rows with a greater number in this attribute come first; empty: rows with a lower offset."""
    delay: Attribute = ""
    """The attribute with the seconds from a row's append to its delivery; empty: none."""
    delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=LEASE_MOST * 30)] = 0.0
    """Seconds from append to delivery for all rows, added to those of `delay`."""


class GroupFounded(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """A group is founded, unless there is one of this name; it gets rows from the offset `floor`
    on. Its number is that of this entry's chunk, so that a later group of this name has another
    number."""

    name: str
    options: GroupOptions
    floor: int


class FormerSelector(msgspec.Struct, frozen=True, array_like=True):
    """The selector that a group had until chunk `chunk`. It applies to rows below the offset
    `below` (all rows before that chunk), down to the range of the selector before it."""

    below: int
    chunk: int
    selector: str


class GroupKnown(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """A group in a segment's state, without its dead letters. `longest`: seconds of the longest
    lease that may still run, 0: that of the options. `was_at`: the rows below it were done before
    the log lost them, 0: no loss; `dropped`: offsets that retention removed before they were done;
    `told`: the program that has had the report of either."""

    name: str
    number: int
    options: GroupOptions
    floor: int
    runs: tuple[Run, ...]
    longest: float = 0.0
    former: tuple[FormerSelector, ...] = ()
    was_at: int = 0
    told: str = ""
    dropped: int = 0


class RowsDone(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """All rows in these runs are done for a group: (first offset, offset behind the last)."""

    group: str
    number: int
    runs: tuple[Run, ...]


class DeadRow(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """A row becomes a dead letter of a group after `deliveries`, at `time` (nanoseconds since
    1970)."""

    group: str
    number: int
    offset: int
    deliveries: int
    reason: str
    time: int


class DeadLetterEnded(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """A dead letter ends: if `retried` its row is delivered again, else the row stays done."""

    group: str
    number: int
    offset: int
    retried: bool


class GroupForgotten(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """A group is removed, with its options, its done rows and its dead letters."""

    name: str


class GroupEdited(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """A group's options change. Rows before this chunk are still matched with the selector that the
    group had when they were appended. `longest`, `told`: as in `GroupKnown`; `dropped`: to be added
    to the `dropped` there."""

    group: str
    number: int
    options: GroupOptions
    longest: float
    told: str = ""
    dropped: int = 0


GroupEntry = (
    GroupFounded | GroupKnown | GroupEdited | RowsDone | DeadRow | DeadLetterEnded | GroupForgotten
)
GROUP_ENTRIES: Final = (
    *(GroupFounded, GroupKnown, GroupEdited, RowsDone),
    *(DeadRow, DeadLetterEnded, GroupForgotten),
)


class Group:
    """The state of one group in the log."""

    def __init__(
        self,
        name: str,
        number: int,
        options: GroupOptions,
        done: DoneRows,
        longest: float = 0.0,
        former: tuple[FormerSelector, ...] = (),
    ) -> None:
        self.name = name
        self.number = number
        """The chunk that founded it."""
        self.options = options
        self.done = done
        self.longest = longest or options.lease
        """Seconds of the longest lease that may still run."""
        self.former = former
        """By offset, ascending."""
        self.was_at = self.dropped = 0
        self.told = ""
        self.dead: dict[int, DeadRow] = {}
        """By offset."""

    def former_at(self, offset: int) -> FormerSelector | None:
        """The former selector that applies to the row at this offset; None: the present one."""
        return next((one for one in self.former if offset < one.below), None)

    def selector_at(self, offset: int) -> str:
        """The selector that applies to the row at this offset."""
        former = self.former_at(offset)
        return self.options.selector if former is None else former.selector

    @property
    def has_room_for_selector(self) -> bool:
        """Whether another former selector can be kept: there are few, or the oldest decides about
        no row any more, neither one that is not done nor a dead letter, which may be retried."""
        least = min((self.done.floor, *self.dead))
        return len(self.former) < FORMER_MOST or least >= self.former[0].below

    def edit(self, entry: GroupEdited, chunk: Chunk) -> None:
        """Change the options, from this chunk on."""
        last = self.former[-1].below if self.former else -1
        if entry.options.selector != self.options.selector and chunk.first > last:
            has = FormerSelector(chunk.first, chunk.number, self.options.selector)
            keeps = self.former[1:] if len(self.former) >= FORMER_MOST else self.former
            self.former = (*keeps, has)
        self.options, self.longest = entry.options, entry.longest
        self.dropped += entry.dropped
        self.told = entry.told or self.told


class GroupStates:
    """All groups of a shard."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}

    def floor(self) -> int | None:
        """The lowest offset that is not done for some group; None: there is no group."""
        return min((group.done.floor for group in self.groups.values()), default=None)

    def pass_over(self, offset: int) -> None:
        """Mark all rows below `offset` as done for all groups."""
        for group in self.groups.values():
            group.done.add(group.done.floor, offset)

    def let_go(self, since: int, floor: int) -> Iterator[GroupEdited]:
        """The entries by which the log counts, for each group, the offsets from `since` to before
        `floor` that retention removes before they are done."""
        for name, group in sorted(self.groups.items()):
            dropped, at = 0, max(since, group.done.floor)
            for first, end in (*group.done.runs, (floor, floor)):
                dropped += max(0, min(first, floor) - at)
                at = max(at, end)
            if dropped:
                about = (name, group.number, group.options, group.longest)
                yield GroupEdited(*about, dropped=dropped)

    def entries(self) -> Iterator[GroupEntry]:
        """The groups as entries, in a fixed order."""
        for name in sorted(self.groups):
            group = self.groups[name]
            done = group.done
            about = (name, group.number, group.options, done.floor, done.runs)
            rest = (group.longest, group.former, group.was_at, group.told, group.dropped)
            yield GroupKnown(*about, *rest)
            for offset in sorted(group.dead):
                yield group.dead[offset]

    def take(self, entry: GroupEntry, chunk: Chunk) -> None:
        """Apply an entry of a chunk. An entry of a removed group, or of a former group of the same
        name, changes nothing."""
        if isinstance(entry, GroupFounded):
            founded = Group(entry.name, chunk.number, entry.options, DoneRows(entry.floor))
            self.groups.setdefault(entry.name, founded)
        elif isinstance(entry, GroupKnown):
            done = DoneRows(entry.floor, entry.runs)
            known = Group(
                entry.name, entry.number, entry.options, done, entry.longest, entry.former
            )
            known.was_at, known.told, known.dropped = entry.was_at, entry.told, entry.dropped
            self.groups[entry.name] = known
        elif isinstance(entry, GroupForgotten):
            self.groups.pop(entry.name, None)
        else:
            group = self.groups.get(entry.group)
            if group is None or group.number != entry.number:
                return
            if isinstance(entry, GroupEdited):
                group.edit(entry, chunk)
            else:
                _take(group, entry)


def _take(group: Group, entry: RowsDone | DeadRow | DeadLetterEnded) -> None:
    if isinstance(entry, RowsDone):
        for first, end in entry.runs:
            group.done.add(first, end)
    elif isinstance(entry, DeadRow):
        group.dead[entry.offset] = entry
        group.done.add(entry.offset, entry.offset + 1)
    elif group.dead.pop(entry.offset, None) is not None and entry.retried:
        group.done.remove(entry.offset)
