"""The audit of examples/ keeps the changes that match its rules, each once and whole."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from canopy.sync.capture import Capture
from canopy.sync.databases import open_source
from canopy.sync.row_filter import RowFilter
from examples.audit.audit import Trail
from tests.support.databases.memory import MemoryStream


def entries(trail: sqlite3.Connection) -> list[tuple[Any, ...]]:
    found = trail.execute("SELECT op, before, after, committed FROM trail ORDER BY place")
    return [
        (op, before and json.loads(before), after and json.loads(after), committed is not None)
        for op, before, after, committed in found
    ]


def test_changes_of_rows_that_match_are_kept_with_both_images(tmp_path: Path) -> None:
    shop = sqlite3.connect(tmp_path / "shop.db")
    shop.executescript(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, total NUMERIC, note BLOB);"
        "INSERT INTO orders VALUES (1, 80, NULL), (2, 2500, NULL);"
    )
    stream = MemoryStream()
    source = open_source("audit", f"sqlite:{tmp_path}/shop.db", ())
    capture = Capture(source, stream, RowFilter({"orders": "total > 1000"}))
    trail = sqlite3.connect(tmp_path / "trail.db")
    taken = 0

    def go_on(most: int = 1_000) -> None:
        """Capture all; have a program that begins again take at most so many of the events."""
        nonlocal taken
        while capture.run_once(0):
            pass
        with trail:
            list(Trail(trail).take(trail.cursor(), stream.events[taken : taken + most]))
        taken += min(most, len(stream.events) - taken)

    try:
        capture.begin(from_now=True)
        go_on()
        with shop:
            shop.execute("UPDATE orders SET total = 3000, note = x'ff' WHERE id = 2")
            shop.execute("UPDATE orders SET total = 90 WHERE id = 1")
            shop.execute("UPDATE orders SET total = 1200 WHERE id = 1")
        go_on(most=1)
        assert [row[-1] for row in entries(trail)] == [False], "its transaction's end has not come"
        go_on()
        with shop:
            shop.execute("DELETE FROM orders WHERE id = 2")
            shop.execute("INSERT INTO orders VALUES (3, 10, NULL)")
        go_on()
    finally:
        source.close()
    second = {"id": 2, "total": 3000, "note": "ff"}
    assert entries(trail) == [
        ("update", {"id": 2, "total": 2500, "note": None}, second, True),
        ("insert", None, {"id": 1, "total": 1200, "note": None}, True),
        ("delete", second, None, True),
    ]
