"""What a shard's log says of consumer groups: which there are, which rows each is done with, and
its dead letters.

A row that a group is *done* with was acknowledged, is dead, or does not match the group's selector:
the log does not tell these apart, since runs are shorter so. A dead letter is a mark: the row stays
where it is, and is done with until somebody has it tried again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from streams.log.chunk import Chunk
from streams.log.runs import Runs

NAME_MOST: Final = 128
"""Characters of a group's name at most."""

SELECTOR_MOST: Final = 16 * 1024
"""Characters of a group's selector at most (`matching.selector.expression.MAX_TEXT`)."""

ATTRIBUTE_MOST: Final = 256
"""Characters of an attribute's name in a group's options at most."""

LEASE: Final = 30.0
"""Seconds of a lease, where its founder does not say: as the visibility timeout of Amazon SQS."""

LEASE_LEAST: Final = 1.0
LEASE_MOST: Final = 86_400.0
"""Seconds of a lease. A shorter one would end on the way; a longer one keeps rows that nobody works
on (a member whose node is out of reach) away from others. Guesses."""

DELIVERIES: Final = 5
"""Deliveries of a row, where the group's founder does not say. Guess."""

DELIVERIES_MOST: Final = 1_000

FORMER_MOST: Final = 8
"""Former selectors of a group that are kept: those that rows which it is not done with go by, and
of others as many as there is room for, so that it can be said what became of their rows. Guess."""

Attribute = Annotated[str, msgspec.Meta(max_length=ATTRIBUTE_MOST)]
Run = tuple[int, int]


class GroupOptions(msgspec.Struct, frozen=True, array_like=True):
    """What a group was founded with, or has been changed to (`streams.groups.founding`)."""

    selector: Annotated[str, msgspec.Meta(max_length=SELECTOR_MOST)] = ""
    """Which rows it gets; empty: all."""
    lease: Annotated[float, msgspec.Meta(ge=LEASE_LEAST, le=LEASE_MOST)] = LEASE
    """Seconds after which a row that was not acknowledged goes to another member."""
    deliveries: Annotated[int, msgspec.Meta(ge=1, le=DELIVERIES_MOST)] = DELIVERIES
    """How many times a row is delivered before it is a dead letter."""
    by: Attribute = ""
    """Rows that are alike in this attribute come one after the other; empty: in no order."""
    priority: Attribute = ""
    """Rows with a greater number there come first; empty: those with a lower offset do."""
    delay: Attribute = ""
    """A row is delivered when so many seconds have passed since it was appended; empty: none."""
    delay_seconds: Annotated[float, msgspec.Meta(ge=0, le=LEASE_MOST * 30)] = 0.0
    """The same for all rows, in addition."""


class GroupFounded(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """There is a group from now on, unless there was; it gets rows from the offset `floor` on. Its
    number is that of the chunk that says so: another group of that name has another one."""

    name: str
    options: GroupOptions
    floor: int


class FormerSelector(msgspec.Struct, frozen=True, array_like=True):
    """The selector that a group had until chunk `chunk`: rows below the offset `below`, which are
    all rows before that chunk, go by it, down to the selector before it."""

    below: int
    chunk: int
    selector: str


class GroupKnown(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """What a segment's state says of a group, beside its dead letters. `longest`: seconds of the
    longest lease that may be under way, 0: that of the options. `was_at`: it was done with rows up
    to there before the log lost them, 0: it has lost none; `dropped`: offsets that
    it was not done with when they were let go of; `told`: the program that heard of either."""

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
    """A group is done with all rows in these runs: (first offset, offset behind the last)."""

    group: str
    number: int
    runs: tuple[Run, ...]


class DeadLetter(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """A group has given up a row after so many deliveries, at `time` (nanoseconds since 1970)."""

    group: str
    number: int
    offset: int
    deliveries: int
    reason: str
    time: int


class DeadLetterEnded(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """A dead letter is none any more: the row is to be delivered again, or is done with for
    good."""

    group: str
    number: int
    offset: int
    retried: bool


class GroupForgotten(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """There is no such group any more."""

    name: str


class GroupEdited(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """A group has these options from now on. Rows that stand before this chunk go by the selector
    that it had when they were appended. `longest`, `told`: as in `GroupKnown`.
    `dropped`: as there, so many more."""

    group: str
    number: int
    options: GroupOptions
    longest: float
    told: str = ""
    dropped: int = 0


GroupEntry = (
    GroupFounded
    | GroupKnown
    | GroupEdited
    | RowsDone
    | DeadLetter
    | DeadLetterEnded
    | GroupForgotten
)
GROUP_ENTRIES: Final = (
    *(GroupFounded, GroupKnown, GroupEdited, RowsDone),
    *(DeadLetter, DeadLetterEnded, GroupForgotten),
)


class Group:
    """One group, as the log has it."""

    def __init__(
        self,
        name: str,
        number: int,
        options: GroupOptions,
        done: Runs,
        longest: float = 0.0,
        former: tuple[FormerSelector, ...] = (),
    ) -> None:
        self.name = name
        self.number = number
        """The chunk that founded it."""
        self.options = options
        self.done = done
        self.longest = longest or options.lease
        """Seconds of the longest lease that may be under way."""
        self.former = former
        """By offset, ascending."""
        self.was_at = self.dropped = 0
        self.told = ""
        self.dead: dict[int, DeadLetter] = {}
        """By offset."""

    def former_at(self, offset: int) -> FormerSelector | None:
        """The former selector that the row at this offset goes by; None: the group's own."""
        return next((one for one in self.former if offset < one.below), None)

    def selector_at(self, offset: int) -> str:
        """The selector that the row at this offset goes by."""
        former = self.former_at(offset)
        return self.options.selector if former is None else former.selector

    @property
    def has_room_for_selector(self) -> bool:
        """Whether another selector can be noted: of the former ones one is not needed any more, or
        there are few."""
        return len(self.former) < FORMER_MOST or not self._needs(self.former[0])

    def _needs(self, former: FormerSelector) -> bool:
        """Whether a row may still be delivered by this selector: one that the group is not done
        with, or a dead letter, which may be tried again."""
        return min((self.done.floor, *self.dead)) < former.below

    def edit(self, entry: GroupEdited, chunk: Chunk) -> None:
        """The group has other options from this chunk on."""
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
        """The lowest offset that a group is not done with; None: there is no group."""
        return min((group.done.floor for group in self.groups.values()), default=None)

    def pass_over(self, offset: int) -> None:
        """All groups are done with what stands below `offset`."""
        for group in self.groups.values():
            group.done.add(group.done.floor, offset)

    def let_go(self, since: int, floor: int) -> Iterator[GroupEdited]:
        """What is to be said of groups that are not done with all offsets from `since` on to before
        `floor`, which are let go of."""
        for name, group in sorted(self.groups.items()):
            dropped, at = 0, max(since, group.done.floor)
            for first, end in (*group.done.runs, (floor, floor)):
                dropped += max(0, min(first, floor) - at)
                at = max(at, end)
            if dropped:
                about = (name, group.number, group.options, group.longest)
                yield GroupEdited(*about, dropped=dropped)

    def entries(self) -> Iterator[GroupEntry]:
        """All that there is to know, in a fixed order."""
        for name in sorted(self.groups):
            group = self.groups[name]
            done = group.done
            about = (name, group.number, group.options, done.floor, done.runs)
            rest = (group.longest, group.former, group.was_at, group.told, group.dropped)
            yield GroupKnown(*about, *rest)
            for offset in sorted(group.dead):
                yield group.dead[offset]

    def take(self, entry: GroupEntry, chunk: Chunk) -> None:
        """What a chunk says of groups. What it says of a group that is forgotten, or of a former
        one of the same name, is passed over."""
        if isinstance(entry, GroupFounded):
            founded = Group(entry.name, chunk.number, entry.options, Runs(entry.floor))
            self.groups.setdefault(entry.name, founded)
        elif isinstance(entry, GroupKnown):
            done = Runs(entry.floor, entry.runs)
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


def _take(group: Group, entry: RowsDone | DeadLetter | DeadLetterEnded) -> None:
    if isinstance(entry, RowsDone):
        for first, end in entry.runs:
            group.done.add(first, end)
    elif isinstance(entry, DeadLetter):
        group.dead[entry.offset] = entry
        group.done.add(entry.offset, entry.offset + 1)
    elif group.dead.pop(entry.offset, None) is not None and entry.retried:
        group.done.remove(entry.offset)
