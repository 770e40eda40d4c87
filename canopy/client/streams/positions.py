"""Positions in streams: in memory, and as a text to store.

An offset alone is ambiguous: a removed stream and a later one of the same name have the same
offsets, and a log that has lost rows at its end gives their offsets to others. So positions carry
the stream's founding id, and for each shard the number of losses of its log at the time of the
position (as topics have ids in Kafka, KIP-516, and positions the epoch of their leader, KIP-320).
The node compares both, and refuses a position that differs (code position-lost).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Self

PLACE: Final = r"[0-9]{1,5}:[0-9]{1,16}(?:\.[0-9]{1,9})?(?:-[0-9]{1,16})?"
PATTERN: Final = re.compile(rf"(?:(?P<stream>[^@,:\s]{{1,128}})@)?(?P<places>{PLACE}(?:,{PLACE})*)")


class Positions(dict[int, int]):
    """By shard, the offset of the row that is read next.

    The text form is ``ID@0:118,1:97``. ``.1`` after an offset: the shard's log had lost rows once,
    ``.2`` twice; ``-140``: below 140 only the newest row of each key is read.
    """

    def __init__(
        self,
        places: Mapping[int, int] = {},
        stream: str = "",
        losses: Mapping[int, int] | None = None,
        tables: Mapping[int, int] = {},
    ) -> None:
        super().__init__(places)
        self.stream = stream
        """The founding id of the stream; "": unknown, and nothing is compared."""
        self.losses: dict[int, int] = dict(losses or {})
        """By shard, how many times its log had lost rows; unknown for other shards."""
        self.tables: dict[int, int] = dict(tables)
        """By shard, the offset below which only the newest row of each key is read."""

    def __str__(self) -> str:
        places = ",".join(
            f"{shard}:{place}"
            + (f".{self.losses[shard]}" if self.losses.get(shard) else "")
            + (f"-{self.tables[shard]}" if self.tables.get(shard, 0) > place else "")
            for shard, place in sorted(self.items())
        )
        return f"{self.stream}@{places}" if self.stream else places

    def copy(self) -> Positions:
        """Return a copy that does not change when the reading moves on."""
        return Positions(self, self.stream, self.losses, self.tables)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of positions. A text without a stream's id stands for the offsets of any
        stream. Raises ValueError for any other text."""
        found = PATTERN.fullmatch(text)
        if found is None:
            wanted = "ID@SHARD:OFFSET,… or SHARD:OFFSET,…"
            raise ValueError(f"{text[:60]!r} is no position in a stream; expected {wanted}")
        places, losses, tables = {}, {}, {}
        for one in found["places"].split(","):
            shard, _, rest = one.partition(":")
            before, _, end = rest.partition("-")
            place, _, lost = before.partition(".")
            if end:
                tables[int(shard)] = int(end)
            places[int(shard)] = int(place)
            if found["stream"]:
                losses[int(shard)] = int(lost or 0)
        return cls(places, found["stream"] or "", losses, tables)

    def open_tables(self, scanned: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
        """Return the shards in which `scanned` is below the end of the newest rows, with these
        ends."""
        return tuple((shard, end) for shard, end in self.tables.items() if scanned[shard] < end)


def identity_of(positions: Mapping[int, int]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the stream's id of positions, and by shard how many times its log had lost rows."""
    if not isinstance(positions, Positions):
        return "", ()
    return positions.stream, tuple(sorted(positions.losses.items()))
