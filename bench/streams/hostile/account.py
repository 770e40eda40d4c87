"""What programs were told, held against the stream as it is in the end."""

from __future__ import annotations

import sqlite3
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.streams.hostile.programs import (
    HALVES,
    PATIENCE,
    STREAM,
    Deciding,
    Folding,
    Producer,
    Sharing,
)
from canopy.client.client import connect
from overlay.info import AppendReceipt
from streams.log.shard_log import parse_name
from streams.log.verify import Receipt, Verifier

SILENT: Final = 120.0
"""Seconds without a row after which no more is read; ample."""

SILENCE: Final = 5.0
"""Seconds without a row after which there is none."""

SLACK: Final = 2.0
"""Seconds for which a row may be on its way to a program, on a busy machine."""


class Account:
    """`wrong`: what must not be, with how often; `facts`: what was looked at."""

    def __init__(self) -> None:
        self.wrong: Counter[str] = Counter()
        self.facts: Counter[str] = Counter()
        self.rows: dict[str, array[int]] = {}
        """Of each producer the offsets of its rows, by number; -1: it is not there."""
        self.halves: Counter[str] = Counter()  # rows of each transaction
        self.shared: set[int] = set()  # offsets of the rows that the group wants
        self.end = 0

    def read(self, data: Path, producers: Sequence[Producer], end: int) -> None:
        """Look at every row of the stream, which has those below `end` at least."""
        self.rows = {each.name: array("q", [-1]) * each.sent for each in producers}
        with connect(data, reconnect=PATIENCE) as client:
            reading = client.read(STREAM, start="first")
            while events := reading.take(timeout=SILENT if self.end < end else SILENCE):
                for event in events:
                    if event.offset != self.end:
                        self.wrong["offsets with a gap"] += 1
                    self.end = event.offset + 1
                    self._note(event.offset, event.attributes)
            reading.close()
        self.facts["rows"] = self.end
        self.wrong["rows that cannot be read"] = max(0, end - self.end)

    def _note(self, offset: int, attributes: dict[str, Any]) -> None:
        if "t" in attributes:
            self.halves[attributes["t"]] += 1
            return
        mine, number = self.rows[attributes["p"]], attributes["n"]
        if number >= len(mine):
            self.wrong["rows that nobody sent"] += 1
            return
        if mine[number] >= 0:
            self.wrong["rows that are there twice"] += 1
        mine[number] = offset
        if attributes["shared"]:
            self.shared.add(offset)

    def producers(self, programs: Sequence[Producer]) -> None:
        """Each acknowledged row is there, in order, where its receipt says."""
        for each in programs:
            mine = self.rows[each.name]
            told = mine[: each.acknowledged]
            self.facts["acknowledged"] += len(told)
            self.wrong["acknowledged rows that are lost"] += told.count(-1)
            order = (offset for offset in mine if offset >= 0)
            self.wrong["rows out of order"] += sum(a > b for a, b in pairwise(order))
            for first, end, receipt in each.receipts:
                self.facts["receipts"] += 1
                number = bisect_left(mine, receipt.first, first, end)
                there = mine[number : min(number + receipt.count, end)].tolist()
                if there != list(range(receipt.first, receipt.first + receipt.count)):
                    self.wrong["receipts that name other rows"] += 1

    def transactions(self, program: Deciding) -> None:
        """All rows of a transaction that was committed, and none of another."""
        for name, outcome in program.outcomes.items():
            self.facts[f"transactions {outcome}"] += 1
            wanted = HALVES if outcome == "committed" else 0
            if self.halves.pop(name, 0) != wanted:
                self.wrong[f"transactions {outcome}, and not as such"] += 1
        self.wrong["transactions that nobody made"] += len(self.halves)

    def group(self, members: Sequence[Sharing]) -> None:
        """Each row that the group wants was given to somebody, and to nobody once a member knew
        that it was done with. (Two may have acknowledged it: one whose lease was over is told that
        it is done with, if another has done it meanwhile.)"""
        got, done = Counter[int](), dict[int, float]()
        for each in members:
            got.update(each.got)
            for offset, at in each.done.items():
                done[offset] = min(at, done.get(offset, at))
        for each in members:
            self.wrong["rows that came again when they were done with"] += sum(
                offset in done and at > done[offset] + SLACK for offset, at in each.got_at.items()
            )
        self.facts["rows of the group"] = len(self.shared)
        self.facts["deliveries of the group"] = got.total()
        self.wrong["rows that the group did not get"] += len(self.shared - got.keys())
        self.wrong["rows that the group got and does not want"] += len(got.keys() - self.shared)
        self.facts["rows acknowledged without an answer"] = len(self.shared - done.keys())

    def folded(self, program: Folding) -> None:
        """The database has each row once."""
        with sqlite3.connect(program.database) as db:
            found = db.execute("SELECT count(*), min(at), max(at) FROM folded").fetchone()
        self.facts["rows folded"] = found[0]
        if found != (self.end, 0, self.end - 1):
            self.wrong["rows that the database has not, or twice"] += abs(self.end - found[0]) or 1

    def files(self, folders: Sequence[Path], programs: Sequence[Producer]) -> None:
        """Each replica's files are whole, and prove receipts."""
        receipts = [receipt for each in programs for _, _, receipt in each.receipts]
        for folder in folders:
            for proof in proofs(folder, receipts):
                names = sorted(p.name for p in folder.iterdir() if parse_name(p.name))
                load = partial(contents, folder)
                found = Verifier(proof.name, proof).run(names, load)
                self.facts["receipts proved offline"] += found.receipt == "proved"
                if found.fault is not None:
                    self.wrong[f"a fault in a replica's files: {found.fault.what}"] += 1
                elif found.receipt != "proved":
                    self.wrong[f"a receipt {found.receipt} by a replica's files"] += 1


def contents(folder: Path, name: str) -> bytes:
    """The bytes of one file of a folder."""
    return (folder / name).read_bytes()


def proofs(folder: Path, receipts: Sequence[AppendReceipt]) -> Iterator[Receipt]:
    """The first and the last receipt, as the files of a replica prove them."""
    for each in (receipts[0], receipts[-1]) if receipts else ():
        place = (each.shard, each.epoch, each.first, each.count, each.chunk, each.hash)
        yield Receipt(folder.parent.name, *place)
