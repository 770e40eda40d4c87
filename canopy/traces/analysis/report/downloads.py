"""The tables beside the report: links to their files, and those that are not large as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from canopy.traces.analysis.constants import CSV_ROWS
from canopy.traces.analysis.output import Download
from canopy.traces.analysis.report.sections import row, table, wide_section
from overlay.phrases import harmless

if TYPE_CHECKING:
    from canopy.traces.analysis.summary import Findings


def leave_downloads(out: Path, tables: Sequence[str]) -> list[Download]:
    """Write those of the tables that are not large as CSV, and return all that are there."""
    from pyarrow import csv, parquet

    found = []
    for name in tables:
        folder = out / "tables" / name
        files = sorted(folder.rglob("[!._]*.parquet"))
        if not files:
            continue
        rows = sum(parquet.read_metadata(path).num_rows for path in files)
        as_csv = ""
        if rows <= CSV_ROWS:
            as_csv = f"tables/{name}.csv"
            csv.write_csv(plain(parquet.read_table(files, partitioning=None)), out / as_csv)
        place = files[0] if len(files) == 1 else folder
        found.append(Download(name, rows, place.relative_to(out).as_posix(), as_csv))
    return found


def plain(table: Any) -> Any:
    """The table with texts that no spreadsheet calculates and no terminal acts on."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            coded = table[field.name].combine_chunks().dictionary_encode()
            texts = [
                None if text is None else harmless(text) for text in coded.dictionary.to_pylist()
            ]
            column = pa.array(texts, pa.string()).take(coded.indices)
            table = table.set_column(place, field.name, column)
    return table


def downloads(findings: Findings) -> str:
    """Links to the tables beside the page."""
    rows = findings.downloads
    if not rows:
        return ""
    lines = []
    for each in rows:
        one = f' download="{each.table}.parquet"' if each.parquet.endswith(".parquet") else ""
        as_csv = f'<a href="{each.csv}" download>CSV</a>' if each.csv else "too large"
        links = f'<td><a href="{escape(each.parquet)}"{one}>Parquet</a></td><td>{as_csv}</td>'
        lines.append(row(escape(each.table), f"{each.rows:,}", more=links))
    text = (
        "<p>The tables are in the folder <code>tables/</code> beside this page, with all rows, "
        "also those that are not shown here; so are the <code>records</code> by kind. Take the "
        "folder along with the page.</p>"
    )
    head = "table | rows | for programs | for spreadsheets"
    return wide_section("downloads", "Downloads", text, table(head, lines))
