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

PATTERN: Final = re.compile(
    r"(?:(?P<stream>[^@,:\s]{1,128})@)?"
    r"(?P<places>[0-9]{1,5}:[0-9]{1,16}(\.[0-9]{1,9})?(,[0-9]{1,5}:[0-9]{1,16}(\.[0-9]{1,9})?)*)"
)


class Positions(dict[int, int]):
    """By shard, the offset of the row that is read next. As a text: ``ID@0:118,1:97``; behind an
    offset stands ``.1`` where the shard's log has lost rows once, ``.2`` where twice."""

    def __init__(
        self,
        places: Mapping[int, int] = {},
        stream: str = "",
        losses: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(places)
        self.stream = stream
        """The founding id of the stream; "": not known, so that nothing is compared."""
        self.losses: dict[int, int] = dict(losses or {})
        """By shard, how many times its log had lost rows; not known of others."""

    def __str__(self) -> str:
        places = ",".join(
            f"{shard}:{place}" + (f".{self.losses[shard]}" if self.losses.get(shard) else "")
            for shard, place in sorted(self.items())
        )
        return f"{self.stream}@{places}" if self.stream else places

    def copy(self) -> Positions:
        """The same, which do not move on."""
        return Positions(self, self.stream, self.losses)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The positions of a text. One without an id is taken as offsets of any stream. ValueError
        if it is none."""
        found = PATTERN.fullmatch(text)
        if found is None:
            wanted = "ID@SHARD:OFFSET,… or SHARD:OFFSET,…"
            raise ValueError(f"{text[:60]!r} is no position in a stream; expected {wanted}")
        places, losses = {}, {}
        for one in found["places"].split(","):
            shard, _, rest = one.partition(":")
            place, _, lost = rest.partition(".")
            places[int(shard)] = int(place)
            if found["stream"]:
                losses[int(shard)] = int(lost or 0)
        return cls(places, found["stream"] or "", losses)


def identity_of(positions: Mapping[int, int]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The stream's id of positions, and by shard how many times its log had lost rows."""
    if not isinstance(positions, Positions):
        return "", ()
    return positions.stream, tuple(sorted(positions.losses.items()))
