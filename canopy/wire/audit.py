"""The record of changes to keys and policies at this node: a file in which each line vouches for
all lines before it.

``audit`` in the data folder has one JSON object a line, with its number, the time, the action, and
``hash``: BLAKE2b-256 of the last line's hash and of this line without its own. So a line cannot be
changed, removed or inserted without breaking the chain from there on. A truncated end is detected
if the last hash was noted elsewhere (`canopy audit verify` prints it). The file has no secrets.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

NAME: Final = "audit"
FIRST: Final = "0" * 64
"""The hash that stands for the line before the first."""

LINE_MOST: Final = 16_384
"""The longest line, in bytes."""


class AuditVerdict(NamedTuple):
    """The number of valid lines of an audit file, and the first fault."""

    lines: int
    """The number of valid lines, from the beginning."""
    last: str
    """The hash of the last valid line."""
    damage: str
    """The fault of the next line; "": there is no further line."""


def append(folder: Path, kind: str, **fields: Any) -> None:
    """Add a line to the audit file of a data folder, durably. Commands and the running node may
    call it at the same time. Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(folder / NAME, flags, 0o600)
    with open(file, "r+b", buffering=0) as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        number, before = _last(out.fileno())
        line = {"n": number + 1, "time": round(time.time(), 3), "kind": kind, **fields}
        line["hash"] = _hash(before, line)
        out.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        os.fsync(out.fileno())


def verify(folder: Path) -> AuditVerdict:
    """Read the audit file of a data folder from its beginning. Raises OSError."""
    before, count = FIRST, 0
    with (folder / NAME).open("rb") as lines:
        for raw in lines:
            try:
                line = json.loads(raw)
                claimed = line.pop("hash")
                is_whole = raw.endswith(b"\n") and line["n"] == count + 1
            except (ValueError, KeyError, TypeError, AttributeError):
                return AuditVerdict(count, before, f"line {count + 1} is none")
            if not is_whole or claimed != _hash(before, line):
                return AuditVerdict(
                    count, before, f"line {count + 1} does not follow on line {count}"
                )
            before, count = claimed, count + 1
    return AuditVerdict(count, before, "")


def _hash(before: str, line: dict[str, Any]) -> str:
    content = json.dumps(line, sort_keys=True, separators=(",", ":"))
    return blake2b(before.encode() + content.encode(), digest_size=32).hexdigest()


def _last(file: int) -> tuple[int, str]:
    """Return number and hash of the last line. A torn line counts as (0, FIRST), which leaves a
    break."""
    size = os.fstat(file).st_size
    tail = os.pread(file, LINE_MOST, max(0, size - LINE_MOST)).splitlines()
    if not tail:
        return 0, FIRST
    try:
        line = json.loads(tail[-1])
        return int(line["n"]), str(line["hash"])
    except (ValueError, KeyError, TypeError):
        return 0, FIRST
