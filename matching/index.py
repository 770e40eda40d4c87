"""Which of many predicates match an event: the index of a virtual node, a subscriber, a log.

The narrow door to two engines that give the same answers. The plain one holds everything at first
and whatever has no constraint on an attribute; where predicates become many, the fast one takes
over. Each conjunction lies in exactly one of them, so the change-over is a walk in small steps: a
few conjunctions are moved with every call, and a match asks both. The fast engine has to be made
ready first (`warming`); until that is done, nothing moves. An index with few predicates does not
even import NumPy.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, TypeVar

from matching.conjunction import Conjunction
from matching.plain_engine import PlainEngine
from matching.predicate import Predicate
from matching.values import Attributes
from matching.warming import is_warm, usable_for, warm

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from matching.engine.engine import Engine

Key = TypeVar("Key", bound=Hashable)

# Conjunctions from which the fast engine is worth its start and its memory (15 MB with NumPy, and 4
# at least for its own). Measured (docs/lab/matching.md): the plain one takes 140 microseconds at
# 500, 200 at 1,000 and 12,000 at 10,000; the fast one 3 to 5.
CHANGE_OVER = 500
# Fewer that are asked often are worth it, too, once the plain engine has spent as much on them as
# the change-over costs (rent until that would have bought it). In conjunctions times matches: the
# plain engine takes 0.1 to 0.3 microseconds for one, so below FEW of them less than 10 per match,
# which the fast one takes as well where events come one by one (measured: alike at 20).
FEW = 32
WORN = 100_000  # 30 ms, for some 7 MB and 10 ms
WORN_COLD = 500_000  # 0.1 s: what starting it takes when it comes from disk
# The sample that the fast engine is made for: some ends of intervals for each of an attribute's
# buckets. Wild guess.
SAMPLE = 1000
# Conjunctions moved per call, and the part of all that moves with a match: at 10 to 20 microseconds
# each that takes about as long as the plain engine does for the match. Measured: 10,000 have moved
# after 84 matches, in 0.24 s; with 8 per match it took 1,126, and 2.3 s.
STEP = 8
PART = 16


def _array(labels: list[int]) -> npt.NDArray[np.uint32]:
    import numpy as np

    return np.array(labels, np.uint32)


class Index(Generic[Key]):
    """Predicates by key; finds the keys whose predicate an event matches.

    Keys are any hashable. A key that is added again has its predicate replaced and keeps its place
    in the order. `change_over` is the number of conjunctions from which the fast engine is used
    at once; fewer get it when they are asked often.
    """

    def __init__(self, change_over: int = CHANGE_OVER) -> None:
        # Each conjunction has a label, a small integer that is used again when it is free.
        self._labels: dict[Key, int | tuple[int, ...]] = {}
        self._keys: list[Key | None] = []
        self._sequences = array("q")  # by label: where its key stands in the order
        self._free: list[int] = []
        self._next = 0
        self._several = 0  # keys with more than one conjunction
        self._change_over = change_over
        self._plain = PlainEngine()
        self._in_plain = self._plain.slots
        self._fast: Engine | None = None
        self._worn = 0  # conjunctions times matches in the plain engine
        # What is in the plain engine and could be in the fast one.
        self._waiting: dict[int, Conjunction] = {}

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, key: object) -> bool:
        return key in self._labels

    # Changes.

    def add(self, key: Key, predicate: Predicate | Conjunction) -> None:
        """Register a predicate, or one conjunction of it, under a key."""
        for label, conjunction in self._register(key, predicate):
            self._place(label, conjunction)
        if self._waiting:
            self._advance()

    def add_many(self, items: Iterable[tuple[Key, Predicate | Conjunction]]) -> None:
        """`add` for each of many; the fast engine lays them out better and sooner than one by one.

        Returns when all is done, `warm` included where it is worth it. The first few thousand are
        taken as a sample of all, so better not in some order.
        """
        pairs = (pair for key, predicate in items for pair in self._register(key, predicate))
        fresh = self._fast is None and not self._waiting
        head = list(islice(pairs, max(self._change_over, 4 * SAMPLE))) if fresh else []
        if fresh and len(head) >= self._change_over:
            warm()
            self._start(head, pairs)
            return
        for label, conjunction in chain(head, pairs):
            self._place(label, conjunction)
        if self._waiting:
            self._advance()

    def _register(
        self, key: Key, predicate: Predicate | Conjunction
    ) -> list[tuple[int, Conjunction]]:
        """Labels for a predicate's conjunctions; what the key stood for before is taken out."""
        conjunctions = (
            (predicate,) if isinstance(predicate, Conjunction) else predicate.conjunctions
        )
        sequence = self._next
        self._next += 1
        if key in self._labels:
            sequence = self._take_out(key)
        labels = []
        for _ in conjunctions or (None,):  # one that can never be true has a label, too
            if self._free:
                label = self._free.pop()
                self._keys[label] = key
                self._sequences[label] = sequence
            else:
                label = len(self._keys)
                self._keys.append(key)
                self._sequences.append(sequence)
            labels.append(label)
        self._labels[key] = labels[0] if len(labels) == 1 else tuple(labels)
        self._several += len(labels) > 1
        return list(zip(labels, conjunctions, strict=False))

    def _place(self, label: int, conjunction: Conjunction) -> None:
        if self._fast is not None and not self._waiting and conjunction.constraints:
            self._fast.add(label, conjunction)
            return
        self._plain.add(label, conjunction)
        if conjunction.constraints:
            self._waiting[label] = conjunction

    def remove(self, key: Key) -> None:
        """Take a key out; KeyError if it is not there."""
        self._take_out(key)
        del self._labels[key]

    def _take_out(self, key: Key) -> int:
        """Take a key's conjunctions out and free their labels; where it stood in the order."""
        labels = self._labels[key]
        many = labels if isinstance(labels, tuple) else (labels,)
        self._several -= len(many) > 1
        for label in many:
            self._keys[label] = None
            if label in self._plain:
                self._plain.remove(label)
                self._waiting.pop(label, None)
            elif self._fast is not None and label in self._fast:
                self._fast.remove(label)
        self._free.extend(many)
        return self._sequences[many[0]]

    def _advance(self, most: int = 0) -> None:
        """Move a few conjunctions to the fast engine, or so many, if it is time."""
        if self._fast is None:
            if not self._is_worth_it() or not usable_for(len(self._waiting)):
                return
            sample = list(islice(self._waiting.items(), SAMPLE))
            for label, _ in sample:
                del self._waiting[label]
                self._plain.remove(label)
            self._start(sample, iter(()))
            return
        for _ in range(min(max(STEP, most), len(self._waiting))):
            label, conjunction = self._waiting.popitem()
            self._plain.remove(label)
            self._fast.add(label, conjunction)

    def _is_worth_it(self) -> bool:
        """Whether the fast engine would pay: for many, or for some that are asked often."""
        if len(self._waiting) >= self._change_over:
            return True
        worn = WORN if is_warm() else WORN_COLD
        return self._worn >= worn and len(self._waiting) >= FEW

    def _start(
        self, head: list[tuple[int, Conjunction]], rest: Iterator[tuple[int, Conjunction]]
    ) -> None:
        """Make the fast engine for a sample, and put it and all the rest in."""
        from matching.engine.engine import Engine

        self._fast = Engine([conjunction for _, conjunction in head if conjunction.constraints])
        self._fast.add_many(pair for pair in chain(head, rest) if self._is_for_fast(*pair))

    def _is_for_fast(self, label: int, conjunction: Conjunction) -> bool:
        """Whether the fast engine can hold it; if not, the plain one has it now."""
        if not conjunction.constraints:
            self._plain.add(label, conjunction)
        return bool(conjunction.constraints)

    # Matching.

    def match(self, attributes: Attributes) -> list[Key]:
        """The keys whose predicate is true for the attributes, each once, in insertion order."""
        labels = self.match_plain(attributes)
        if self._fast is not None:
            found, more = self._fast.match(attributes)
            labels = self._ordered(found, labels + more)
        else:
            labels.sort(key=self._sequences.__getitem__)
        keys = self._keys
        if self._several:
            return list(dict.fromkeys(keys[label] for label in labels))  # type: ignore[misc]
        return [keys[label] for label in labels]  # type: ignore[misc]

    def match_plain(self, attributes: Attributes) -> list[int]:
        """The labels that the plain engine finds; before, it gets rid of some if it is time."""
        if self._waiting:
            self._worn += len(self._waiting)
            self._advance(len(self._waiting) // PART)
        return self._plain.match(attributes) if len(self._plain) else []

    def match_many(self, batch: Iterable[Attributes]) -> list[list[Key]]:
        """`match` for each of several events."""
        return [self.match(attributes) for attributes in batch]

    def match_labels(self, attributes: Attributes) -> npt.NDArray[np.uint32]:
        """The labels of the conjunctions that are true, each once, in no order.

        For who works with arrays: `key_of` tells whose a label is, until that key is taken out.
        """
        labels = self.match_plain(attributes) if self._in_plain else []
        if self._fast is None:
            return _array(labels)
        found, more = self._fast.match(attributes)
        if not labels and not more:
            return found
        import numpy as np

        return np.concatenate([found, _array(labels + more)])

    @property
    def fast(self) -> Engine | None:
        """The fast engine, if it is in use: then, and only then, labels cost less than keys."""
        return self._fast

    @property
    def has_plain(self) -> bool:
        """Whether something is in the plain engine."""
        return len(self._plain) > 0

    def labels_of(self, key: Key) -> tuple[int, ...]:
        """The labels of a key's conjunctions; KeyError if it is not there."""
        labels = self._labels[key]
        return labels if isinstance(labels, tuple) else (labels,)

    def key_of(self, label: int) -> Key:
        """The key of a label that `match_labels` found; KeyError if it has been taken out."""
        key = self._keys[label]
        if key not in self._labels:
            raise KeyError(label)
        return key

    def keys_of(self, labels: Iterable[int]) -> list[Key]:
        """The keys of labels that have just been found."""
        keys = self._keys
        return [keys[label] for label in labels]  # type: ignore[misc]

    def _ordered(self, found: npt.NDArray[np.uint32], more: list[int]) -> list[int]:
        """Labels in the order of their keys."""
        import numpy as np

        if more:
            found = np.concatenate([found, np.array(more, np.uint32)])
        ordered: list[int] = found[
            np.argsort(np.frombuffer(self._sequences, np.int64)[found])
        ].tolist()
        return ordered
