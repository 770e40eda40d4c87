"""Who wants an event: predicates by key in groups; finds the groups that have one that matches.

A host sends an event once to a node, however many of its registrations match, and a client that
gathers wants an event once for all its subscriptions. With a thousand matches for ten groups, a
list of keys per event is most of the work; here the labels that the index finds become groups in a
few array operations. Each group found comes with one key as a witness.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from matching.conjunction import Conjunction
from matching.index import CHANGE_OVER, Index
from matching.predicate import Predicate
from matching.values import Attributes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Key = TypeVar("Key", bound=Hashable)
Group = TypeVar("Group", bound=Hashable)


class Groups(Generic[Key, Group]):
    """Predicates by key, each in one group. Groups are any hashable; one that is empty is gone."""

    def __init__(self, change_over: int = CHANGE_OVER) -> None:
        """`change_over`: as for `Index`."""
        self.index: Index[Key] = Index(change_over)
        self._group_of: dict[Key, Group] = {}
        self._sizes: dict[Group, int] = {}
        self._numbers: dict[Group, int] = {}  # only since the index has become fast
        self._by_number: list[Group | None] = []
        self._free: list[int] = []
        self._by_label: npt.NDArray[np.int32] | None = None
        self._witnesses: npt.NDArray[np.int64] | None = None

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
        if self._by_label is not None:
            self._note(key, group)

    def remove(self, key: Key) -> None:
        """Take a key out; KeyError if it is not there."""
        self._leave(key)
        del self._group_of[key]
        self.index.remove(key)

    def _leave(self, key: Key) -> None:
        group = self._group_of[key]
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
        if not self.index.is_fast:
            found: dict[Group, Key] = {}
            for key in self.index.match(attributes):
                found.setdefault(self._group_of[key], key)
            return found
        labels = self.index.match_labels(attributes)
        if not len(labels):
            return {}
        if self._by_label is None:
            self._number_all()
        assert self._by_label is not None
        assert self._witnesses is not None
        key_of = self.index.key_of
        if len(labels) == 1:
            key = key_of(int(labels[0]))
            return {self._group_of[key]: key}
        witnesses = self._witnesses
        witnesses[self._by_label[labels]] = labels
        hit = (witnesses >= 0).nonzero()[0]
        ones = witnesses[hit].tolist()
        witnesses[hit] = -1
        by_number = self._by_number
        return {
            by_number[number]: key_of(label)  # type: ignore[misc]
            for number, label in zip(hit.tolist(), ones, strict=True)
        }

    def _number_all(self) -> None:
        """The index has become fast: from now on labels are turned into groups by arrays."""
        import numpy as np

        self._by_label = np.zeros(2 * len(self._group_of) + 16, np.int32)
        self._witnesses = np.full(16, -1, np.int64)
        for key, group in self._group_of.items():
            self._note(key, group)

    def _note(self, key: Key, group: Group) -> None:
        """Write a key's group where its labels lead to."""
        import numpy as np

        assert self._by_label is not None
        assert self._witnesses is not None
        number = self._numbers.get(group)
        if number is None:
            number = self._free.pop() if self._free else len(self._by_number)
            if number == len(self._by_number):
                self._by_number.append(None)
            self._by_number[number] = group
            self._numbers[group] = number
            if number >= len(self._witnesses):
                self._witnesses = np.full(2 * number, -1, np.int64)
        for label in self.index.labels_of(key):
            if label >= len(self._by_label):
                wider = np.zeros(2 * label, np.int32)
                wider[: len(self._by_label)] = self._by_label
                self._by_label = wider
            self._by_label[label] = number
