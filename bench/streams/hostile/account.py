"""What programs were told, held against the stream as it is in the end."""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from bench.streams.hostile.programs import (
    HALVES,
    PATIENCE,
    SHARD,
    STREAM,
    Deciding,
    Folding,
    Producer,
    Sharing,
    place,
)
from canopy.client.client import connect
from overlay.info import AppendReceipt
from streams.log.names import shard_name
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
        """Of each producer the places of its rows, by number; -1: it is not there."""
        self.halves: Counter[str] = Counter()  # rows of each transaction
        self.shared: set[int] = set()  # places of the rows that the group wants
        self.ends: Counter[int] = Counter()  # by shard

    @property
    def end(self) -> int:
        """Rows of all shards."""
        return self.ends.total()

    def read(
        self, data: Path, producers: Sequence[Producer], end: int, stream: str = STREAM
    ) -> None:
        """Look at every row of the stream, which has `end` at least."""
        self.rows = {each.name: array("q", [-1]) * each.sent for each in producers}
        with connect(data, reconnect=PATIENCE) as client:
            reading = client.read(stream, start="first")
            while events := reading.take(timeout=SILENT if self.end < end else SILENCE):
                for event in events:
                    if event.offset != self.ends[event.shard]:
                        self.wrong["offsets with a gap"] += 1
                    self.ends[event.shard] = event.offset + 1
                    self._note(place(event), event.attributes)
            reading.close()
        self.facts["rows"] = self.end
        self.wrong["rows that cannot be read"] = max(0, end - self.end)

    def mirror(self, data: Path, producers: Sequence[Producer], stream: str) -> None:
        """Each row is in the mirror at the same place, and nothing else."""
        copy = Account()
        copy.read(data, producers, self.end, stream)
        self.facts["rows of the mirror"] = copy.end
        for what, count in copy.wrong.items():
            self.wrong[f"the mirror: {what}"] += count
        self.wrong["the mirror: shards of another length"] += copy.ends != self.ends
        self.wrong["the mirror: rows that are elsewhere"] += sum(
            mine != there
            for name, rows in self.rows.items()
            for mine, there in zip(rows, copy.rows[name], strict=True)
        )
        self.wrong["the mirror: transactions with other rows"] += copy.halves != self.halves

    def _note(self, at: int, attributes: dict[str, Any]) -> None:
        if "t" in attributes:
            self.halves[attributes["t"]] += 1
            return
        mine, number = self.rows[attributes["p"]], attributes["n"]
        if number >= len(mine):
            self.wrong["rows that nobody sent"] += 1
            return
        if mine[number] >= 0:
            self.wrong["rows that are there twice"] += 1
        mine[number] = at
        if attributes["shared"]:
            self.shared.add(at)

    def producers(self, programs: Sequence[Producer]) -> None:
        """Each acknowledged row is there, in order, where its receipt says."""
        for each in programs:
            mine = self.rows[each.name]
            told = mine[: each.acknowledged]
            self.facts["acknowledged"] += len(told)
            self.wrong["acknowledged rows that are lost"] += told.count(-1)
            for shard in self.ends:
                order = (at for at in mine if at >= 0 and at // SHARD == shard)
                self.wrong["rows out of order"] += sum(a > b for a, b in pairwise(order))
            for first, end, receipt in each.receipts:
                self.facts["receipts"] += 1
                at = receipt.shard * SHARD + receipt.first
                named = range(at, at + receipt.count)
                if [at for at in mine[first:end] if at in named] != list(named):
                    self.wrong["receipts that name other rows"] += 1

    def transactions(self, program: Deciding) -> None:
        """All rows of a transaction that was committed, and none of another."""
        for name, outcome in program.outcomes.items():
            self.facts[f"transactions {outcome}"] += 1
            wanted = HALVES if outcome == "committed" else 0
            if self.halves[name] != wanted:
                self.wrong[f"transactions {outcome}, and not as such"] += 1
        self.wrong["transactions that nobody made"] += len(self.halves.keys() - program.outcomes)

    def group(self, members: Sequence[Sharing]) -> None:
        """Each row that the group wants was given to somebody, and to nobody once a member knew
        that it was done with. (Two may have acknowledged it: one whose lease was over is told that
        it is done with, if another has done it meanwhile.)"""
        got, done = Counter[int](), dict[int, float]()
        for each in members:
            got.update(each.got)
            for row, at in each.done.items():
                done[row] = min(at, done.get(row, at))
        for each in members:
            self.wrong["rows that came again when they were done with"] += sum(
                row in done and at > done[row] + SLACK for row, at in each.got_at.items()
            )
        self.facts["rows of the group"] = len(self.shared)
        self.facts["deliveries of the group"] = got.total()
        self.wrong["rows that the group did not get"] += len(self.shared - got.keys())
        self.wrong["rows that the group got and does not want"] += len(got.keys() - self.shared)
        self.facts["rows acknowledged without an answer"] = len(self.shared - done.keys())

    def folded(self, program: Folding) -> None:
        """The database has each row once."""
        with sqlite3.connect(program.database) as db:
            found = db.execute(
                "SELECT at / ? AS shard, count(*), min(at % ?), max(at % ?) + 1 FROM folded "
                "GROUP BY shard",
                [SHARD] * 3,
            ).fetchall()
        self.facts["rows folded"] = folded = sum(count for _, count, _, _ in found)
        if {*found} != {(shard, end, 0, end) for shard, end in self.ends.items()}:
            self.wrong["rows that the database has not, or twice"] += abs(self.end - folded) or 1

    def files(self, folders: Sequence[Path], programs: Sequence[Producer], stream: str) -> None:
        """The files of all replicas are whole, and those of the stream with this id prove receipts.
        `folders`: of a replica each."""
        receipts = [receipt for each in programs for _, _, receipt in each.receipts]
        for folder in folders:
            is_of = folder.parent.name == stream
            mine = [each for each in receipts if is_of and each.shard == int(folder.name)]
            wanted: list[Receipt | None] = [*proofs(folder, mine)]
            for proof in wanted or [None]:
                names = sorted(p.name for p in folder.iterdir() if parse_name(p.name))
                shard = shard_name(folder.parent.name, int(folder.name))
                found = Verifier(shard, proof).run(names, partial(contents, folder))
                self.facts["receipts proved offline"] += found.receipt == "proved"
                if found.fault is not None:
                    self.wrong[f"a fault in a replica's files: {found.fault.what}"] += 1
                elif proof is not None and found.receipt != "proved":
                    self.wrong[f"a receipt {found.receipt} by a replica's files"] += 1


def contents(folder: Path, name: str) -> bytes:
    """The bytes of one file of a folder."""
    return (folder / name).read_bytes()


def proofs(folder: Path, receipts: Sequence[AppendReceipt]) -> Iterator[Receipt]:
    """The first and the last receipt, as the files of a replica prove them."""
    for each in (receipts[0], receipts[-1]) if receipts else ():
        place = (each.shard, each.epoch, each.first, each.count, each.chunk, each.hash)
        yield Receipt(folder.parent.name, *place)
