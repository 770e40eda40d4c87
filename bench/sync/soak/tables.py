"""Random tables of one database, their rows, and changes of their shape."""

from __future__ import annotations

from random import Random
from typing import Any

from harness.databases.database import Database
from harness.databases.drawing import Kind, RandomDraw, nullable

NAMES = ("a", "B", "Order", "group", "x y", "é", 'q"q', "c%s", "1st", "select", "a.b", "semi;")
"""Odd names, reserved words, upper case."""
BIG = 25_000
"""Rows of a large transaction: more than a destination keeps at once."""


class SoakTable:
    """A table as the soak knows it."""

    def __init__(self, name: str, columns: list[tuple[str, Kind]], key: int) -> None:
        """The first `key` columns are the primary key."""
        self.name = name
        self.columns = columns
        self.key = key
        self.keys: list[tuple[Any, ...]] = []  # that may be there

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]

    @property
    def means(self) -> list[str]:
        return [kind.means for _, kind in self.columns]


class SoakTables:
    """All tables of the source, and random work at them."""

    def __init__(self, database: Database, rng: Random) -> None:
        self.database = database
        self.rng = rng
        self.draw = RandomDraw(rng)
        self.tables: list[SoakTable] = []
        self._numbers = iter(range(1, 1_000_000))

    @property
    def kind(self) -> str:
        return str(self.database.kind)  # type: ignore[attr-defined]

    def create(self) -> str:
        """A new table of random columns: its name."""
        rng, number = self.rng, next(self._numbers)
        name = f"{rng.choice(NAMES)}{number}"
        key = rng.choice((1, 1, 1, 2))
        columns = [(self._name(), rng.choice(self.database.keys)) for _ in range(key)]
        columns += [
            (self._name(), rng.choice(self.database.kinds)) for _ in range(rng.randint(1, 8))
        ]
        table = SoakTable(name, columns, key)
        self._run(
            f"CREATE TABLE {self._n(name)} ("
            + ", ".join(f"{self._n(c)} {kind.declared}" for c, kind in columns)
            + f", PRIMARY KEY ({', '.join(self._n(c) for c, _ in columns[:key])}))"
        )
        self.tables.append(table)
        return name

    def change(self) -> None:
        """One change of rows, of a random table."""
        rng = self.rng
        table = rng.choice(self.tables)
        name = self._n(table.name)
        where = " AND ".join(f"{self._n(c)} = ?" for c in table.names[: table.key])
        way = rng.randint(0, 9) if table.keys else 0
        if way <= 4:
            self.insert(table)
            return
        key = rng.choice(table.keys)
        if way == 5:
            self._run(f"DELETE FROM {name} WHERE {where}", key)
        elif way == 6:  # the key changes
            new = tuple(kind.value(self.draw) for _, kind in table.columns[: table.key])
            self._run(f"DELETE FROM {name} WHERE {where}", new)
            sets = ", ".join(f"{self._n(c)} = ?" for c in table.names[: table.key])
            self._run(f"UPDATE {name} SET {sets} WHERE {where}", [*new, *key])
            table.keys.append(new)
        elif way == 7 and rng.randint(0, 9) == 0:
            truncate = "DELETE FROM" if self.kind == "sqlite" else "TRUNCATE TABLE"
            self._run(f"{truncate} {name}")
        elif len(table.columns) > table.key:
            column, kind = rng.choice(table.columns[table.key :])
            self._run(
                f"UPDATE {name} SET {self._n(column)} = ? WHERE {where}",
                [nullable(kind, self.draw), *key],
            )

    def insert(self, table: SoakTable) -> None:
        """A new row, instead of the one that may have its key."""
        key = tuple(kind.value(self.draw) for _, kind in table.columns[: table.key])
        rest = [nullable(kind, self.draw) for _, kind in table.columns[table.key :]]
        name = self._n(table.name)
        where = " AND ".join(f"{self._n(c)} = ?" for c in table.names[: table.key])
        verb = "INSERT"
        if self.kind in ("sqlite", "mariadb") and self.rng.randint(0, 1):
            verb = "REPLACE"
        else:
            self._run(f"DELETE FROM {name} WHERE {where}", key)
        columns = ", ".join(map(self._n, table.names))
        marks = ", ".join("?" * len(table.columns))
        self._run(f"{verb} INTO {name} ({columns}) VALUES ({marks})", [*key, *rest])
        table.keys = [*table.keys[-50:], key]

    def alter(self) -> str:
        """One change of a table's shape: what it was."""
        rng = self.rng
        table = rng.choice(self.tables)
        ways = ["add", "add", "rename"]
        if self.kind != "sqlite":  # which does not drop a column that a trigger names
            ways += ["drop", "type"]
        else:
            ways += ["rebuild"]
        way = rng.choice(ways)
        name = self._n(table.name)
        others = range(table.key, len(table.columns))
        if way == "add" or not others:
            column, kind = self._name(), rng.choice(self.database.kinds)
            default = " DEFAULT '7'" if kind.means in ("int", "text", "decimal") else ""
            if any(word in kind.declared for word in ("json", "text", "enum", "set", "bit", "[")):
                default = ""
            if kind.declared in ("uuid", "interval", "timetz", "inet", "inet6", "year", "mood"):
                default = ""
            if kind.declared.startswith("time") or "(9,9)" in kind.declared:
                default = ""
            self._run(f"ALTER TABLE {name} ADD COLUMN {self._n(column)} {kind.declared}{default}")
            table.columns.append((column, kind))
            return f"add {table.name}.{column} {kind.declared}"
        place = rng.choice(others)
        column, kind = table.columns[place]
        if way == "rename":
            new = self._name()
            self._run(f"ALTER TABLE {name} RENAME COLUMN {self._n(column)} TO {self._n(new)}")
            table.columns[place] = (new, kind)
            return f"rename {table.name}.{column} to {new}"
        if way == "rebuild":
            self._rebuild(table)
            return f"rebuild {table.name}"
        if way == "drop":
            self._run(f"ALTER TABLE {name} DROP COLUMN {self._n(column)}")
            del table.columns[place]
            return f"drop {table.name}.{column}"
        return self._retype(table, place)

    def _retype(self, table: SoakTable, place: int) -> str:
        name, (column, kind) = self._n(table.name), table.columns[place]
        if kind.means != "int" or not kind.declared.startswith(("int", "small", "medium", "big")):
            return "no type to change"
        new = next(k for k in self.database.kinds if k.declared in ("text", "longtext"))
        if self.kind == "postgresql":
            said = f"ALTER COLUMN {self._n(column)} TYPE text"
        else:
            said = f"MODIFY {self._n(column)} longtext"
        self._run(f"ALTER TABLE {name} {said}")
        table.columns[place] = (column, new)
        return f"type of {table.name}.{column} from {kind.declared} to {new.declared}"

    def _rebuild(self, table: SoakTable) -> None:
        """As SQLite's manual says to alter what ALTER TABLE cannot."""
        (made,) = self._run("SELECT sql FROM sqlite_schema WHERE name = ?", [table.name])[0]
        new = self._n("canopy_rebuilt")
        body = made[made.index("(") :] if '"' not in table.name else made[made.rindex('" (') + 2 :]
        columns = ", ".join(map(self._n, table.names))
        self._run(f"CREATE TABLE {new} {body}")
        self._run(f"INSERT INTO {new} ({columns}) SELECT {columns} FROM {self._n(table.name)}")
        self._run(f"DROP TABLE {self._n(table.name)}")
        self._run(f"ALTER TABLE {new} RENAME TO {self._n(table.name)}")

    def large(self, first: int) -> None:
        """Many rows at once, in the table `big`."""
        numbers = {
            "sqlite": f"WITH RECURSIVE s(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM s "
            f"WHERE n < {first + BIG - 1}) SELECT n, 'row ' || n FROM s",
            "postgresql": f"SELECT n, 'row ' || n FROM generate_series({first}, "
            f"{first + BIG - 1}) n",
            "mariadb": f"SELECT {first} + seq, concat('row ', {first} + seq) "
            f"FROM seq_0_to_{BIG - 1}",
        }[self.kind]
        self._run(f"INSERT INTO big {numbers}")

    def _name(self) -> str:
        return f"{self.rng.choice(NAMES)}{next(self._numbers)}"

    def _n(self, name: str) -> str:
        return self.database.named(name)

    def _run(self, statement: str, values: Any = ()) -> Any:
        return self.database.execute(statement, values)
