"""Joins the selectors of a run with batches of events, by their ranges.

In a batch every value of an attribute gets a rank: -1 where there is none, then false, true, the
numbers and the strings, each in their order. So a range of any type becomes an interval of ranks,
and the events in it are a slice of the batch sorted by that attribute, whose length is known before
anything is compared. Each conjunction takes the shortest of its slices and checks its other
intervals, the most selective first, for the events in that slice: the work is the sum of the
shortest slices. All of it is done for many conjunctions at once, in NumPy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canopy.traces.analysis.selection.cover import ANY, BOOL, NULL, NUMBER, Range, cover
from canopy.traces.analysis.selection.trees import Attributes, Condition, condition, parse_tree

Ints = npt.NDArray[np.int64]

AT_ONCE: Final = 500_000
"""Pairs of conjunction and event that are checked together: 30 MB. Guess; to be measured by the
time of matching with less and with more."""

NO_RANGE: Final = Range("all")
"""The range of a conjunction without any."""

FLAGS: Final = 2  # ranks of false and true; numbers follow


@dataclass(slots=True)
class _Attribute:
    """The ranges of one attribute: their numbers and bounds, by kind, in the order of the kinds.
    Those of numbers are lists while ranges are added, then arrays."""

    flags: list[tuple[int, bool]]
    nulls: list[int]
    any: list[int]
    numbers: Any
    lows: Any
    highs: Any
    texts: list[int]
    starts: list[str]
    ends: list[str | None]

    def arrange(self) -> None:
        """Sort the ranges of numbers: neighbours are looked up in the same part of a batch."""
        lows = np.array(self.lows, dtype=np.float64)
        order = np.argsort(lows)
        self.numbers = np.array(self.numbers, dtype=np.int64)[order]
        self.lows, self.highs = lows[order], np.array(self.highs, dtype=np.float64)[order]


class Matcher:
    """Selectors by number, and which events of a batch each of them selects."""

    def __init__(self, trees: Sequence[str]) -> None:
        """`trees` are valid trees as JSON (`parse_tree`); their places are their numbers."""
        self._conditions: list[Condition | None] = [None] * len(trees)
        self._trees = trees
        self._names: dict[str, int] = {}
        self._attributes: list[_Attribute] = []
        self._range_attribute: list[int] = [0]
        self._known: dict[tuple[str, Range], int] = {("", NO_RANGE): 0}
        owner: list[int] = []
        exact: list[bool] = []
        starts: list[int] = []
        constraints: list[int] = []
        self._several = np.zeros(len(trees), dtype=bool)
        for number, text in enumerate(trees):
            found = cover(parse_tree(text))
            self._several[number] = len(found) > 1
            for conjunction in found:
                owner.append(number)
                exact.append(conjunction.exact)
                starts.append(len(constraints))
                constraints += [self._range(*each) for each in conjunction.ranges.items()] or [0]
        self._owner = np.array(owner, dtype=np.int64)
        self._exact = np.array(exact, dtype=bool)
        self._starts = np.array(starts, dtype=np.int64)
        self._lengths: Ints = np.array([*starts[1:], len(constraints)], dtype=np.int64)
        self._lengths = self._lengths[: len(starts)] - self._starts
        self._constraints = np.array(constraints, dtype=np.int64)
        self._attribute_of = np.array(self._range_attribute, dtype=np.int64)
        for each in self._attributes:
            each.arrange()
        self.checked = 0
        """Pairs of conjunction and event that were looked at: what matching costs."""

    def matches(self, events: Sequence[Attributes]) -> Iterator[tuple[Ints, Ints]]:
        """The matching pairs of `events`, in parts: places of events, numbers of selectors.

        Each pair is in one part and once in it.
        """
        if not len(self._owner) or not events:
            return
        batch = _Batch(len(events), len(self._names) + 1, len(self._range_attribute))
        self._rank(batch, events)
        for chosen in self._parts(batch):
            at, conjunction = self._checked(batch, *chosen)
            number = self._owner[conjunction]
            right = self._exact[conjunction]
            several = self._several[number]
            at, number = self._evaluated(events, at, number, right, several)
            yield at, number

    def _range(self, name: str, each: Range) -> int:
        """The number of a range of the attribute `name`."""
        number = self._known.setdefault((name, each), len(self._range_attribute))
        if number < len(self._range_attribute):
            return number
        place = self._names.setdefault(name, len(self._names))
        if place == len(self._attributes):
            self._attributes.append(_Attribute([], [], [], [], [], [], [], [], []))
        self._range_attribute.append(place + 1)  # 0 is that of the range of everything
        mine = self._attributes[place]
        if each.kind == BOOL:
            mine.flags.append((number, each.low))
        elif each.kind == NULL:
            mine.nulls.append(number)
        elif each.kind == ANY:
            mine.any.append(number)
        elif each.kind == NUMBER:
            mine.numbers.append(number)
            mine.lows.append(each.low)
            mine.highs.append(each.high)
        else:
            mine.texts.append(number)
            mine.starts.append(each.low)
            mine.ends.append(each.high)
        return number

    def _rank(self, batch: _Batch, events: Sequence[Attributes]) -> None:
        """Rank the values of all attributes that the selectors name, and place their ranges."""
        seen: list[tuple[list[int], list[Any]]] = [([], []) for _ in self._names]
        places = self._names
        for at, attributes in enumerate(events):
            for name, value in attributes.items():
                place = places.get(name)
                if place is not None:
                    where, what = seen[place]
                    where.append(at)
                    what.append(value)
        for place, (where, what) in enumerate(seen, 1):
            batch.rank(place, where, what, self._attributes[place - 1])

    def _parts(self, batch: _Batch) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """The conjunctions that can match, in parts of about `AT_ONCE` pairs: their numbers, where
        the ranges of each begin in a list that has those which leave the fewest events first, this
        list, and the number of events that the first range of each leaves."""
        counts = batch.counts[self._constraints]
        fewest = np.minimum.reduceat(counts, self._starts)
        alive = np.flatnonzero(fewest)
        if not len(alive):
            return
        fewest, lengths = fewest[alive], self._lengths[alive]
        starts = np.cumsum(lengths) - lengths
        owners = np.repeat(np.arange(len(alive)), lengths)
        places = np.arange(len(owners)) + (self._starts[alive] - starts)[owners]
        ranges = self._constraints[places[np.lexsort((counts[places], owners))]]
        part = (np.cumsum(fewest) - 1) // AT_ONCE
        owner = self._owner[alive]
        # A selector's conjunctions stay together, so that its pairs can be told apart.
        begins = np.flatnonzero(np.diff(part, prepend=-1) > 0)
        first = np.searchsorted(owner, owner[begins], side="left")
        for begin, end in zip(first, [*first[1:], len(alive)], strict=True):
            if begin < end:
                mine = slice(begin, end)
                yield alive[mine], starts[mine], ranges, fewest[mine]

    def _checked(
        self, batch: _Batch, chosen: Ints, starts: Ints, ranges: Ints, counts: Ints
    ) -> tuple[Ints, Ints]:
        """The pairs of event and conjunction of `chosen` that satisfy all ranges. The parameters
        are a part (`_parts`)."""
        first = ranges[starts]
        ends = np.cumsum(counts)
        self.checked += int(ends[-1])
        local = np.repeat(np.arange(len(chosen), dtype=np.int32), counts)
        offsets = self._attribute_of[first] * batch.size + batch.begins[first] - (ends - counts)
        at = batch.orders[np.arange(ends[-1]) + offsets[local]]
        lengths = self._lengths[chosen]
        for level in range(1, int(lengths.max())):
            more = lengths > level
            next_ = ranges[np.where(more, starts + level, 0)]
            next_[~more] = 0  # everything
            base = self._attribute_of[next_] * batch.size
            rank = batch.ranks[base[local] + at]
            good = (rank >= batch.lows[next_][local]) & (rank < batch.highs[next_][local])
            at, local = at[good], local[good]
        return at.astype(np.int64), chosen[local]

    def _evaluated(
        self,
        events: Sequence[Attributes],
        at: Ints,
        number: Ints,
        right: npt.NDArray[np.bool_],
        several: npt.NDArray[np.bool_],
    ) -> tuple[Ints, Ints]:
        """The pairs that match, each once: those of exact conjunctions, and those of others for
        which the whole selector is true."""
        trees = len(self._trees)
        codes = at * trees + number
        sure = codes[right & ~several]
        doubled = np.unique(codes[right & several])
        open_ = np.setdiff1d(codes[~right], doubled)
        held = [
            code
            for code in open_.tolist()
            if self._condition(code % trees)(events[code // trees]) is True
        ]
        codes = np.concatenate((sure, doubled, np.array(held, dtype=np.int64)))
        return codes // trees, codes % trees

    def _condition(self, number: int) -> Condition:
        made = self._conditions[number]
        if made is None:
            made = self._conditions[number] = condition(parse_tree(self._trees[number]))
        return made


class _Batch:
    """The ranks of a batch's values, and the slice of events in each range."""

    def __init__(self, size: int, attributes: int, ranges: int) -> None:
        self.size = size
        self.ranks = np.full(attributes * size, -1, dtype=np.int32)
        self.ranks[:size] = 0  # of no attribute: everything is within range 0
        self.orders = np.tile(np.arange(size, dtype=np.int32), attributes)
        self.lows = np.zeros(ranges, dtype=np.int32)
        self.highs = np.zeros(ranges, dtype=np.int32)
        self.begins = np.zeros(ranges, dtype=np.int64)
        self.counts = np.zeros(ranges, dtype=np.int64)
        self.highs[0], self.counts[0] = 1, size

    def place(self, ranks: Any, numbers: Any, lows: Any, highs: Any) -> None:
        """Set the intervals of the ranges `numbers` of an attribute with the sorted `ranks`."""
        at = np.asarray(numbers, dtype=np.int64)
        if not len(at):
            return
        self.lows[at], self.highs[at] = lows, highs
        self.begins[at] = np.searchsorted(ranks, self.lows[at], side="left")
        self.counts[at] = np.searchsorted(ranks, self.highs[at], side="left") - self.begins[at]

    def rank(self, place: int, where: list[int], what: list[Any], mine: _Attribute) -> None:
        """Rank the values `what` of the events `where`, and place the ranges of `mine`."""
        ranks = self.ranks[place * self.size : (place + 1) * self.size]
        numbers: list[float] = []
        numbered: list[int] = []
        texts: list[str] = []
        worded: list[int] = []
        for at, value in zip(where, what, strict=True):
            if isinstance(value, bool):
                ranks[at] = int(value)
            elif isinstance(value, str):
                texts.append(value)
                worded.append(at)
            else:
                numbers.append(value)
                numbered.append(at)
        different, places = np.unique(np.array(numbers, dtype=np.float64), return_inverse=True)
        ranks[numbered] = FLAGS + places
        words = sorted(set(texts))
        after = FLAGS + len(different)
        rank_of = {word: after + rank for rank, word in enumerate(words)}
        ranks[worded] = [rank_of[text] for text in texts]
        end = after + len(words)
        order = np.argsort(ranks, kind="stable").astype(np.int32)
        self.orders[place * self.size : (place + 1) * self.size] = order
        in_order = ranks[order]
        flags = [int(flag) for _, flag in mine.flags]
        self.place(in_order, [n for n, _ in mine.flags], flags, [f + 1 for f in flags])
        self.place(in_order, mine.nulls, -1, 0)
        self.place(in_order, mine.any, 0, end)
        self.place(
            in_order,
            mine.numbers,
            FLAGS + np.searchsorted(different, mine.lows, side="left"),
            FLAGS + np.searchsorted(different, mine.highs, side="right"),
        )
        self.place(
            in_order,
            mine.texts,
            [after + bisect_left(words, word) for word in mine.starts],
            [end if word is None else after + bisect_left(words, word) for word in mine.ends],
        )
