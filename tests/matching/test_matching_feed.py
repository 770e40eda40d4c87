"""A real week of earthquakes: selectors that people would want, against SQLite, row by row."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from matching import Index, compile_selector
from matching.values import check_value

FEED = Path(__file__).resolve().parents[3] / "shared" / "feeds" / "earthquakes.json"

SELECTORS = [
    "mag >= 4.5",
    "mag BETWEEN 2 AND 3 AND type = 'earthquake'",
    "place LIKE '%Alaska' OR place LIKE '%, CA'",
    "place LIKE '__km %' AND NOT (mag < 2)",
    "NOT (place LIKE '%Alaska' OR mag < 3)",
    "net IN ('us', 'ak', 'ci') AND status <> 'reviewed'",
    "net NOT IN ('nc', 'ci') AND felt IS NOT NULL",
    "felt IS NULL AND mag > 4",
    "felt > 10 OR cdi >= 4 OR mmi >= 4 OR alert IS NOT NULL",
    "tsunami = 1",
    "magType LIKE 'mb%' AND rms * 10 > mag + 3",
    "gap / 2 > nst",
    "nst - -gap > 100 AND dmin < 0.1",
    "updated - time > 86400000 AND sig >= 100",
    "depth > 100 AND latitude < 0 AND (longitude > 150 OR longitude < -150)",
    "mag > 9.9",
]


def rows() -> list[dict[str, Any]]:
    if not FEED.exists():
        pytest.skip("the week of earthquakes is not here: it is data of others, never committed")
    out = []
    for feature in json.loads(FEED.read_text())["features"]:
        longitude, latitude, depth = feature["geometry"]["coordinates"]
        own = {"longitude": longitude, "latitude": latitude, "depth": depth}
        scalars = {k: v for k, v in feature["properties"].items() if not isinstance(v, list | dict)}
        out.append({**scalars, **own})
    return out


def test_a_real_feed_agrees_with_sqlite() -> None:
    events = rows()
    assert all(check_value(v) is None for e in events for v in e.values() if v is not None)
    names = sorted({name for event in events for name in event})
    db = sqlite3.connect(":memory:")
    db.execute("PRAGMA case_sensitive_like = ON")
    db.execute(f"CREATE TABLE event ({', '.join(f'{chr(34)}{n}{chr(34)}' for n in names)})")
    marks = ", ".join("?" for _ in names)
    values = [[event.get(name) for name in names] for event in events]
    db.executemany(f"INSERT INTO event VALUES ({marks})", values)
    index: Index[str] = Index()
    for text in SELECTORS:
        index.add(text, compile_selector(text))
    found = [index.match(event) for event in events]
    for text in SELECTORS:
        query = f"SELECT rowid - 1 FROM event WHERE {text} ORDER BY rowid"
        expected = [row for (row,) in db.execute(query)]
        assert [n for n, keys in enumerate(found) if text in keys] == expected, text
        assert expected or text == "mag > 9.9", f"{text} proves nothing here"
    db.close()
