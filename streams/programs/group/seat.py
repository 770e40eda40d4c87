"""One shard of a program's membership, at the program's node: what it has, and until when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import isnan
from typing import Final, NamedTuple

from overlay.stream_client import GroupRow
from streams.log.batches import decode_rows
from streams.programs.group.messages import Attachment, LeasedRow, Settlement

NANOSECONDS: Final = 1e9


class Held(NamedTuple):
    """A row that the member has, until some time by the node's clock."""

    offset: int
    until: float


class Settling:
    """Something that a program has said of rows, and that is not answered. Rows of several shards
    are told of together."""

    def __init__(self, request: int) -> None:
        self.request = request
        self.open: set[tuple[int, int]] = set()  # (shard, lease)
        self.lost: list[tuple[int, int]] = []  # (shard, offset)


class Seat:
    """One member at one shard: what it was given there, and what it has settled."""

    def __init__(self, place: int, attachment: Attachment = (0, 0)) -> None:
        """`attachment`: as which the program was a member before."""
        self.place = place
        """The shard's number in its stream."""
        self.attachment = attachment
        self.lease = 0.0
        self.rows: deque[LeasedRow] = deque()
        """Rows that the program has not taken."""
        self.held: dict[int, Held] = {}
        """By lease, with those that the program has not taken."""
        self.settling: dict[int, tuple[Settlement, list[Settling]]] = {}
        """What the program has said of rows, by lease, and who waits for the answer."""
        self.extending: dict[int, tuple[Settlement, list[Settling]]] = {}
        """The same of leases that are to be extended."""

    def settle(self, settled: Iterable[Settlement], by: Settling) -> None:
        """The program says what becomes of rows; `by` waits for the answers."""
        for one in settled:
            by.open.add((self.place, one.lease))
            table = self.extending if one.what == "extend" else self.settling
            table.setdefault(one.lease, (one, []))[1].append(by)

    def joined(self, attachment: Attachment, lease: float, kept: Iterable[int]) -> None:
        """It is a member; of its leases those in `kept` go on."""
        self.attachment, self.lease = attachment, lease
        there = set(kept)
        self.held = {lease: held for lease, held in self.held.items() if lease in there}
        self._forget_others()

    def _forget_others(self) -> None:
        self.rows = deque(row for row in self.rows if row.lease in self.held)

    def take_in(self, rows: Iterable[LeasedRow], at: float, now: float) -> str:
        """Rows have come, whose leases began when it was `at`, or later. Returns why that cannot
        be; "": it can. What the member has already is not taken twice."""
        if isnan(at) or at > now:
            return f"leases began at {at}, which has not come"
        until = at + self.lease
        fault = ""
        for row in rows:
            if row.lease in self.held or row.lease in self.settling:
                fault = f"the row at offset {row.offset} has come twice by one lease"
            elif until > now:  # else it is another's by now, perhaps
                self.held[row.lease] = Held(row.offset, until)
                self.rows.append(row)
        return fault

    def expire(self, now: float) -> None:
        """Forget what the leader takes back about now."""
        over = [lease for lease, held in self.held.items() if held.until <= now]
        for lease in over:
            del self.held[lease]
        if over:
            self._forget_others()

    def to_extend(self, now: float) -> list[Settlement]:
        """The leases of rows that wait here for the program, and are half over."""
        waiting = [row for row in self.rows if self.held[row.lease].until - now < self.lease / 2]
        return [Settlement(row.offset, row.lease, "extend") for row in waiting]

    def unanswered(self, now: float) -> list[Settlement]:
        """What the program has said and the leader has not answered, and what is to be extended."""
        said = (*self.settling.values(), *self.extending.values())
        return [settlement for settlement, _ in said] + self.to_extend(now)

    def extended(self, leases: Iterable[int], at: float, now: float) -> str:
        """Leases began anew when it was `at`. Returns why that cannot be; "": it can."""
        if leases and (isnan(at) or at > now):
            return f"leases began anew at {at}, which has not come"
        for lease in leases:
            held = self.held.get(lease)
            if held is not None:
                self.held[lease] = Held(held.offset, max(held.until, at + self.lease))
            if lease in self.extending:
                self._answer(self.extending.pop(lease)[1], lease)
        return ""

    def settled(self, leases: Iterable[int]) -> None:
        """What was said of rows is in the log."""
        for lease in leases:
            self.held.pop(lease, None)
            if lease in self.settling:
                self._answer(self.settling.pop(lease)[1], lease)

    def lost(self, leases: Iterable[int]) -> None:
        """Leases were over before."""
        for lease in leases:
            self.held.pop(lease, None)
            for table in (self.settling, self.extending):
                if lease in table:
                    settlement, waiting = table.pop(lease)
                    for one in waiting:
                        one.lost.append((self.place, settlement.offset))
                    self._answer(waiting, lease)
        self._forget_others()

    def _answer(self, waiting: list[Settling], lease: int) -> None:
        for one in waiting:
            one.open.discard((self.place, lease))

    def take(self, most: int, size: int, now: float) -> tuple[list[GroupRow], int, str]:
        """At most `most` rows of some `size` bytes; returns them, their bytes, and why the next
        one cannot be handed over ("": it can). Its lease runs out."""
        found: list[GroupRow] = []
        taken = 0
        while self.rows and len(found) < most and taken < size:
            leased = self.rows.popleft()
            try:
                (row,) = decode_rows(leased.row, 1)
            except ValueError as error:
                del self.held[leased.lease]
                return found, taken, f"the row at offset {leased.offset} cannot be read: {error}"
            taken += len(leased.row)
            left = self.held[leased.lease].until - now
            found.append(
                GroupRow(
                    *(self.place, leased.offset, leased.lease, leased.deliveries, left),
                    *(leased.time / NANOSECONDS, row.attributes, row.payload, row.payload_type),
                )
            )
        return found, taken, ""
