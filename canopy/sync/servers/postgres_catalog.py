"""PostgreSQL's catalogue of a table's columns, as sources and destinations read it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psycopg

KEY: Final = "(p.indkey::int2[])[0:p.indnkeyatts - 1]"
"""The columns of the index `p` that are its key: others are only INCLUDEd."""


class CatalogColumn(NamedTuple):
    """One row of pg_attribute, with facts about the column from other catalogues."""

    name: str
    type: int
    """The id of its type in pg_type, of which `modifier` has the length, or digits."""
    modifier: int
    words: str
    """The type as the server writes it."""
    is_required: bool
    place_in_key: int | None
    """The column's position in the primary key; None: it is not in it."""
    is_key_immediate: bool
    """Whether the primary key is checked at once, and not DEFERRABLE."""
    is_generated: bool
    is_identity: bool
    """GENERATED ALWAYS AS IDENTITY."""
    is_deterministic: bool
    """Whether its collation takes only texts of the same bytes for one."""


def columns_of(link: psycopg.Connection[Any], table: str) -> list[CatalogColumn]:
    """The columns of a table in their order, `table` being its name for SQL; none, if there is no
    such table."""
    found = link.execute(
        "SELECT attname, atttypid::bigint, atttypmod, format_type(atttypid, atttypmod), "
        f"attnotnull, array_position({KEY}, attnum), coalesce(p.indimmediate, true), "
        "attgenerated <> '', attidentity = 'a', coalesce(collisdeterministic, true) "
        "FROM pg_attribute LEFT JOIN pg_index p ON p.indrelid = attrelid AND p.indisprimary "
        "LEFT JOIN pg_collation c ON c.oid = attcollation "
        "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    )
    return [CatalogColumn(*row) for row in found.fetchall()]
