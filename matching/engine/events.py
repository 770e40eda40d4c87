"""Writing events where the kernel of a match reads them, and takes them away.

A value is a number's bits, or another value's code turned alike; -1 is none. Which of the values is
a column's is written down beside them (`layout.E_SLOTS`), so that one event (`EventWriter`) of many
that look alike, all of numbers, is written in one call. Several (`BatchWriter`) are written column
by column where they look alike.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Iterable, Sequence

from matching.columnar import columns_of
from matching.engine.codes import FALSE, HIGHEST
from matching.engine.columns import Columns
from matching.engine.kernels import layout
from matching.engine.kernels.layout import COLUMNS, E_SLOTS, E_VALUES, EVENT
from matching.values import Attributes

EVENTS = 64
"""Events of one call, four kilobytes each: they stay in the second cache."""

SHAPES = 64
"""Shapes of events that are remembered, of 4 KB each. Wild guess."""

VALUES = E_VALUES * 8  # bytes before an event's values
FLOATS, STRINGS, TRUTHS = {float}, {str}, {bool}
CODES = (FALSE ^ HIGHEST, (FALSE + 1) ^ HIGHEST)
"""What `write_values` writes for FALSE and TRUE."""


def write_values(
    columns: Columns,
    attributes: Attributes,
    numbers: memoryview[float],
    raw: memoryview[int],
    start: int,
) -> None:
    """Write an event value by value, each in the slot of its column's number, from a certain
    place on; `numbers` and `raw` are the same memory."""
    column_of, strings = columns.column_of, columns.strings
    for name, value in attributes.items():
        column = column_of(name)
        if column is None:
            continue
        column += start
        kind = type(value)
        if kind is float or kind is int:
            try:
                numbers[column] = value  # type: ignore[assignment]
            except ValueError:  # an integer beyond the floats: no event's, but no fault
                numbers[column] = float("inf") if value > 0 else float("-inf")  # type: ignore[operator]
        elif kind is str:
            raw[column] = strings.code(value)  # type: ignore[arg-type]
        elif kind is bool:
            # `rows` turns it back.
            raw[column] = (FALSE + int(value)) ^ HIGHEST  # type: ignore[arg-type]


class Shape:
    """Events with the same attributes in the same order, which are written at once if all numbers.

    Where many come from one program they look alike: half as long as value by value (measured).
    """

    def __init__(self, names: Sequence[str], slots: Iterable[int]) -> None:
        """`slots`: of each column which of the values is its; one behind them is no value."""
        values = len(names)
        self.names = list(names)
        words = array("q", slots)
        words.extend([-1] * (layout.E_VALUES - len(words) + values + 1))
        self.memory = bytearray(words.tobytes())
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.pack = struct.Struct(f"{values}d").pack_into


class EventWriter:
    """Where one event is written down."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._any = Shape([""] * COLUMNS, range(COLUMNS))
        self._raw = memoryview(self._any.memory).cast("q")[layout.E_VALUES :]
        self._numbers = self._raw.cast("B").cast("d")
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self._names: tuple[str, ...] = ()  # of the last event without a shape
        self._shape = self._any
        self.cell = array("q", [self._any.address])
        """The address of the shape that the last event was written in."""

    def load(self, attributes: Attributes) -> None:
        """Write an event where the kernel reads it (and takes it away).

        A truth value may become a zero or a one: who sees such numbers has to ask `reload`. To look
        at all types here would take longer than all the rest (measured).
        """
        shape = self._shape
        if shape.names != [*attributes]:
            shape = self._find(tuple(attributes))
        if shape is not self._any:
            try:
                shape.pack(shape.memory, VALUES, *attributes.values())
            except struct.error:  # no number, or an integer beyond the floats
                pass
            else:
                if shape is not self._shape:
                    self._shape = shape
                    self.cell[0] = shape.address
                return
        self._load_any(attributes)

    def reload(self, attributes: Attributes) -> bool:
        """Write the last event again if it had truth values that became numbers."""
        if self._shape is self._any or bool not in map(type, attributes.values()):
            return False
        names = tuple(attributes)
        if names in self._shapes:
            self._shapes[names] = self._any  # the next ones that look like this as well
        self._load_any(attributes)
        return True

    def _load_any(self, attributes: Attributes) -> None:
        self._shape = self._any
        self.cell[0] = self._any.address
        write_values(self._columns, attributes, self._numbers, self._raw, 0)

    def _find(self, names: tuple[str, ...]) -> Shape:
        """The shape of an event; one that comes twice in a row is remembered."""
        shape = self._shapes.get(names)
        if shape is not None:
            return shape
        if names != self._names:
            self._names = names
            return self._any
        if len(self._shapes) == SHAPES:
            del self._shapes[next(iter(self._shapes))]
        slot_of = {name: slot for slot, name in enumerate(names)}
        slots = [slot_of.get(name, len(names)) for name in self._columns.names]
        shape = self._shapes[names] = Shape(names, slots)
        return shape

    def forget(self) -> None:
        """Forget all shapes: there is another column."""
        self._shapes.clear()
        self._shape = self._any
        self.cell[0] = self._any.address


class BatchWriter:
    """Where up to `EVENTS` events are written down together."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._memory = array("q", [-1]) * (EVENT * EVENTS)
        self._raw = memoryview(self._memory)
        self._numbers = self._raw.cast("B").cast("d")
        for position in range(EVENTS):  # each column's value is in the slot of its number
            slots = position * EVENT + E_SLOTS
            self._memory[slots : slots + COLUMNS] = array("q", range(COLUMNS))
        self.address = self._memory.buffer_info()[0]

    def load(self, batch: Sequence[Attributes]) -> None:
        """Write down so many events at most."""
        columns, numbers, raw = self._columns, self._numbers, self._raw
        alike = columns_of(batch)
        if alike is None:
            for position, attributes in enumerate(batch):
                write_values(columns, attributes, numbers, raw, position * EVENT + E_VALUES)
            return
        end = len(batch) * EVENT
        for name, values in alike.items():
            column = columns.column_of(name)
            if column is None:
                continue
            kinds, column = set(map(type, values)), column + E_VALUES
            if kinds == FLOATS:
                numbers[column:end:EVENT] = array("d", values)
            elif kinds == STRINGS:
                raw[column:end:EVENT] = array("q", columns.strings.codes(values))
            elif kinds == TRUTHS:
                raw[column:end:EVENT] = array("q", map(CODES.__getitem__, values))
            else:
                for position, value in enumerate(values):
                    write_values(columns, {name: value}, numbers, raw, position * EVENT + E_VALUES)
