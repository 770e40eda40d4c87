"""The output folder of a demo, which replaces nothing but the output of an earlier demo.

- ``demo.json`` marks the folder as a demo's;
- ``nodes/NN/`` the data folder of each node process, ``logs/NN.log`` its log;
- ``traces/`` the trace records of all nodes;
- ``deliveries.jsonl`` one object per delivery, ``summary.json`` the verdict, ``report/`` the
  analysis.
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
    """Make `out` an empty folder with the marker `mark`. DemoError if it has other content."""
    try:
        if out.exists() and not out.is_dir():
            raise DemoError(f"the output {out} is a file; name a folder with --out")
        if out.is_dir() and any(out.iterdir()) and not is_demo_folder(out):
            raise DemoError(
                f"the output folder {out} exists and is not an earlier demo's: nothing was "
                f"changed; name another folder with --out, or move it away"
            )
        if out.is_dir():
            shutil.rmtree(out)
        for folder in (out, out / "nodes", out / "logs", out / "traces"):
            folder.mkdir(parents=True)
        (out / MARK).write_text(mark + "\n", encoding="utf-8")
    except OSError as error:
        raise DemoError(f"cannot use the output folder {out}: {error.strerror}") from None


def is_demo_folder(out: Path) -> bool:
    """Whether an earlier demo made this folder."""
    try:
        mark = json.loads((out / MARK).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(mark, dict) and mark.get("format") == FORMAT
