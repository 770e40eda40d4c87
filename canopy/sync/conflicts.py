"""Rows that were changed at both sides of a two-way sync, and what becomes of them (no IO).

A change says what its row was before. If the destination's row is not that, somebody has changed it
there, and a rule decides. So that both sides come to the same rows, the rules of the two directions
have to fit: *incoming* here and *own* there, or *newest* at both; and a row that gets another key
is two changes, of two rows: else one side could have decided against both, the other against one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec

from canopy.sync.changes import DELETE, INSERT, TRUNCATE, UPDATE, Change, Table, merged
from canopy.sync.conversions import Fit
from canopy.sync.dialects import Dialect
from canopy.sync.errors import SchemaError, SyncError
from canopy.sync.values import ABSENT, Row, Value

RULES: Final = ("incoming", "own", "newest", "park")


class Rule(msgspec.Struct, frozen=True):
    """The rule for a change that meets a row other than the one from which it was made.

    incoming: it is applied nevertheless; own: it is ignored; newest: the row with the greater value
    in `column` stays, and a row that one side has deleted and the other changed is kept; park: it
    is ignored, and a person decides later.
    """

    kind: str
    column: str = ""


class Conflict(msgspec.Struct, frozen=True):
    """A change that has met another row."""

    table: str
    key: str
    rule: str
    applied: bool
    before: str
    incoming: str
    own: str


def parse_rule(text: str) -> Rule:
    """The rule that a text such as "newest updated_at" means. Raises SyncError."""
    kind, _, column = text.strip().partition(" ")
    if kind not in RULES or bool(column) != (kind == "newest"):
        raise SyncError(f"{text!r} is no rule: incoming, own, park, or newest COLUMN")
    return Rule(kind, column.strip())


class Conflicts:
    """Decides about changes, before they are applied."""

    def __init__(self, rules: Mapping[str, str], dialect: Dialect) -> None:
        """`rules`: by table, "" for any other; `dialect`: of the destination. Raises SyncError."""
        self.rules = {name: parse_rule(text) for name, text in rules.items()}
        self._dialect = dialect
        self._fits: dict[str, tuple[Table, list[Fit], list[Fit]]] = {}

    def watches(self, table: str) -> bool:
        """Whether there is a rule for a table."""
        return table in self.rules or "" in self.rules

    def decide(
        self, changes: Sequence[Change], table: Table, rows: dict[Row, Row]
    ) -> tuple[list[Change], list[Conflict]]:
        """Return the changes to apply to rows of `table`, and the conflicts. `rows`: by key, the
        destination's rows that the changes may meet."""
        rule = self.rules.get(table.name) or self.rules[""]
        if rule.column and rule.column not in table.names:
            raise SchemaError(f"the rule of {table.name} asks for {rule.column}, no column of it")
        state = {key: self._plain(table, row, kept=True) for key, row in rows.items()}
        applied, conflicts = [], []
        for change in _apart(changes, table):
            found, conflict = self._decide(change, table, rule, state)
            if conflict is not None:
                conflicts.append(conflict)
            if found is None:
                continue
            applied.append(found)
            if found.op == TRUNCATE:
                state.clear()
            if found.before is not None:
                state.pop(table.key_of(found.before), None)
            if found.op != DELETE and found.after is not None:
                state[table.key_of(found.after)] = self._plain(table, found.after)
        return applied, conflicts

    def _decide(
        self, change: Change, table: Table, rule: Rule, state: dict[Row, Row]
    ) -> tuple[Change | None, Conflict | None]:
        if change.op not in (INSERT, UPDATE, DELETE):
            return change, None
        if change.op == UPDATE and (change.before is None or ABSENT in change.before):
            raise SchemaError(
                f"the source does not say what a row of {table.name} was before, by which "
                f"conflicts are found: ALTER TABLE … REPLICA IDENTITY FULL"
            )
        before = None if change.before is None else self._plain(table, change.before)
        after = None if change.after is None else self._plain(table, change.after)
        key = table.key_of(change.before or change.after or ())
        own = state.get(key)
        if own == before:
            return change, None
        if own == after:
            return None, None  # both sides have done the same
        wins = self._wins(rule, table, after, own)
        conflict = Conflict(
            *(table.name, repr(key), rule.kind, wins, repr(before), repr(after), repr(own))
        )
        if not wins:
            return None, conflict
        return change, conflict

    @staticmethod
    def _wins(rule: Rule, table: Table, after: Row | None, own: Row | None) -> bool:
        if rule.kind != "newest":
            return rule.kind == "incoming"
        if after is None or own is None:
            return own is None
        place = table.names.index(rule.column)
        ours, theirs = own[place], after[place]
        if table.columns[place].type == "decimal":
            ours, theirs = _number(ours), _number(theirs)
        if ours == theirs or ours is None or theirs is None:
            # Any order will do that both sides have.
            return (theirs is not None, repr(after)) > (ours is not None, repr(own))
        try:
            return bool(theirs > ours)
        except TypeError:
            return str(theirs) > str(ours)

    def _plain(self, table: Table, row: Row, kept: bool = False) -> Row:
        """A row such that equal ones of the source and, with `kept`, of the destination are
        equal."""
        known = self._fits.get(table.name)
        if known is None or known[0] is not table:
            fits = [self._dialect.comparables(table, is_kept=each) for each in (False, True)]
            known = self._fits[table.name] = (table, fits[0], fits[1])
        return tuple(
            [
                value if value is ABSENT else fit(value)
                for fit, value in zip(known[2] if kept else known[1], row, strict=True)
            ]
        )


def _number(value: Value) -> Value:
    """A decimal, which is compared as text otherwise."""
    try:
        return value if value is None else Decimal(value)
    except (InvalidOperation, TypeError):
        return value


def _apart(changes: Sequence[Change], table: Table) -> Iterator[Change]:
    """The changes, but of a row that gets another key, that it goes and that one comes."""
    for change in changes:
        before, after = change.before, change.after
        is_known = change.op == UPDATE and before is not None and ABSENT not in before
        if not is_known or table.key_of(before or ()) == table.key_of(after or ()):
            yield change
        else:
            assert before is not None
            assert after is not None
            yield msgspec.structs.replace(change, op=DELETE, after=None)
            yield msgspec.structs.replace(
                change, op=INSERT, before=None, after=merged(before, after)
            )
