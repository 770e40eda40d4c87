"""An index of predicates in groups: finds the groups of which at least one predicate is true.

A host sends an event to a node once, however many of the node's registrations match, and a client
that gathers gets an event once for all its subscriptions. With a thousand matches in ten groups,
making a list of keys per event would be most of the work; here a kernel turns the labels that the
index finds into groups, for many events in one call. Each group is found together with one key of
it whose predicate is true, the *witness*.

The same result comes in three forms: `find_many` returns (event, group) pairs, `find_by_group`
lists by group, and `share` a batch divided among the groups, without any work per pair for the
caller; it also counts how often each key was the witness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from matching.conjunction import Conjunction
from matching.index import CHANGE_OVER, Index
from matching.predicate import Predicate
from matching.values import Attributes

if TYPE_CHECKING:
    from matching.engine.block_engine import BlockEngine
    from matching.engine.group_matcher import GroupMatcher, Pairs

Key = TypeVar("Key", bound=Hashable)
Group = TypeVar("Group", bound=Hashable)


DIVIDED_FROM = 32
"""Pairs from which a kernel sorts them by group faster than a loop. Measured: alike at 16 to 32."""


class Shares(NamedTuple, Generic[Key, Group]):
    """A batch of events divided among the groups."""

    wanted: list[int]
    """Indices in the batch of the events that at least one group gets, ascending."""
    witnesses: list[Key]
    """For each of these events, a key whose predicate is true."""
    places: dict[Group, list[int]]
    """By group: indices in `wanted` of the events that it gets, ascending."""


class Grouping(Generic[Key, Group]):
    """The keys of an index in groups. Keys and groups are any hashable. An index may have several
    groupings, each with groups of its own.

    A group exists as long as it has a key.
    """

    def __init__(self, index: Index[Key]) -> None:
        """Group keys of `index`. Each of its keys must be in a group before matches are asked
        for."""
        self.index = index
        self._group_of: dict[Key, Group] = {}
        self._sizes: dict[Group, int] = {}
        self._numbers: dict[Group, int] = {}  # used with the block engine only
        self._by_number: list[Group | None] = []
        self._free: list[int] = []
        self._group_matcher: GroupMatcher | None = None
        self._hits: Counter[Key] = Counter()  # those not counted by label

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, key: object) -> bool:
        return key in self._group_of

    def groups(self) -> Set[Group]:
        """All groups that have at least one key."""
        return self._sizes.keys()

    def group_of(self, key: Key) -> Group:
        """The group in which a key is. KeyError if it is in none."""
        return self._group_of[key]

    def size(self, group: Group) -> int:
        """Return the number of keys in a group."""
        return self._sizes.get(group, 0)

    def count_groups(self) -> int:
        """Return the number of groups that have a key."""
        return len(self._sizes)

    def put(self, key: Key, group: Group) -> None:
        """Put a key of the index into a group, out of the one in which it was."""
        self.put_many((key,), group)

    def put_many(self, keys: Collection[Key], group: Group) -> None:
        """`put` each of these keys, at least one, no two of which are the same."""
        for key in keys:
            if key in self._group_of:
                self.take_out(key)
        self._group_of.update(dict.fromkeys(keys, group))
        self._sizes[group] = self._sizes.get(group, 0) + len(keys)
        if self._group_matcher is not None:
            self._number(self._group_matcher, keys, group)

    def take_out(self, key: Key) -> None:
        """Take a key out of its group, and forget the group if it was the last; KeyError if it is
        in none. To be put into another one, or removed from the index."""
        group = self._group_of.pop(key)
        self._hits.pop(key, None)
        self._sizes[group] -= 1
        if not self._sizes[group]:
            del self._sizes[group]
            number = self._numbers.pop(group, None)
            if number is not None:
                self._by_number[number] = None
                self._free.append(number)

    def match(self, attributes: Attributes) -> list[Key]:
        """The keys whose predicate is true for an event, each once, in the order of insertion."""
        return self.index.match(attributes)

    def find(self, attributes: Attributes) -> dict[Group, Key]:
        """Return the groups of which some predicate is true for an event, each with its witness."""
        return {group: key for _, group, key in self.find_many((attributes,))}

    def find_many(self, batch: Sequence[Attributes]) -> list[tuple[int, Group, Key]]:
        """`find` for a batch: (index in the batch, group, witness), in the order of the events."""
        found = self._find_fast(batch)
        return self._find_each(batch) if found is None else self._pairs(found, batch)

    def find_by_group(
        self, batch: Sequence[Attributes]
    ) -> dict[Group, tuple[list[int], list[Key]]]:
        """`find_many` by group: (indices of its events, ascending; the witness of each)."""
        found = self._find_fast(batch)
        if found is not None and self._is_for_kernel(found):
            assert self._group_matcher is not None, "it has found this"
            by_number, keys_of = self._by_number, self.index.keys_of
            return {
                by_number[number]: (places, keys_of(labels))  # type: ignore[misc]
                for number, (places, labels) in self._group_matcher.by_group(found).items()
            }
        groups: dict[Group, tuple[list[int], list[Key]]] = {}
        pairs = self._find_each(batch) if found is None else self._pairs(found, batch)
        for position, group, key in pairs:
            its_events = groups.get(group)
            if its_events is None:
                its_events = groups[group] = ([], [])
            its_events[0].append(position)
            its_events[1].append(key)
        return groups

    def share(self, batch: Sequence[Attributes]) -> Shares[Key, Group]:
        """Match a batch, and divide its (event, group) pairs among the groups. Each pair counts as
        a hit of its witness (`hits`)."""
        found = self._find_fast(batch)
        if found is None:
            return self._share_pairs(self._find_each(batch))
        if not self._is_for_kernel(found):
            return self._share_pairs(self._pairs(found, batch))
        assert self._group_matcher is not None, "it has found this"
        wanted, labels, places = self._group_matcher.share(found)
        by_group = {self._by_number[number]: its_events for number, its_events in places.items()}
        return Shares(wanted, self.index.keys_of(labels), by_group)  # type: ignore[arg-type]

    def share_found(
        self, batch: Sequence[Attributes], witnesses: Mapping[int, Key]
    ) -> Shares[Key, Group]:
        """`share` where for some events a witness is known, by index in the batch (ascending), and
        there is only one group: only the other events are matched, and count as hits."""
        if len(witnesses) == len(batch):
            wanted, keys = list(witnesses), list(witnesses.values())
            return Shares(wanted, keys, {self._group_of[keys[0]]: wanted} if keys else {})
        others = [place for place in range(len(batch)) if place not in witnesses]
        matched = self.find_many([batch[place] for place in others])
        self._hits.update(key for _, _, key in matched)
        pairs = [(place, self._group_of[key], key) for place, key in witnesses.items()]
        pairs += [(others[position], group, key) for position, group, key in matched]
        pairs.sort(key=itemgetter(0))
        return self._divided(pairs)

    def _is_for_kernel(self, found: Pairs) -> bool:
        """Whether what the block engine found is complete, and enough to be sorted there."""
        return not (found.unsure or self.index.has_plain or len(found.positions) < DIVIDED_FROM)

    def hits(self, key: Key) -> int:
        """Return how often a key was the witness in `share` since it was added. Raises KeyError."""
        by_label = (
            0
            if self._group_matcher is None
            else self._group_matcher.hits(self.index.labels_of(key))
        )
        return self._hits[key] + by_label

    def _share_pairs(self, pairs: Iterable[tuple[int, Group, Key]]) -> Shares[Key, Group]:
        """`share` for pairs, in the order of the events."""
        found = list(pairs)
        self._hits.update(key for _, _, key in found)
        return self._divided(found)

    def _divided(self, pairs: Iterable[tuple[int, Group, Key]]) -> Shares[Key, Group]:
        """Pairs, in the order of the events, divided among the groups."""
        shares: Shares[Key, Group] = Shares([], [], {})
        wanted, witnesses, places = shares
        for position, group, key in pairs:
            if not wanted or wanted[-1] != position:
                wanted.append(position)
                witnesses.append(key)
            places.setdefault(group, []).append(len(wanted) - 1)
        return shares

    def _find_fast(self, batch: Sequence[Attributes]) -> Pairs | None:
        """Return the matches of the block engine; None if it is not in use."""
        engine = self.index.block_engine
        if engine is None:
            return None
        matcher = self._number_all(engine) if self._group_matcher is None else self._group_matcher
        return matcher.find(batch, len(self._sizes))

    def _find_each(self, batch: Sequence[Attributes]) -> list[tuple[int, Group, Key]]:
        """The pairs of a batch, found event by event."""
        pairs: list[tuple[int, Group, Key]] = []
        for position, attributes in enumerate(batch):
            witnesses: dict[Group, Key] = {}
            for key in self.index.match(attributes):
                witnesses.setdefault(self._group_of[key], key)
            pairs += [(position, group, key) for group, key in witnesses.items()]
        return pairs

    def _pairs(self, found: Pairs, batch: Sequence[Attributes]) -> list[tuple[int, Group, Key]]:
        """Convert the matches of the block engine to pairs, completed by those that only Python can
        decide."""
        groups = map(self._by_number.__getitem__, found.groups.tolist())
        keys = self.index.keys_of(found.labels.tolist())
        pairs = list(zip(found.positions.tolist(), groups, keys, strict=True))
        if found.unsure or self.index.has_plain:
            self._complete(pairs, batch, found.unsure)  # type: ignore[arg-type]
        return pairs  # type: ignore[return-value]

    def _complete(
        self, found: list[tuple[int, Group, Key]], batch: Sequence[Attributes], unsure: list[int]
    ) -> None:
        """Add to the sorted pairs found those of the plain engine, and those of `unsure` events.

        Each group stays once per event, with its first witness.
        """
        index, doubtful = self.index, dict.fromkeys(unsure)
        more: list[tuple[int, Group, Key]] = []
        for position, attributes in enumerate(batch):
            if position in doubtful:
                labels = index.match_labels(attributes).tolist()
            else:
                labels = index.match_plain(attributes)
            more += [(position, self._group_of[key], key) for key in index.keys_of(labels)]
        if more:
            first: dict[tuple[int, Group], Key] = {}
            for position, group, key in chain(found, more):
                first.setdefault((position, group), key)
            found[:] = sorted(
                ((position, group, key) for (position, group), key in first.items()),
                key=itemgetter(0),
            )

    def _number_all(self, engine: BlockEngine) -> GroupMatcher:
        """Number all groups for the kernel, now that the index uses the block engine."""
        from matching.engine.group_matcher import GroupMatcher

        self._group_matcher = GroupMatcher(engine)
        members: dict[Group, list[Key]] = {}
        for key, group in self._group_of.items():
            members.setdefault(group, []).append(key)
        for group, keys in members.items():
            self._number(self._group_matcher, keys, group)
        return self._group_matcher

    def _number(self, matcher: GroupMatcher, keys: Iterable[Key], group: Group) -> None:
        """Note the group of some keys for each of their labels."""
        number = self._numbers.get(group)
        if number is None:
            number = self._free.pop() if self._free else len(self._by_number)
            if number == len(self._by_number):
                self._by_number.append(None)
            self._by_number[number] = group
            self._numbers[group] = number
        labels_of = self.index.labels_of
        matcher.set_group([label for key in keys for label in labels_of(key)], number)


class GroupedIndex(Grouping[Key, Group]):
    """Predicates by key, each in one group: an index of its own, with a grouping of its keys."""

    def __init__(self, change_over: int = CHANGE_OVER) -> None:
        """`change_over`: as for `Index`."""
        super().__init__(Index(change_over))

    def add(self, key: Key, predicate: Predicate | Conjunction, group: Group) -> None:
        """Register a predicate under a key in a group; replaces what the key had before."""
        if key in self:
            self.take_out(key)
        self.index.add(key, predicate)
        self.put(key, group)

    def add_many(self, items: Sequence[tuple[Key, Predicate | Conjunction]], group: Group) -> None:
        """`add` each of these to one group, together (`Index.add_many`)."""
        keys = dict.fromkeys([key for key, _ in items])
        for key in keys:
            if key in self:
                self.take_out(key)
        self.index.add_many(items)
        self.put_many(keys, group)

    def remove(self, key: Key) -> None:
        """Remove a key; KeyError if it is not there."""
        self.take_out(key)
        self.index.remove(key)
