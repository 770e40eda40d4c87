"""MariaDB's values as text, which is how they are read from tables (no IO)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC
from decimal import Decimal
from typing import Any, Final

from canopy.sync.conversions import kept
from canopy.sync.errors import SchemaError
from canopy.sync.values import NativeText, Value, date_of, moment_of

SESSION: Final = (
    "SET SESSION sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,"
    "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', time_zone = '+00:00'"
)
"""Settings of every session: names in double quotes, no value is bent to fit, days 0 are values."""
CHARSETS: Final = {
    **dict.fromkeys(("utf8", "utf8mb3", "utf8mb4"), "utf-8"),
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "ascii": "ascii",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "koi8r": "koi8-r",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "koi8u": "koi8-u",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "big5": "big5",
    "sjis": "shift-jis",
    "cp932": "cp932",
    "ujis": "euc-jp",
    "euckr": "euc-kr",
    "tis620": "tis-620",
}
"""Python's codec for a character set. Of `latin1`, see `decoded`."""


def decoded(data: bytes, charset: str) -> str:
    """The text of bytes in one of MariaDB's character sets. Raises SchemaError."""
    codec = CHARSETS.get(charset)
    if codec is None:
        raise SchemaError(f"the character set {charset} cannot be captured: use utf8mb4")
    try:
        return data.decode(codec)
    except UnicodeDecodeError:
        if charset != "latin1":
            raise
        # Bytes that cp1252 leaves open are control characters for MariaDB.
        return "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in data)


def instant_of(text: str) -> Value:
    """Return a date and time that was requested in UTC."""
    found = moment_of(text)
    return found if isinstance(found, NativeText) else found.replace(tzinfo=UTC)


Decoder = Callable[[Any], Value]
DECODERS: Final[dict[str, Decoder]] = {
    "int": int,
    "bool": int,
    "float": float,
    "decimal": Decimal,
    "date": date_of,
    "timestamp": moment_of,
    "instant": instant_of,
}
"""By a column's meaning; any other is text or bytes as it stands."""


def decoder(means: str) -> Decoder:
    """Return the function that makes a value from the driver's text."""
    return DECODERS.get(means, kept)


def meaning(declared: str) -> str:
    """Return the meaning of a column's values, by its type as `information_schema` writes it."""
    kind = re.split(r"[( ]", declared, maxsplit=1)[0]
    if kind == "bigint" and "unsigned" in declared:
        return "decimal"  # no other database has an integer of that size
    if kind == "bit":
        return "decimal" if declared == "bit(64)" else "int"
    return _MEANINGS.get(kind, "other")


_MEANINGS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), "int"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("enum", "set"), "text"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "bytes"),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon", "multipoint"), "bytes"),
    **dict.fromkeys(("multilinestring", "multipolygon", "geometrycollection"), "bytes"),
    "decimal": "decimal",
    "date": "date",
    "datetime": "timestamp",
    "timestamp": "instant",
    "uuid": "uuid",
}
"""A time is `other`: it may be negative, or of 838 hours."""


def selected(name: str, declared: str) -> str:
    """Return how to select a column so that its text has the whole value."""
    if declared.startswith("float"):
        return f"CAST({name} AS DOUBLE)"  # as a float it would have six digits
    if declared.startswith("bit"):
        return f"{name} + 0"
    return name
