"""What was done with keys and policies at this node: a file in which each line vouches for all
before it.

``audit`` in the data folder has one JSON object a line, with its number, the time, what was done,
and ``hash``: BLAKE2b-256 of the former line's hash and of this line without its own. So a line
cannot be changed, left out or put in between without a break from there on; that the end was cut
off shows when the last hash was noted elsewhere (`canopy audit verify` prints it). No secret is
ever in it.
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
"""In the place of the hash before the first line."""

LINE_MOST: Final = 16_384
"""Bytes of a line at most."""


class AuditVerdict(NamedTuple):
    """How many lines of an audit file are whole, and where it is damaged."""

    lines: int
    """That are whole, from the beginning."""
    last: str
    """The hash of the last of them."""
    damage: str
    """What is wrong with the next one; "": nothing follows."""


def append(folder: Path, kind: str, **fields: Any) -> None:
    """Add a line to the audit file of a data folder, durably. Commands and the running node may do
    so at once. Raises OSError."""
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
    """Number and hash of the last line; of a torn one nothing is believed, and the break stays."""
    size = os.fstat(file).st_size
    tail = os.pread(file, LINE_MOST, max(0, size - LINE_MOST)).splitlines()
    if not tail:
        return 0, FIRST
    try:
        line = json.loads(tail[-1])
        return int(line["n"]), str(line["hash"])
    except (ValueError, KeyError, TypeError):
        return 0, FIRST
