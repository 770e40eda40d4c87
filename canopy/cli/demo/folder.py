"""The output folder of a demo: never over anything that is not a former demo's.

``demo.json``       the mark by which a former demo is known
``nodes/NN/``       the data folder of each node process · ``logs/NN.log`` what it said
``canopy/traces/``         the trace records of all nodes
``deliveries.jsonl`` one object per delivery · ``summary.json`` the verdict · ``report/`` Spark's
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

from canopy.cli.demo.errors import DemoError

MARK: Final = "demo.json"
FORMAT: Final = "canopy-demo"


def prepare(out: Path, mark: str) -> None:
    """Make `out` an empty folder with our mark. Raises DemoError if it holds anything else."""
    try:
        if out.exists() and not out.is_dir():
            raise DemoError(f"the output {out} is a file; name a folder with --out")
        if out.is_dir() and any(out.iterdir()) and not is_former(out):
            raise DemoError(
                f"the output folder {out} exists and is no former demo's: nothing was touched; "
                f"name another folder with --out, or move it away"
            )
        if out.is_dir():
            shutil.rmtree(out)
        for folder in (out, out / "nodes", out / "logs", out / "traces"):
            folder.mkdir(parents=True)
        (out / MARK).write_text(mark + "\n", encoding="utf-8")
    except OSError as error:
        raise DemoError(f"cannot use the output folder {out}: {error.strerror}") from None


def is_former(out: Path) -> bool:
    """Whether a former demo made this folder."""
    try:
        mark = json.loads((out / MARK).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(mark, dict) and mark.get("format") == FORMAT
