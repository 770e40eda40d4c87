"""Who wants an event: predicates by key in groups; finds the groups that have one that matches.

A host sends an event once to a node, however many of its registrations match, and a client that
gathers wants an event once for all its subscriptions. With a thousand matches for ten groups, a
list of keys per event is most of the work; here a kernel turns the labels that the index finds into
groups, for many events in one call. Each group found comes with one key as a witness.

`find_many` tells it pair by pair, `find_by_group` by group. `share` divides a batch among the
groups, so that who hands the events on has nothing to do for each pair, and counts how often each
key was the witness.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from matching.conjunction import Conjunction
from matching.index import CHANGE_OVER, Index
from matching.predicate import Predicate
from matching.values import Attributes

if TYPE_CHECKING:
    from matching.engine.engine import Engine
    from matching.engine.group_matcher import GroupMatcher, Pairs

Key = TypeVar("Key", bound=Hashable)
Group = TypeVar("Group", bound=Hashable)


MANY = 64
"""Pairs from which NumPy divides them faster by group than a loop (measured: alike at 40 to 80)."""


class Shares(NamedTuple, Generic[Key, Group]):
    """What each group gets of a batch of events."""

    wanted: list[int]
    """The places in the batch of the events that some group gets, in order."""
    witnesses: list[Key]
    """Of each of these events a key whose predicate is true."""
    places: dict[Group, list[int]]
    """By group: where its events are in `wanted`, in order."""


class GroupedIndex(Generic[Key, Group]):
    """Predicates by key, each in one group. Groups are any hashable; one that is empty is gone."""

    def __init__(self, change_over: int = CHANGE_OVER) -> None:
        """`change_over`: as for `Index`."""
        self.index: Index[Key] = Index(change_over)
        self._group_of: dict[Key, Group] = {}
        self._sizes: dict[Group, int] = {}
        self._numbers: dict[Group, int] = {}  # only since the index has become fast
        self._by_number: list[Group | None] = []
        self._free: list[int] = []
        self._batches: GroupMatcher | None = None
        self._hits: dict[Key, int] = {}  # that were not counted by label

    def __len__(self) -> int:
        return len(self._group_of)

    def __contains__(self, key: object) -> bool:
        return key in self._group_of

    def groups(self) -> Iterable[Group]:
        """All groups that have a predicate."""
        return self._sizes.keys()

    def group_of(self, key: Key) -> Group:
        """The group of a key; KeyError if it is not there."""
        return self._group_of[key]

    def add(self, key: Key, predicate: Predicate | Conjunction, group: Group) -> None:
        """Register a predicate under a key in a group; what the key stood for is replaced."""
        if key in self._group_of:
            self._leave(key)
        self._group_of[key] = group
        self._sizes[group] = self._sizes.get(group, 0) + 1
        self.index.add(key, predicate)
        if self._batches is not None:
            self._note(self._batches, key, group)

    def remove(self, key: Key) -> None:
        """Take a key out; KeyError if it is not there."""
        self._leave(key)
        del self._group_of[key]
        self.index.remove(key)

    def _leave(self, key: Key) -> None:
        group = self._group_of[key]
        self._hits.pop(key, None)
        self._sizes[group] -= 1
        if not self._sizes[group]:
            del self._sizes[group]
            number = self._numbers.pop(group, None)
            if number is not None:
                self._by_number[number] = None
                self._free.append(number)

    def match(self, attributes: Attributes) -> list[Key]:
        """The keys whose predicate is true, each once, in the order in which they were added."""
        return self.index.match(attributes)

    def find(self, attributes: Attributes) -> dict[Group, Key]:
        """The groups of which some predicate is true, each with the key of one such."""
        return {group: key for _, group, key in self.find_many((attributes,))}

    def find_many(self, batch: Sequence[Attributes]) -> list[tuple[int, Group, Key]]:
        """`find` for each of several events: (place in the batch, group, key), events in order."""
        found = self._find_fast(batch)
        return self._find_each(batch) if found is None else self._pairs(found, batch)

    def find_by_group(
        self, batch: Sequence[Attributes]
    ) -> dict[Group, tuple[list[int], list[Key]]]:
        """`find_many` by group: the places of its events, in order, and a key for each."""
        found = self._find_fast(batch)
        is_sure = found is not None and not found.unsure and not self.index.has_plain
        if found is not None and is_sure and len(found.places) >= MANY:
            assert self._batches is not None, "it has found this"
            by_number, keys_of = self._by_number, self.index.keys_of
            return {
                by_number[number]: (places, keys_of(labels))  # type: ignore[misc]
                for number, (places, labels) in self._batches.by_group(found).items()
            }
        groups: dict[Group, tuple[list[int], list[Key]]] = {}
        pairs = self._find_each(batch) if found is None else self._pairs(found, batch)
        for position, group, key in pairs:
            mine = groups.get(group)
            if mine is None:
                mine = groups[group] = ([], [])
            mine[0].append(position)
            mine[1].append(key)
        return groups

    def share(self, batch: Sequence[Attributes]) -> Shares[Key, Group]:
        """`find_many` by group. Each pair of an event and a group is a hit of its witness."""
        found = self._find_fast(batch)
        if found is None:
            return self._share(self._find_each(batch))
        if found.unsure or self.index.has_plain or len(found.places) < MANY:
            return self._share(self._pairs(found, batch))
        assert self._batches is not None, "it has found this"
        wanted, labels, places = self._batches.share(found)
        by_group = {self._by_number[number]: mine for number, mine in places.items()}
        return Shares(wanted, self.index.keys_of(labels), by_group)  # type: ignore[arg-type]

    def hits(self, key: Key) -> int:
        """How often a key was the witness of what was shared, since it was added; KeyError if it
        is not there."""
        by_label = 0 if self._batches is None else self._batches.hits(self.index.labels_of(key))
        return self._hits.get(key, 0) + by_label

    def _share(self, pairs: Iterable[tuple[int, Group, Key]]) -> Shares[Key, Group]:
        """What was found pair by pair, by group."""
        shares: Shares[Key, Group] = Shares([], [], {})
        wanted, witnesses, places = shares
        for position, group, key in pairs:
            if not wanted or wanted[-1] != position:
                wanted.append(position)
                witnesses.append(key)
            places.setdefault(group, []).append(len(wanted) - 1)
            self._hits[key] = self._hits.get(key, 0) + 1
        return shares

    def _find_fast(self, batch: Sequence[Attributes]) -> Pairs | None:
        """What the fast engine finds; None: there is none."""
        engine = self.index.fast
        if engine is None:
            return None
        batches = self._number_all(engine) if self._batches is None else self._batches
        return batches.find(batch, len(self._sizes))

    def _find_each(self, batch: Sequence[Attributes]) -> list[tuple[int, Group, Key]]:
        """What the plain engine finds."""
        return [
            (position, group, key)
            for position, attributes in enumerate(batch)
            for group, key in self._find_plainly(attributes).items()
        ]

    def _pairs(self, found: Pairs, batch: Sequence[Attributes]) -> list[tuple[int, Group, Key]]:
        """What the fast engine has found, pair by pair, and what it leaves to others."""
        groups = map(self._by_number.__getitem__, found.groups.tolist())
        keys = self.index.keys_of(found.labels.tolist())
        pairs = list(zip(found.places.tolist(), groups, keys, strict=True))
        if found.unsure or self.index.has_plain:
            self._complete(pairs, batch, found.unsure)  # type: ignore[arg-type]
        return pairs  # type: ignore[return-value]

    def _find_plainly(self, attributes: Attributes) -> dict[Group, Key]:
        found: dict[Group, Key] = {}
        for key in self.index.match(attributes):
            found.setdefault(self._group_of[key], key)
        return found

    def _complete(
        self, found: list[tuple[int, Group, Key]], batch: Sequence[Attributes], unsure: list[int]
    ) -> None:
        """Add what the plain engine finds, and what the fast one leaves to Python."""
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

    def _number_all(self, engine: Engine) -> GroupMatcher:
        """The index has become fast: from now on labels are turned into groups by a kernel."""
        from matching.engine.group_matcher import GroupMatcher

        self._batches = GroupMatcher(engine)
        for key, group in self._group_of.items():
            self._note(self._batches, key, group)
        return self._batches

    def _note(self, batches: GroupMatcher, key: Key, group: Group) -> None:
        """Write a key's group where its labels lead to."""
        number = self._numbers.get(group)
        if number is None:
            number = self._free.pop() if self._free else len(self._by_number)
            if number == len(self._by_number):
                self._by_number.append(None)
            self._by_number[number] = group
            self._numbers[group] = number
        for label in self.index.labels_of(key):
            batches.note(label, number)
