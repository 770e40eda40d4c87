"""What a file looks like that is in none of the formats, by how it begins."""

from __future__ import annotations

from typing import Final

UTF16: Final = "text in UTF-16 (iconv -f utf-16 -t utf-8 makes it readable)"

SIGNATURES: Final = (
    (b"PK\x03\x04", "a zip archive, or a spreadsheet (.xlsx)"),
    (b"PAR1", "Parquet"),
    (b"ARROW1", "Arrow"),
    (b"Obj\x01", "Avro"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"%PDF", "PDF"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"BZh", "a file packed by bzip2"),
    (b"\xfd7zXZ\x00", "a file packed by xz"),
    (b"\x28\xb5\x2f\xfd", "a file packed by zstd"),
    (b"<", "XML or HTML"),
    (b"\xff\xfe", UTF16),
    (b"\xfe\xff", UTF16),
    (b"{\x00", UTF16),
    (b"[\x00", UTF16),
)
"""How files of other formats begin (the formats' own specifications)."""


def looks_like(head: bytes) -> str:
    """What begins with `head`, if that is known to be none of a feed's formats; else ""."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return next((name for begin, name in SIGNATURES if text.startswith(begin)), "")
