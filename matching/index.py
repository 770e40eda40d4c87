"""Finds which of many predicates match an event: the index that hosts and subscribers use.

A facade of two engines that give the same answers. The plain engine contains all conjunctions at
first, and always those without a constraint; once there are many, they move to the block engine.
Each conjunction is in exactly one engine and a match asks both, so they can move a few at a time,
some with every call. Nothing moves before the block engine has been prepared (`warmup`). An index
with few predicates does not even import NumPy.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Generic, TypeVar

from matching.conjunction import Conjunction
from matching.plain_engine import PlainEngine
from matching.predicate import Predicate
from matching.values import Attributes
from matching.warmup import is_warm, usable_for, warm

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from matching.engine.block_engine import BlockEngine

Key = TypeVar("Key", bound=Hashable)

# Conjunctions from which the block engine is worth its start and its memory (15 MB with NumPy, and
# at least 4 of its own). Measured (docs/lab/matching.md): a match takes the plain engine 140
# microseconds at 500, 200 at 1,000 and 12,000 at 10,000; the block engine 3 to 5.
CHANGE_OVER = 500
# Fewer conjunctions move once matching them in the plain engine has cost as much as starting the
# block engine (the ski-rental rule: rent until the rent has reached the price). The cost is counted
# in conjunctions times matches, of 0.1 to 0.3 microseconds each. Below MIN_MOVED conjunctions a
# match takes either engine less than 10 microseconds (measured: alike at 20).
MIN_MOVED = 32
START_COST = 100_000  # 30 ms; starting takes 10 ms and some 7 MB
COLD_START_COST = 500_000  # 0.1 s, what starting takes where kernels have to be loaded from disk
# Conjunctions that decide the block engine's columns and buckets. Not measured; would be measured
# by the edges per match (docs/lab/matching.md) with samples of 250 to 4,000.
SAMPLE = 1000
# Conjunctions that move with each call, and the fraction (1/16) of the rest that moves with a
# match: at 10 to 20 microseconds each, moving takes about as long as the match in the plain engine.
# Measured: 10,000 have moved after 84 matches, in 0.24 s; with 8 per match after 1,126, in 2.3 s.
MOVED_PER_CALL = 8
MOVED_PER_MATCH = 16


def _array(labels: list[int]) -> npt.NDArray[np.uint32]:
    import numpy as np

    return np.array(labels, np.uint32)


class Index(Generic[Key]):
    """Predicates by key; finds the keys whose predicate is true for an event.

    Keys are any hashable. Adding a key again replaces its predicate and keeps its position in the
    order of insertion.
    """

    def __init__(self, change_over: int = CHANGE_OVER) -> None:
        """`change_over`: conjunctions from which the block engine is used; fewer move to it when
        they are matched often."""
        # Each conjunction has a label, a small integer that is reused once it is free.
        self._labels: dict[Key, int | tuple[int, ...]] = {}
        self._keys: list[Key | None] = []
        self._sequences = array("q")  # by label: its key's position in the order
        self._free: list[int] = []
        self._next = 0
        self._multiple = 0  # keys with more than one conjunction
        self._change_over = change_over
        self._plain_engine = PlainEngine()
        self._in_plain = self._plain_engine.slots  # true if there are any, at less than a call
        self.block_engine: BlockEngine | None = None
        """The block engine, if it is in use. Only then is `match_labels` faster than `match`."""
        self._plain_cost = 0  # conjunctions times matches, of those that could move
        # By label: what is in the plain engine and can move to the block engine.
        self._to_move: dict[int, Conjunction] = {}

    def __len__(self) -> int:
        return len(self._labels)

    def __contains__(self, key: object) -> bool:
        return key in self._labels

    # Changes.

    def add(self, key: Key, predicate: Predicate | Conjunction) -> None:
        """Register a predicate, or one conjunction of it, under a key."""
        self._insert(self._register(key, predicate))

    def add_many(self, items: Iterable[tuple[Key, Predicate | Conjunction]]) -> None:
        """`add` each of many, which go into an engine together: several times faster.

        If the index is empty and they are `change_over` or more, they are laid out better. Then it
        calls `warm`, so it may block for seconds; the first few thousand are taken as a sample of
        all and should be in random order.
        """
        latest = dict(items)  # a key's last predicate, in the place of its first
        pairs = (pair for each in latest.items() for pair in self._register(*each))
        fresh = self.block_engine is None and not self._to_move
        head = list(islice(pairs, max(self._change_over, 4 * SAMPLE))) if fresh else []
        if fresh and len(head) >= self._change_over:
            warm()
            self._start_block_engine(head, pairs)
            return
        self._insert([*head, *pairs])

    def _register(
        self, key: Key, predicate: Predicate | Conjunction
    ) -> list[tuple[int, Conjunction]]:
        """New labels for a predicate's conjunctions; what the key had before is removed."""
        conjunctions = (
            (predicate,) if isinstance(predicate, Conjunction) else predicate.conjunctions
        )
        sequence = self._next
        self._next += 1
        if key in self._labels:
            sequence = self._remove_labels(key)
        if len(conjunctions) == 1:
            label = self._labels[key] = self._new_label(key, sequence)
            return [(label, conjunctions[0])]
        # A predicate without any conjunction has a label, too.
        labels = tuple([self._new_label(key, sequence) for _ in conjunctions or (None,)])
        self._labels[key] = labels if len(labels) > 1 else labels[0]
        self._multiple += len(labels) > 1
        return list(zip(labels, conjunctions, strict=False))

    def _new_label(self, key: Key, sequence: int) -> int:
        if self._free:
            label = self._free.pop()
            self._keys[label] = key
            self._sequences[label] = sequence
        else:
            label = len(self._keys)
            self._keys.append(key)
            self._sequences.append(sequence)
        return label

    def _insert(self, pairs: Sequence[tuple[int, Conjunction]]) -> None:
        """Add conjunctions to the engine that they belong to for now."""
        if self.block_engine is not None and not self._to_move:
            self.block_engine.add_many(self._fitting(pairs))
            return
        for label, conjunction in pairs:
            self._plain_engine.add(label, conjunction)
            if self._fits_block_engine(conjunction):
                self._to_move[label] = conjunction
        if self._to_move:
            self._move_some(MOVED_PER_CALL * len(pairs))

    def _fitting(
        self, pairs: Iterable[tuple[int, Conjunction]]
    ) -> Iterator[tuple[int, Conjunction]]:
        """Yield the conjunctions that fit the block engine, and add the others to the plain engine.
        The caller has to insert each before it asks for the next one."""
        for label, conjunction in pairs:
            if self._fits_block_engine(conjunction):
                yield label, conjunction
            else:
                self._plain_engine.add(label, conjunction)

    def _fits_block_engine(self, conjunction: Conjunction) -> bool:
        """Whether the conjunction is better off in the block engine, if there is one: it has
        constraints, on attributes that have columns there or can get them. Of others the block
        engine would ask Python for each event; the plain one looks at the event's attributes."""
        engine = self.block_engine
        return bool(conjunction.constraints) and (engine is None or engine.has_columns(conjunction))

    def remove(self, key: Key) -> None:
        """Remove a key; KeyError if it is not there."""
        self._remove_labels(key)
        del self._labels[key]

    def _remove_labels(self, key: Key) -> int:
        """Remove a key's conjunctions and free their labels; returns its position in the order."""
        labels = self._labels[key]
        many = labels if isinstance(labels, tuple) else (labels,)
        self._multiple -= len(many) > 1
        for label in many:
            self._keys[label] = None
            if label in self._plain_engine:
                self._plain_engine.remove(label)
                self._to_move.pop(label, None)
            elif self.block_engine is not None and label in self.block_engine:
                self.block_engine.remove(label)
        self._free.extend(many)
        return self._sequences[many[0]]

    def _move_some(self, most: int) -> None:
        """Move conjunctions to the block engine if that is worth it: up to `most`, or a few."""
        if self.block_engine is None:
            if not self._is_worth_it() or not usable_for(len(self._to_move)):
                return
            sample = list(islice(self._to_move.items(), SAMPLE))
            for label, _ in sample:
                del self._to_move[label]
                self._plain_engine.remove(label)
            self._start_block_engine(sample, iter(()))
            return
        some = min(max(MOVED_PER_CALL, most), len(self._to_move))
        self.block_engine.add_many(self._moving(some))

    def _moving(self, count: int) -> Iterator[tuple[int, Conjunction]]:
        """Remove and yield `count` conjunctions of the plain engine, except those that do not fit
        the block engine."""
        for _ in range(count):
            label, conjunction = self._to_move.popitem()
            if self._fits_block_engine(conjunction):
                self._plain_engine.remove(label)
                yield label, conjunction

    def _is_worth_it(self) -> bool:
        """Whether the block engine would pay: with many conjunctions, or if matched often."""
        if len(self._to_move) >= self._change_over:
            return True
        if len(self._to_move) < MIN_MOVED:
            return False
        return self._plain_cost >= (START_COST if is_warm() else COLD_START_COST)

    def _start_block_engine(
        self, head: list[tuple[int, Conjunction]], rest: Iterator[tuple[int, Conjunction]]
    ) -> None:
        """Make the block engine for a sample of conjunctions, and add these and the rest to it."""
        from matching.engine.block_engine import BlockEngine

        self.block_engine = BlockEngine(
            [conjunction for _, conjunction in head if conjunction.constraints]
        )
        self.block_engine.add_many(self._fitting(chain(head, rest)))

    # Matching.

    def match(self, attributes: Attributes) -> list[Key]:
        """The keys whose predicate is true for an event, each once, in the order of insertion."""
        labels = self.match_plain(attributes)
        if self.block_engine is not None:
            found, more = self.block_engine.match(attributes)
            labels = self._ordered(found, labels + more)
        else:
            labels.sort(key=self._sequences.__getitem__)
        keys = self._keys
        if self._multiple:
            return list(dict.fromkeys(keys[label] for label in labels))  # type: ignore[misc]
        return [keys[label] for label in labels]  # type: ignore[misc]

    def match_plain(self, attributes: Attributes) -> list[int]:
        """The labels that the plain engine finds, after moving some to the block engine."""
        if self._to_move:
            self._plain_cost += len(self._to_move)
            self._move_some(len(self._to_move) // MOVED_PER_MATCH)
        return self._plain_engine.match(attributes) if self._in_plain else []

    def match_labels(self, attributes: Attributes) -> npt.NDArray[np.uint32]:
        """The labels of the conjunctions that are true for an event: uint32[matches], in no order.

        Faster than `match` where there are many. `keys_of` returns the keys of labels, until these
        are removed.
        """
        labels = self.match_plain(attributes) if self._in_plain else []
        if self.block_engine is None:
            return _array(labels)
        found, more = self.block_engine.match(attributes)
        if not labels and not more:
            return found
        import numpy as np

        return np.concatenate([found, _array(labels + more)])

    @property
    def has_plain(self) -> bool:
        """Whether some conjunction is in the plain engine."""
        return bool(self._in_plain)

    def labels_of(self, key: Key) -> tuple[int, ...]:
        """The labels of a key's conjunctions; KeyError if it is not there."""
        labels = self._labels[key]
        return labels if isinstance(labels, tuple) else (labels,)

    def keys_of(self, labels: Iterable[int]) -> list[Key]:
        """The keys of labels that were found after the last removal."""
        keys = self._keys
        return [keys[label] for label in labels]  # type: ignore[misc]

    def _ordered(self, found: npt.NDArray[np.uint32], more: list[int]) -> list[int]:
        """The labels of both engines, in the order of their keys."""
        import numpy as np

        if more:
            found = np.concatenate([found, _array(more)])
        ordered: list[int] = found[
            np.argsort(np.frombuffer(self._sequences, np.int64)[found])
        ].tolist()
        return ordered
