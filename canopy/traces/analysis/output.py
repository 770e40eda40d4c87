"""The output folder of an analysis, which replaces nothing but an earlier report.

- ``summary.json`` the numbers, and the mark of a report's folder;
- ``report.html`` the report;
- ``tables/`` Parquet: records (by kind), publications, subscriptions, deliveries, walks, trees,
  attributes, hosts, links, load, corrupt; those that are not large as CSV, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from canopy.traces.analysis.constants import AnalysisError

FORMAT: Final = "canopy-report"  # `format` in summary.json

OURS: Final = ("summary.json", "canopy-probe", ".summary.json.new", "report.html", "tables")
"""Everything that an analysis writes into its folder."""


def prepare(out: Path, overwrite: bool = False) -> None:
    """Make `out` an empty folder; an earlier report in it is removed.

    Raises AnalysisError if it has other content; with `overwrite` only the files of a report
    (`OURS`) are replaced in it, and everything else stays.
    """
    if out.exists() and not out.is_dir():
        raise AnalysisError(f"the output {out} is a file; name a folder for the report")
    try:
        present = sorted(path.name for path in out.iterdir()) if out.exists() else []
        strange = [name for name in present if name not in OURS]
        if present and not overwrite and (strange or not _is_report(out)):
            named = ", ".join(strange[:3] or present[:3])
            raise AnalysisError(
                f"the output folder {out} exists and has other content than an earlier "
                f"report ({named}): nothing was changed; name a new folder, or allow overwriting"
            )
        for name in OURS:
            path = out / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        out.mkdir(parents=True, exist_ok=True)
        # The mark is written first, so that an interrupted analysis can be repeated.
        write_summary(out, {"format": FORMAT, "complete": False})
    except OSError as error:
        raise AnalysisError(f"the output folder {out} cannot be written: {error}") from error


def _is_report(out: Path) -> bool:
    try:
        summary = json.loads((out / "summary.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(summary, dict) and summary.get("format") == FORMAT


def write_summary(out: Path, summary: dict[str, object]) -> None:
    """Replace `summary.json` atomically by `summary` as JSON."""
    draft = out / ".summary.json.new"
    draft.write_text(json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    draft.replace(out / "summary.json")


TEXTS: Final = ("node", "name", "address", "routing", "attribute", "sender")
NUMBERS: Final = ("first", "last", "sample", "tree_hops")


def table_of(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> Any:
    """These `columns` of some rows as an Arrow table: whole numbers, but for `TEXTS`, `NUMBERS`,
    milliseconds and what was `counted`."""
    import pyarrow as pa

    def kind(name: str) -> Any:
        if name in TEXTS:
            return pa.string()
        if name in NUMBERS or name.endswith("_ms"):
            return pa.float64()
        return pa.bool_() if name == "counted" else pa.int64()

    return pa.Table.from_pylist(list(rows), pa.schema([(name, kind(name)) for name in columns]))


def write_table(folder: Path, rows: Any) -> None:
    """Write an Arrow table as the Parquet files of the new `folder`."""
    from pyarrow import parquet

    folder.mkdir(parents=True)
    parquet.write_table(rows, folder / "part-00000.parquet", compression="zstd")


class Download(NamedTuple):
    """A table of the report: its rows, and its files as paths from the report's folder."""

    table: str
    rows: int
    parquet: str  # the file, or the folder of several
    csv: str  # "": it is too large
