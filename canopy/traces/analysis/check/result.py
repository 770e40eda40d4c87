"""The result of a check of traces."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

FORMAT: Final = "canopy-trace-check"  # `format` of the JSON form

COMPLETE: Final = "complete"
FINDINGS: Final = "findings"
NOTHING: Final = "nothing to judge"

STOPPED: Final = "stopped"
KILLED: Final = "killed"
WRITING: Final = "still writing"
OPEN: Final = "no end"
LATER: Final = "not read on"  # its node has files of later days, which were not read
"""The end of a run of a node's process, as far as the records know it."""


@dataclass(frozen=True)
class TraceFinding:
    """A fault of the traces, or a note on them. Times are seconds since 1970; a field that does not
    apply is None."""

    kind: str
    text: str
    node: str | None = None
    run: int | None = None
    file: str | None = None
    records: int | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True)
class RunCheck:
    """The records of one run of a node's process."""

    run: int
    files: int
    records: int
    absent: int  # numbers between the first and the last that no record has
    lost: int  # as the node counted them
    sample: float | None  # None: no header says it
    first: float
    last: float
    end: str  # STOPPED, KILLED, WRITING, OPEN or LATER
    kinds: dict[str, int]
    """Number of records of each kind, copies counted again."""


@dataclass(frozen=True)
class NodeCheck:
    """A node that has records."""

    node: str
    name: str | None
    overlay: str
    ahead: float | None
    """Seconds by which its wall clock was ahead of the median node's."""
    runs: tuple[RunCheck, ...]
    findings: int  # how many are about it


@dataclass(frozen=True)
class OverlayCheck:
    """Nodes that are judged together."""

    name: str
    nodes: int
    absent: tuple[str, ...]  # ids of nodes that others name and that have no record
    published: int
    subscriptions: int  # with a SUBACK
    samples: dict[str, int]
    """The shares of the events that nodes keep, as text, and how many nodes keep each."""
    reasons: tuple[str, ...]
    """Why an analysis cannot prove it exact."""


@dataclass(frozen=True)
class TraceCheck:
    """The result for a folder."""

    result: str  # COMPLETE, FINDINGS or NOTHING
    folder: str
    files: int
    size: int  # bytes on disk
    records: int
    unreadable: int  # lines that are not records
    copies: int
    first: float | None
    last: float | None
    findings: tuple[TraceFinding, ...]
    notes: tuple[TraceFinding, ...]
    """Facts that an analysis takes into account without losing anything."""
    overlays: tuple[OverlayCheck, ...]
    nodes: tuple[NodeCheck, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form (docs/reference/formats.md)."""
        return {"format": FORMAT, **asdict(self)}
