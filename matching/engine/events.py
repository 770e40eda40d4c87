"""Encodes events into the memory that the kernels read, which also clear it again.

An event is a slot number for each column, then the slots (`layout.E_SLOTS`, `E_VALUES`). A slot
contains a float's bit pattern, or another value's code transformed so that the kernel's decoding of
floats restores it; -1 is no value. Since columns refer to slots, an event whose values are all
numbers is written by one `struct.pack_into` in the order of its own attributes (`EventWriter`).
Batches are written column by column if their events have the same attributes (`BatchWriter`).
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Iterable, Sequence

from matching.columnar import EventColumns, columns_again
from matching.engine.codes import FALSE_CODE, HIGHEST
from matching.engine.columns import Columns
from matching.engine.kernels import layout
from matching.engine.kernels.layout import COLUMNS, E_SLOTS, E_VALUES, EVENT
from matching.values import Attributes

EVENTS = 64  # events of one call, at four kilobytes each: they fit into a second-level cache

MAX_SHAPES = 64
"""Shapes that are cached, at 4 KB each. Not measured; would be measured by the number of shapes
that the publishers of one tree use in turn."""

VALUES = E_VALUES * 8  # offset of an event's values in bytes
ONLY_FLOATS, ONLY_STRINGS, ONLY_BOOLEANS = {float}, {str}, {bool}
BOOLEAN_BITS = (FALSE_CODE ^ HIGHEST, (FALSE_CODE + 1) ^ HIGHEST)
"""The codes that `write_values` writes for FALSE_CODE and for TRUE."""


def write_values(
    columns: Columns,
    attributes: Attributes,
    numbers: memoryview[float],
    raw: memoryview[int],
    start: int,
) -> None:
    """Write an event value by value, each in the slot with its column's number.

    `numbers` and `raw` are views of the same memory; slot 0 is at index `start`.
    """
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
            except ValueError:  # an integer beyond the floats, which `check_value` refuses
                numbers[column] = float("inf") if value > 0 else float("-inf")  # type: ignore[operator]
        elif kind is str:
            raw[column] = strings.code(value)  # type: ignore[arg-type]
        elif kind is bool:
            # The kernel `encode_event` reverses the XOR, as for negative floats.
            raw[column] = (FALSE_CODE + int(value)) ^ HIGHEST  # type: ignore[arg-type]


class EventShape:
    """Memory for events with the same attributes in the same order, all of whose values are
    numbers.

    Events of one program usually have one shape. Measured: half the time of value by value.
    """

    def __init__(self, names: Sequence[str], slots: Iterable[int]) -> None:
        """`slots`: for each column the index of its value; ``len(names)`` for none."""
        values = len(names)
        self.names = list(names)
        words = array("q", slots)
        words.extend([-1] * (layout.E_VALUES - len(words) + values + 1))
        self.memory = bytearray(words.tobytes())
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.pack = struct.Struct(f"{values}d").pack_into


class EventWriter:
    """Encodes one event at a time."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._any = EventShape([""] * COLUMNS, range(COLUMNS))
        self._raw = memoryview(self._any.memory).cast("q")[layout.E_VALUES :]
        self._numbers = self._raw.cast("B").cast("d")
        self._shapes: dict[tuple[str, ...], EventShape] = {}
        self._names: tuple[str, ...] = ()  # attributes of the last event without a shape
        self._shape = self._any
        self.cell = array("q", [self._any.address])
        """A single word: the address of the last event, for the kernels (`H_EVENT`)."""

    def write(self, attributes: Attributes) -> None:
        """Write an event where the kernel reads and clears it.

        Booleans may be written as the numbers 0 and 1; if the kernel reports such values, the
        caller has to call `rewrite`. Checking all types here would take longer than the rest
        (measured).
        """
        shape = self._shape
        if shape.names != [*attributes]:
            shape = self._find(tuple(attributes))
        if shape is not self._any:
            try:
                shape.pack(shape.memory, VALUES, *attributes.values())
            except struct.error:  # not a number, or an integer beyond the floats
                pass
            else:
                if shape is not self._shape:
                    self._shape = shape
                    self.cell[0] = shape.address
                return
        self._write_by_value(attributes)

    def rewrite(self, attributes: Attributes) -> bool:
        """Write the last event again if it has booleans that were written as numbers; returns
        whether it has."""
        if self._shape is self._any or bool not in map(type, attributes.values()):
            return False
        names = tuple(attributes)
        if names in self._shapes:
            self._shapes[names] = self._any  # for the next events of this shape
        self._write_by_value(attributes)
        return True

    def _write_by_value(self, attributes: Attributes) -> None:
        self._shape = self._any
        self.cell[0] = self._any.address
        write_values(self._columns, attributes, self._numbers, self._raw, 0)

    def _find(self, names: tuple[str, ...]) -> EventShape:
        """The shape for these attributes; a new one is made once they come twice in a row."""
        shape = self._shapes.get(names)
        if shape is not None:
            return shape
        if names != self._names:
            self._names = names
            return self._any
        if len(self._shapes) == MAX_SHAPES:
            del self._shapes[next(iter(self._shapes))]
        slot_of = {name: slot for slot, name in enumerate(names)}
        slots = [slot_of.get(name, len(names)) for name in self._columns.names]
        shape = self._shapes[names] = EventShape(names, slots)
        return shape

    def forget_shapes(self) -> None:
        """Forget all shapes, since a column has been added."""
        self._shapes.clear()
        self._shape = self._any
        self.cell[0] = self._any.address


class BatchWriter:
    """Encodes up to `EVENTS` events together."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._memory = array("q", [-1]) * (EVENT * EVENTS)
        self._raw = memoryview(self._memory)
        self._numbers = self._raw.cast("B").cast("d")
        for position in range(EVENTS):  # each column's value is in the slot with its number
            slots = position * EVENT + E_SLOTS
            self._memory[slots : slots + COLUMNS] = array("q", range(COLUMNS))
        self.address = self._memory.buffer_info()[0]

    def alike(self, batch: Sequence[Attributes]) -> EventColumns | None:
        """The columns of a batch, if it has any."""
        return columns_again(batch)

    def write(self, batch: Sequence[Attributes], alike: EventColumns | None) -> None:
        """Write a batch of at most `EVENTS` events where the kernel reads and clears them; `alike`:
        its columns, if it has any."""
        columns, numbers, raw = self._columns, self._numbers, self._raw
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
            if kinds == ONLY_FLOATS:
                numbers[column:end:EVENT] = array("d", values)
            elif kinds == ONLY_STRINGS:
                raw[column:end:EVENT] = array("q", columns.strings.codes(values))
            elif kinds == ONLY_BOOLEANS:
                raw[column:end:EVENT] = array("q", map(BOOLEAN_BITS.__getitem__, values))
            else:
                for position, value in enumerate(values):
                    write_values(columns, {name: value}, numbers, raw, position * EVENT + E_VALUES)
