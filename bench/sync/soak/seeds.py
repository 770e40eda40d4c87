"""One seed: a random schema, random work, what is killed meanwhile, and the comparison."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from bench.command import say
from bench.sync.processes import Syncs
from bench.sync.soak.tables import SoakTable, SoakTables
from harness.databases.comparing import plain_rows
from harness.databases.mariadb import Mariadb
from harness.databases.postgres import Postgres
from harness.databases.sqlite import Sqlite
from harness.mariadb import MariadbServer
from harness.postgres import Server
from overlay.phrases import in_one_line

PAIRS = (
    ("sqlite", "postgresql"),
    ("postgresql", "sqlite"),
    ("postgresql", "postgresql"),
    ("mariadb", "postgresql"),
    ("postgresql", "mariadb"),
    ("sqlite", "mariadb"),
    ("mariadb", "sqlite"),
    ("mariadb", "mariadb"),
    ("sqlite", "sqlite"),
)
PATIENCE = 90.0
"""Seconds until the destination has the last row."""


class SoakError(Exception):
    """Something that must not be; `text` says what."""


class Servers:
    """The servers of all seeds, started when they are needed first."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def of(self, kind: str, role: str) -> Any:
        """A server for the source or for the destination: one is killed without the other."""
        name = f"{kind} {role}"
        if name not in self.found and kind == "postgresql":
            self.found[name] = Server("fsync=off", "synchronous_commit=on")
        elif name not in self.found:
            self.found[name] = MariadbServer(*("innodb-flush-log-at-trx-commit=1", "sync-binlog=1"))
            self.found[name].settle()
        return self.found[name]

    def stop(self) -> None:
        for server in self.found.values():
            server.stop()


class Seed:
    """The work of one seed."""

    def __init__(self, number: int, steps: int, servers: Servers, say: Callable[[str], None]):
        self.number = number
        self.steps = steps
        self.rng = Random(number)
        self.say = say
        self.servers = servers
        self.kinds = PAIRS[number % len(PAIRS)]
        self.folder = Path(tempfile.mkdtemp(prefix="canopy-sync-soak-"))
        self.done: Counter[str] = Counter()
        self.big = 0

    def run(self) -> None:
        """Run the steps of this seed and compare the databases. Raises SoakError."""
        source_kind, target_kind = self.kinds
        finite = "mariadb" in self.kinds
        self.source = self._database(source_kind, "source", finite)
        self.target = self._database(target_kind, "target", finite)
        self.work = SoakTables(self.source, self.rng)
        with ExitStack() as stack:
            stack.callback(self.source.close)
            stack.callback(self.target.close)
            for name in ("finish", "big"):
                kind = "text" if source_kind != "mariadb" else "varchar(40)"
                self.source.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, t {kind})")
            for _ in range(self.rng.randint(1, 3)):
                self.work.create()
            for _ in range(20):
                self.try_(self.work.change)
            self.syncs = Syncs(self.folder, stack)
            _, files = self.syncs.defined(self.source.url, self.target.url)
            sides = stack.enter_context(self.syncs.running(*files))
            self.sides = dict(zip(("from", "to"), sides, strict=True))
            for _ in range(self.steps):
                self.step()
            self.finish()
        shutil.rmtree(self.folder, ignore_errors=True)

    def step(self) -> None:
        """Do one random step, as the seed draws it."""
        way = self.rng.randint(0, 99)
        if way < 62:
            self.transaction(self.rng.randint(1, 12))
        elif way < 72:
            time.sleep(self.rng.random() * 0.4)
        elif way < 82:
            self.done["alter"] += 1
            self.ddl(self.work.alter)
        elif way < 85:
            self.done["create"] += 1
            self.ddl(self.work.create)
        elif way < 87:
            self.done["large"] += 1
            self.try_(lambda: self.work.large(self.big * 1_000_000))
            self.big += 1
        else:
            self.kill()

    def transaction(self, changes: int) -> None:
        self.done["transactions"] += 1
        before = [(table, list(table.keys)) for table in self.work.tables]
        try:
            self.source.execute("BEGIN IMMEDIATE" if self.kinds[0] == "sqlite" else "BEGIN")
            for _ in range(changes):
                self.work.change()
            self.source.execute("COMMIT" if self.rng.randint(0, 5) else "ROLLBACK")
        except Exception:
            for table, keys in before:
                table.keys = keys
            self.again()

    def ddl(self, work: Callable[[], str]) -> None:
        """Change a shape, perhaps with rows in the same transaction."""
        if self.kinds[0] == "mariadb" or self.rng.randint(0, 1):
            self.try_(work, said=True)
            return
        tables = [SoakTable(t.name, list(t.columns), t.key) for t in self.work.tables]
        try:
            self.source.execute("BEGIN IMMEDIATE" if self.kinds[0] == "sqlite" else "BEGIN")
            self.work.change()
            what = work()
            self.work.change()
            self.source.execute("COMMIT")
            self.say(f"  in a transaction: {what}")
        except Exception as error:
            self.say(f"  not done: {error}")
            self.work.tables = tables
            self.again()

    def try_(self, work: Callable[[], Any], said: bool = False) -> None:
        try:
            found = work()
            if said:
                self.say(f"  {found}")
        except Exception as error:
            self.say(f"  not done: {in_one_line(error)[:200]}")
            self.again()

    def again(self) -> None:
        """Another transaction, if need be over another connection."""
        try:
            self.source.execute("ROLLBACK")
        except Exception:
            self.source.reconnect()

    def kill(self) -> None:
        names = ["from", "from", "to", "to", "node"]
        roles = zip(self.kinds, ("source", "target"), strict=True)
        names += [f"{kind} {role}" for kind, role in roles if kind != "sqlite"]
        name = self.rng.choice(names)
        self.done[f"kill {name}"] += 1
        self.say(f"  kill {name}")
        if name == "node":
            self.syncs.restart_node()
            return
        if name in self.sides:
            self.sides[name].kill()
            self.sides[name].start()
            return
        server = self.servers.found[name]
        server.kill()
        time.sleep(self.rng.random() * 0.3)
        server.start()
        (self.source if name.endswith("source") else self.target).reconnect()

    def finish(self) -> None:
        """Wait for the last row, and compare all tables."""
        for table in self.work.tables:
            self.try_(lambda table=table: self.work.insert(table))  # type: ignore[misc]
        self.await_published()
        self.await_row(1)
        # MariaDB shows a part of a transaction that alters tables; what comes behind it is whole.
        self.await_row(2)
        for table in self.work.tables:
            self.compare(table)
        for name in ("big", "finish"):
            mine = sorted(map(str, self.source.read(name, ("id", "t"))))
            yours = sorted(map(str, self.target.read(name, ("id", "t"))))
            if [x.replace("'", "") for x in mine] != [x.replace("'", "") for x in yours]:
                raise SoakError(f"{name} differs: {len(mine):,} rows and {len(yours):,}")

    def await_row(self, number: int) -> None:
        """Insert a row into `finish`, and wait until the destination has it."""
        self.source.execute(f"INSERT INTO finish VALUES ({number}, 'the last')")
        until = time.monotonic() + PATIENCE
        while not self.has_last(number):
            for name, side in self.sides.items():
                if side.process.poll() is not None:
                    raise SoakError(f"side {name} has ended: {side.said()}")
            if time.monotonic() > until:
                said = "\n".join(side.said()[-600:] for side in self.sides.values())
                raise SoakError(f"the last row has not come: {said}")
            time.sleep(0.05)

    def await_published(self) -> None:
        """PostgreSQL's log has tables that were made later from when the source side has seen
        them; the last row is to come behind that."""
        until = time.monotonic() + PATIENCE
        names = {table.name for table in self.work.tables}
        while self.kinds[0] == "postgresql" and time.monotonic() < until:
            found = self.source.execute("SELECT tablename FROM pg_publication_tables")
            if names <= {name for (name,) in found}:
                return
            time.sleep(0.1)

    def has_last(self, number: int) -> bool:
        try:
            return len(self.target.read("finish", ("id", "t"))) >= number
        except Exception:
            try:
                self.target.reconnect()
            except Exception:
                time.sleep(0.2)
            return False

    def compare(self, table: SoakTable) -> None:
        try:
            mine = plain_rows(table.means, self.source.read(table.name, table.names))
            yours = plain_rows(table.means, self.target.read(table.name, table.names))
        except Exception as error:
            raise SoakError(f"{table.name} cannot be read: {error}") from error
        if mine != yours:
            more = [row for row in mine if row not in yours]
            less = [row for row in yours if row not in mine]
            only = [f"    source only {r}" for r in more[:4]]
            shown = "\n".join([*only, *(f"    destination only {r}" for r in less[:4])])
            kinds = ", ".join(f"{name} {kind.declared}" for name, kind in table.columns)
            raise SoakError(
                f"{table.name} ({kinds}) differs in {len(more)} and {len(less)} of {len(mine)} "
                f"rows:\n{shown}"
            )

    def _database(self, kind: str, role: str, finite: bool) -> Any:
        if kind == "sqlite":
            return Sqlite(self.folder / f"{role}.db", finite=finite)
        if kind == "postgresql":
            return Postgres(self.servers.of(kind, role), finite=finite)
        return Mariadb(self.servers.of(kind, role))


def run_seed(number: int, steps: int, servers: Servers, verbose: bool) -> str:
    """Run a seed: "" or what is wrong. Its folder is kept then."""
    lines: list[str] = []
    seed = Seed(number, steps, servers, say if verbose else lines.append)
    began = time.monotonic()
    try:
        seed.run()
    except SoakError as error:
        tail = "\n".join(lines[-12:])
        return f"seed {number} ({' to '.join(seed.kinds)}): {error}\n{tail}\n  {seed.folder}"
    done = ", ".join(f"{count} {what}" for what, count in sorted(seed.done.items()))
    took = f"{time.monotonic() - began:.0f} s"
    print(f"seed {number} ({' to '.join(seed.kinds)}): identical, {done}; {took}", flush=True)
    return ""
