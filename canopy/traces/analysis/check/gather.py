"""The facts of one trace file, on which ``completeness/`` draws its conclusions, and the file's
damage.

The same facts as `completeness.collect` has Spark gather, in one pass over the lines and in little
memory: stretches of numbers instead of the numbers, and a sample of the clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from canopy.traces.analysis.completeness.collect import PASSING, node_of, peer_facts
from canopy.traces.analysis.completeness.facts import (
    EVENTS_COUNTED,
    FileFacts,
    PeerFacts,
    RecordStretch,
    joined_peers,
)
from canopy.traces.analysis.constants import CLOCK_STEP, NANOSECONDS
from canopy.traces.analysis.parsing.lines import DAMAGED, LineParser, lines_of, pieces
from canopy.traces.schema import ROW_KINDS

CLOCK_SAMPLES: Final = 1024
"""Differences of the two clocks that are kept of a file, from which the median is taken. Guess: a
median of as many is within some percent of the ranks."""

LINES: Final = LineParser()

OF_PEERS: Final = frozenset((*PASSING, "link", "incident"))
"""The kinds of records from which facts on two nodes are derived."""


@dataclass(frozen=True)
class RunPart:
    """The records of one run of a node in one file."""

    facts: FileFacts
    stretches: tuple[RecordStretch, ...]
    name: str | None  # the node's
    kinds: dict[str, int]
    """Number of records of each kind."""
    steps: tuple[float, ...]
    """Seconds by which its wall clock was set while it ran, each time."""
    illegible: int
    """Its publish records whose attributes are not a JSON object."""


@dataclass(frozen=True)
class GatheredFile:
    """A trace file, as far as it could be read."""

    path: Path
    size: int  # bytes on disk
    changed: float  # seconds since 1970
    parts: tuple[RunPart, ...] = ()
    peers: Sequence[PeerFacts] = ()
    problems: dict[str, int] = field(default_factory=dict)
    """Unreadable lines by what is wrong with them."""
    torn: bool = False  # it ends within a line
    error: str = ""  # why it could not be read (to its end)
    digest: bytes = b""
    """The digest of its text; that of a compressed file is the text's, too."""

    @property
    def unreadable(self) -> int:
        """The number of lines that are not records."""
        return sum(self.problems.values())

    @property
    def home(self) -> str:
        """The id of the node in whose folder it lies, or ""."""
        return node_of(str(self.path))


class _Part:
    """Gathers a `RunPart`, record by record."""

    def __init__(self, record: Any) -> None:
        self.node: str = record.node
        self.run: int = record.run
        self.first = self.last = record.time
        self.overlay: str | None = None
        self.sample: float | None = None
        self.name: str | None = None
        self.lost = self.records = self.discarded = self.illegible = 0
        self.low = self.high = 0  # hybrid logical clock
        self.disorders = 0
        self.published: int | None = None
        self.subscribed: int | None = None
        self.highest = -1  # CRC-32 of an event that it names
        self.hashes: set[int] = set()  # of the first of them
        self.shares: list[tuple[int, float]] = []
        self.kinds: dict[str, int] = {}
        self.stretches: list[RecordStretch] = []
        self.steps: list[float] = []
        self._begin = self._since = self._number = self._at = 0
        self._time = 0.0
        self._clocks: list[float] = []
        self._stride = 1

    def take(self, record: Any) -> None:
        kind, at = record.kind, record.time
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if at < self.first:
            self.first = at
        if at > self.last:
            self.last = at
        if kind == "file" or kind == "stop" or kind == "start":
            self._describe(record)
        elif kind == "sampling":
            self.shares.append((record.first, record.share))
        elif kind == "drop" and record.client is not None:
            self.discarded += 1
        elif kind == "publish" and not LINES.are_attributes(record.attributes):
            self.illegible += 1
        number = record.n
        if number is None:
            return
        hlc = record.hlc
        if record.event is not None and kind not in ROW_KINDS:  # these have a share of their own
            found = crc32(record.event.encode())
            if found > self.highest:
                self.highest = found
            if len(self.hashes) < EVENTS_COUNTED:
                self.hashes.add(found)
        if self.records and number > self._number and hlc < self._at:
            self.disorders += 1
        if not self.records:
            self.low = self.high = self._since = hlc
            self._begin = number
        elif number == self._number + 1:
            passed = at - self._time
            if passed < -CLOCK_STEP or passed - (hlc - self._at) / NANOSECONDS > CLOCK_STEP:
                self.steps.append(passed - (hlc - self._at) / NANOSECONDS)
        else:
            self._end_stretch()
            self._begin, self._since = number, hlc
        if hlc < self.low:
            self.low = hlc
        if hlc > self.high:
            self.high = hlc
        self._number, self._at, self._time = number, hlc, at
        if self.records % self._stride == 0:
            self._clocks.append(at - hlc / NANOSECONDS)
            if len(self._clocks) >= 2 * CLOCK_SAMPLES:
                del self._clocks[1::2]
                self._stride *= 2
        self.records += 1

    def _describe(self, record: Any) -> None:
        """Fields of the kinds file, start and stop."""
        if record.overlay is not None:
            self.overlay = max(self.overlay or "", record.overlay)
        if record.sample is not None:
            self.sample = min(1.0 if self.sample is None else self.sample, record.sample)
        if record.lost is not None:
            self.lost = max(self.lost, record.lost)
        if record.kind == "stop":
            self.published, self.subscribed = record.published, record.subscribed
        if record.kind == "start":
            self.name = record.name or self.name

    def _end_stretch(self) -> None:
        self.stretches.append(RecordStretch(self._begin, self._number, self._since, self._at))

    def result(self, file: str) -> RunPart:
        if self.records:
            self._end_stretch()
        numbered = bool(self.records)
        clocks = sorted(self._clocks)
        facts = FileFacts(
            file=file,
            node=self.node,
            run=self.run,
            overlay=self.overlay,
            sample=self.sample,
            lost=self.lost,
            records=self.records,
            first_n=min((each.first for each in self.stretches), default=None),
            last_n=max((each.last for each in self.stretches), default=None),
            first_hlc=self.low if numbered else None,
            last_hlc=self.high if numbered else None,
            first=self.first,
            last=self.last,
            offset=clocks[(len(clocks) - 1) // 2] if clocks else None,
            stopped="stop" in self.kinds,
            discarded=self.discarded,
            acts=self.kinds.get("publish", 0) + self.kinds.get("subscribe", 0),
            published=self.published,
            subscribed=self.subscribed,
            shares=tuple(sorted(self.shares)),
            highest=self.highest,
            events=len(self.hashes),
            disorders=self.disorders,
            step=max(map(abs, self.steps), default=0.0),
        )
        return RunPart(
            facts=facts,
            stretches=tuple(self.stretches),
            name=self.name,
            kinds=self.kinds,
            steps=tuple(self.steps),
            illegible=self.illegible,
        )


class _Reading:
    """The reading of one file."""

    def __init__(self) -> None:
        self.parts: dict[tuple[str, int], _Part] = {}
        self._peers: dict[tuple[str, str, str, str | None], tuple[int, int]] = {}
        self.problems: dict[str, int] = {}
        self.digest = blake2b(digest_size=16)
        self.end = b""  # what follows the last line feed
        self._part: _Part | None = None

    def read(self, path: Path) -> None:
        """Take all lines of `path`. Raises one of `DAMAGED`."""
        for lines in lines_of(self._digested(pieces(path))):
            self.end = lines[-1]
            for line in lines:
                if line:
                    self.take(line)

    def _digested(self, texts: Iterator[bytes]) -> Iterator[bytes]:
        for text in texts:
            self.digest.update(text)
            yield text

    def take(self, line: bytes) -> None:
        record, problem = LINES.parse(line)
        if record is None:
            if not line.isspace():
                self.problems[problem] = self.problems.get(problem, 0) + 1
            return
        part = self._part
        if part is None or part.run != record.run or part.node != record.node:
            key = (record.node, record.run)
            part = self.parts.get(key)
            if part is None:
                part = self.parts[key] = _Part(record)
            self._part = part
        part.take(record)
        kind = record.kind
        if record.peer and kind in OF_PEERS:
            said = record.reason if kind == "link" else record.what
            met = (record.node, record.peer, kind, said)
            count, last = self._peers.get(met, (0, record.hlc))
            self._peers[met] = (count + 1, max(last, record.hlc))

    def peers(self) -> list[PeerFacts]:
        """The facts on each two nodes."""
        rows = (
            {"node": node, "peer": peer, "kind": kind, "reason": said, "what": said}
            | {"count": count, "max_hlc": last}
            for (node, peer, kind, said), (count, last) in self._peers.items()
        )
        return joined_peers(found for row in rows if (found := peer_facts(row)) is not None)


def read_file(path: Path) -> GatheredFile:
    """Read a trace file to its end, or as far as it can be read."""
    reading = _Reading()
    size, changed, error = 0, 0.0, ""
    try:
        found = path.stat()
        size, changed = found.st_size, found.st_mtime
        reading.read(path)
    except DAMAGED as problem:
        error = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
    return GatheredFile(
        path=path,
        size=size,
        changed=changed,
        parts=tuple(part.result(str(path)) for part in reading.parts.values()),
        peers=reading.peers(),
        problems=reading.problems,
        torn=bool(reading.end) and not error,
        error=error,
        digest=reading.digest.digest(),
    )
