"""Programs at a stream, each a thread at a node of its own, and what they were told.

All go on when their node or the stream's leader is lost: the library looks for the node, and what
ends with an error is begun again.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from canopy.client.client import Client, connect
from canopy.client.errors import CommandFailed, ControlError
from canopy.sinks.database import SinkError
from canopy.sinks.sqlite import SqliteSink
from matching import Value
from overlay.client import StreamEvent
from overlay.info import AppendReceipt
from overlay.stream_client import GroupRow

STREAM: Final = "ledger"
GROUP: Final = "group"
WANTED: Final = "shared = TRUE"
SHARE: Final = 10
"""The group wants one row in so many."""

SHARD: Final = 1 << 40
"""What a row's *place* begins with: its shard's number, and the offset there."""

PATIENCE: Final = 60.0
"""Seconds for which a program looks for its node, or waits for an answer."""

PAUSE: Final = 0.3
"""Seconds after an error."""

HALVES: Final = 3  # rows of a transaction
DECIDE_AFTER: Final = 0.02
"""Seconds between preparing and deciding, so that faults come in between."""


def place(row: StreamEvent | GroupRow) -> int:
    """Where a row is: one number for shard and offset."""
    return row.shard * SHARD + row.offset


class Program(threading.Thread):
    """Works until `ends`; errors of the connection are counted, all others kept in `fault`."""

    def __init__(self, name: str, data: Path, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.data = data
        self.rng = Random(f"{seed} {name}")
        self.ends = threading.Event()
        self.errors: dict[str, int] = {}
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Work, and begin again after an error."""
        while not self.ends.is_set():
            try:
                with connect(self.data, reconnect=PATIENCE) as client:
                    self.work(client)
            except (ControlError, SinkError) as error:
                code = error.code if isinstance(error, CommandFailed) else type(error).__name__
                self.errors[code] = self.errors.get(code, 0) + 1
                self.ends.wait(PAUSE)
            except BaseException as error:
                self.fault = error
                return

    def work(self, client: Client) -> None:
        """Until it ends, or an error."""
        raise NotImplementedError


class Producer(Program):
    """Appends numbered rows in batches."""

    def __init__(self, name: str, data: Path, seed: int, most: int, rate: float) -> None:
        """`most`: rows of a request; `rate`: rows a second, at most."""
        super().__init__(name, data, seed)
        self.most, self.rate = most, rate
        self.acknowledged = 0  # rows below this number are
        self.sent = 0  # rows below this number may be there
        self.next: tuple[int, ...] = ()  # by shard: the number there of the next row
        self.receipts: list[tuple[int, int, AppendReceipt]] = []
        """Some of those that came, with the numbers of the rows of their request, from and below:
        a batch of it that was appended already has none."""

    def work(self, client: Client) -> None:
        """The next rows, from the first that is not acknowledged."""
        producer = client.producer(STREAM, self.name, first=self.next or 0)
        while not self.ends.is_set():
            first = self.acknowledged
            count = self.rng.choice([1, 1, 8, 64, self.most])
            self.sent = max(self.sent, first + count)
            rows: list[dict[str, Value]] = [
                {"p": self.name, "n": n, "shared": n % SHARE == 0, "v": n * 0.5}
                for n in range(first, first + count)
            ]
            done = producer.append(rows, timeout=PATIENCE)
            self.receipts += [
                (first, first + count, receipt)
                for receipt in done.receipts
                if len(self.receipts) < 1_000 or self.rng.random() < 0.01
            ]
            self.acknowledged, self.next = first + count, producer.next
            self.ends.wait(count / self.rate)


class Deciding(Program):
    """Prepares transactions, and commits some of them."""

    def __init__(self, name: str, data: Path, seed: int) -> None:
        super().__init__(name, data, seed)
        self.outcomes: dict[str, str] = {}
        """By transaction: what it was told, committed or rolled-back; "": it does not know."""
        self.number = 0

    def work(self, client: Client) -> None:
        """One transaction after the other."""
        while not self.ends.is_set():
            self.number += 1
            name = f"{self.name}.{self.number}"
            self.outcomes[name] = ""
            transaction = client.transaction(STREAM, self.name, name)
            transaction.prepare([{"t": name, "n": n} for n in range(HALVES)], timeout=PATIENCE)
            self.ends.wait(DECIDE_AFTER)
            if self.rng.random() < 0.7:
                self.outcomes[name] = transaction.commit(timeout=PATIENCE).outcome
            else:
                done = transaction.roll_back(timeout=PATIENCE)
                self.outcomes[name] = "rolled-back" if done is None else done.outcome

    def settle(self) -> int:
        """Decide what is not known, in the end; returns how many of these there were. A half that
        was never prepared is rolled back."""
        unknown = [name for name, outcome in self.outcomes.items() if not outcome]
        with connect(self.data, reconnect=PATIENCE) as client:
            for name in unknown:
                done = client.transaction(STREAM, self.name, name).roll_back(timeout=PATIENCE)
                self.outcomes[name] = "rolled-back" if done is None else done.outcome
        return len(unknown)


class Sharing(Program):
    """A member of a group, which acknowledges what it gets, sends some back and leaves now and
    then."""

    def __init__(self, name: str, data: Path, seed: int) -> None:
        super().__init__(name, data, seed)
        self.got: dict[int, int] = {}  # by place: how often
        self.got_at: dict[int, float] = {}  # by place: when last
        self.done: dict[int, float] = {}  # by place: since when it is known to be done with

    def work(self, client: Client) -> None:
        """Take rows, and say that they are done with."""
        options = {"start": "first", "lease": 10.0, "max_deliver": 1_000}
        with client.group(STREAM, GROUP, WANTED, name=self.name, **options) as member:  # type: ignore[arg-type]
            left = self.rng.randrange(50, 400)
            while left and not self.ends.is_set():
                rows = member.take(1.0, most=256)
                left -= 1
                for at in map(place, rows):
                    self.got[at] = self.got.get(at, 0) + 1
                    self.got_at[at] = time.monotonic()
                if rows and self.rng.random() < 0.05:
                    member.nack(rows.pop(), delay=0.5)
                member.ack(*rows)
                if rows:
                    member.flush()
                    lost = {shard * SHARD + offset for shard, offset in member.lost}
                    now = time.monotonic()
                    self.done |= {at: now for at in map(place, rows) if at not in lost}


class Folding(Program):
    """Reads everything into a database, with its position in the same transaction."""

    def __init__(self, name: str, data: Path, seed: int, database: Path) -> None:
        super().__init__(name, data, seed)
        self.database = database
        self.positions: dict[int, int] = {}  # by shard

    @property
    def position(self) -> int:
        """How many rows it has folded."""
        return sum(self.positions.values())

    def work(self, client: Client) -> None:
        """Rows into a table that takes each only once."""
        db = sqlite3.connect(self.database)
        try:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("CREATE TABLE IF NOT EXISTS folded (at INTEGER PRIMARY KEY, p, n)")
            sink = SqliteSink(db, self.name)
            with sink.read(client, STREAM, "") as reading:
                while not self.ends.is_set():
                    events = reading.take(timeout=1.0)
                    if not events:
                        continue
                    with sink.transaction(reading) as cursor:
                        rows = [
                            (place(e), e.attributes.get("p"), e.attributes["n"]) for e in events
                        ]
                        cursor.executemany("INSERT INTO folded VALUES (?, ?, ?)", rows)
                    self.positions |= {e.shard: e.offset + 1 for e in events}
        finally:
            db.close()


def wait(what: Callable[[], bool], seconds: float, every: float = 0.2) -> bool:
    """Wait until something holds; whether it does."""
    until = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(every)
    return True


def wait_on(what: Callable[[], bool], moves: Callable[[], object], seconds: float) -> bool:
    """Wait until something holds; whether it does. Given up when what `moves` returns has been the
    same for so many seconds."""
    seen, since = moves(), time.monotonic()
    while not what():
        now, found = time.monotonic(), moves()
        if found != seen:
            seen, since = found, now
        elif now - since > seconds:
            return False
        time.sleep(1.0)
    return True
