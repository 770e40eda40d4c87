"""CSV (RFC 4180) of events: a column for each attribute."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from typing import IO, TYPE_CHECKING, Any, Final

from overlay.wording import ACTING

if TYPE_CHECKING:
    from overlay.client import StreamEvent

SPOOLED: Final = 1 << 20
"""Bytes of a CSV file in the making that are kept in memory."""

FORMULA: Final = re.compile(r"\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
"""How a text begins that spreadsheets calculate, which may send what is beside it elsewhere (OWASP,
CSV injection)."""

NUMBER: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
CONTROL: Final = re.compile(f"[\0-\x08\x0b\x0c\x0e-\x1f]|{ACTING.pattern}")
"""What a terminal acts on, other than tabs and line ends."""


class CsvFile:
    """Writes a table. The columns are known at the end: until then rows are JSON lines in a file
    without a name. `changed`: how many texts are not as they were."""

    def __init__(self, file: IO[str], exact: bool) -> None:
        self.changed = 0
        self._file = file
        self._exact = exact
        self._rows = tempfile.SpooledTemporaryFile(SPOOLED, "w+", encoding="utf-8")  # noqa: SIM115
        self._columns: dict[str, None] = {}

    def add(self, event: StreamEvent) -> None:
        """Add a row."""
        self._columns.update(dict.fromkeys(event.attributes))
        row = [event.shard, event.offset, event.time, event.attributes]
        self._rows.write(json.dumps(row, ensure_ascii=False) + "\n")

    def end(self) -> None:
        """Write it."""
        table = csv.writer(self._file)
        table.writerow(("shard", "offset", "time", *map(self._cell, self._columns)))
        self._rows.seek(0)
        for line in self._rows:
            *place, attributes = json.loads(line)
            table.writerow((*place, *(self._cell(attributes.get(name)) for name in self._columns)))
        self._rows.close()
        self._file.flush()

    def _cell(self, value: Any) -> Any:
        """As a feed in CSV has it: nothing where the attribute is absent or NULL."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        if self._exact or not isinstance(value, str):
            return value
        text = harmless(value)
        self.changed += text != value
        return text


def harmless(text: str) -> str:
    """A text that no spreadsheet calculates and no terminal acts on."""
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        text = f"'{text}"
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
