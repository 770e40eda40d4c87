"""The absent stretches of a node's records, and the end of each run of its process.

A run whose last record is a `stop` is whole if its numbers are. One without was killed, or its file
was cut off or copied while the node wrote. It was killed if the node started again, or others
reported it as lost: then it ended with the last sign of life. Else nothing is known of what came
after its last record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from canopy.traces.analysis.completeness.facts import (
    DISORDER,
    FOREVER,
    FileFacts,
    PeerFacts,
    RecordStretch,
    Run,
    share_of,
)
from canopy.traces.analysis.constants import FLUSH_SECONDS, NANOSECONDS

EARLIER: Final = "its earlier records were not read"
"""Why a run has a hole where only a stretch of time is read."""


@dataclass(frozen=True)
class RecordHole:
    """Records that a run wrote, or may have written, and that are absent."""

    since: int
    until: int
    records: int | None  # None: not known
    cause: str


@dataclass(frozen=True)
class RunFacts:
    """One run of a node's process, from all its files."""

    node: str
    run: int
    overlay: str
    sample: float | None
    """The share of the events that it keeps; None: not known."""
    records: int
    lost: int
    first: float
    last: float
    first_hlc: int
    last_hlc: int
    offset: float | None
    discarded: int
    acts: int
    stopped: bool
    ended: int | None = None
    """Hybrid logical clock of its end: its last record if it stopped, the last sign of life if it
    was killed. None: it is not known to have ended."""
    holes: tuple[RecordHole, ...] = ()
    explained: bool = True
    """Whether all gaps are of records that the node counted as lost, or of unreadable lines."""
    copied: bool = field(default=False, compare=False)
    """Whether files of it have records with the same numbers."""
    step: float = 0.0
    """Seconds by which its wall clock was set while it ran, at most."""
    published: int | None = None
    subscribed: int | None = None
    """Events and subscriptions that it has numbered, by its last record."""
    shares: tuple[tuple[int, float], ...] = ()
    """The share of its own events that it traces, from the event with this number on, where that is
    not `sample`; by number."""
    doubts: tuple[str, ...] = ()
    """Contradictions between its records' claims about themselves and about others, in
    sentences."""

    @property
    def begins_earlier(self) -> bool:
        """Whether its first records were not read, since only a stretch of time is."""
        return any(hole.cause == EARLIER for hole in self.holes)

    @property
    def is_whole(self) -> bool:
        """Whether every record that it wrote is there."""
        return self.stopped and not self.holes


def runs_of(
    files: Sequence[FileFacts],
    stretches: Mapping[Run, Sequence[RecordStretch]],
    peers: Iterable[PeerFacts],
    corrupt: Mapping[str, int],
    begins_within: bool = False,
) -> list[RunFacts]:
    """All runs with their holes and ends, by node and run. `stretches` are the records that are
    there of each. `corrupt` counts unreadable lines by node. `begins_within`: what was recorded
    earlier was not read."""
    by_run: dict[Run, list[FileFacts]] = {}
    for each in files:
        by_run.setdefault((each.node, each.run), []).append(each)
    lost, heard = _signs(peers)
    starts: dict[str, list[int]] = {}
    adapting = {each.overlay for each in files if each.shares}
    merged = {key: _merged(parts, adapting) for key, parts in by_run.items()}
    for (node, _), one in merged.items():
        starts.setdefault(node, []).append(one.first_hlc)
    found = []
    for key, one in sorted(merged.items()):
        node = one.node
        later = min((at for at in starts[node] if at > one.last_hlc), default=None)
        said = max((at for at in lost.get(node, ()) if at > one.last_hlc), default=None)
        alive = max((at for at in heard.get(node, ()) if later is None or at < later), default=0)
        holes = _holes(by_run[key], stretches.get(key, ()), begins_within)
        absent = sum(hole.records or 0 for hole in holes)
        ended: int | None = one.last_hlc
        if not one.stopped:
            if later is None and said is None:
                ended = None
                holes.append(
                    RecordHole(one.last_hlc, FOREVER, None, "its records end without a stop")
                )
            elif alive > one.last_hlc + int(FLUSH_SECONDS * NANOSECONDS):
                ended = alive
                holes.append(
                    RecordHole(one.last_hlc, alive, None, "it lived on after its last record")
                )
        explained = absent <= one.lost + corrupt.get(node, 0)
        found.append(replace(one, ended=ended, holes=tuple(holes), explained=explained))
    return found


def _signs(peers: Iterable[PeerFacts]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return by node the time at which others lost it, and the time of its last message to them."""
    lost: dict[str, list[int]] = {}
    heard: dict[str, list[int]] = {}
    for each in peers:
        if each.lost is not None:
            lost.setdefault(each.peer, []).append(each.lost)
        if each.heard is not None:
            heard.setdefault(each.peer, []).append(each.heard)
    return lost, heard


def _merged(parts: Sequence[FileFacts], adapting: Collection[str | None]) -> RunFacts:
    """The run of these files. `adapting`: overlays of which some node has traced a smaller share of
    its events than its headers say, so that others have records of fewer, too."""
    numbered = [part for part in parts if part.last_hlc is not None and part.first_hlc is not None]
    said = min((part.sample for part in parts if part.sample is not None), default=None)
    highest = max(part.highest for part in parts)
    overlay = next((part.overlay for part in parts if part.overlay is not None), "")
    events = 0 if overlay in adapting else max(part.events for part in parts)
    sample, doubt = share_of(said, highest, events)
    disorders = sum(part.disorders for part in parts)
    doubts = [doubt, DISORDER if disorders else ""]
    offsets = sorted(part.offset for part in numbered if part.offset is not None)
    return RunFacts(
        node=parts[0].node,
        run=parts[0].run,
        overlay=overlay,
        sample=sample,
        records=sum(part.records for part in parts),
        lost=max(part.lost for part in parts),
        first=min(part.first for part in parts),
        last=max(part.last for part in parts),
        first_hlc=min((part.first_hlc or 0 for part in numbered), default=0),
        last_hlc=max((part.last_hlc or 0 for part in numbered), default=0),
        offset=offsets[len(offsets) // 2] if offsets else None,
        discarded=sum(part.discarded for part in parts),
        acts=sum(part.acts for part in parts),
        stopped=any(part.stopped for part in parts),
        copied=_overlap(numbered),
        step=max(part.step for part in parts),
        published=max(
            (each.published for each in parts if each.published is not None), default=None
        ),
        subscribed=max(
            (each.subscribed for each in parts if each.subscribed is not None), default=None
        ),
        shares=tuple(sorted({share for part in parts for share in part.shares})),
        doubts=tuple(
            text.format(node=parts[0].node, said=said, count=disorders) for text in doubts if text
        ),
    )


def _overlap(parts: Sequence[FileFacts]) -> bool:
    """Whether two files have records with the same numbers, or one has."""
    before = 0
    for part in sorted(parts, key=lambda part: part.first_n or 0):
        first, last = part.first_n or 0, part.last_n or 0
        if first <= before or part.records > last - first + 1:
            return True
        before = max(before, last)
    return False


def _holes(
    parts: Sequence[FileFacts], stretches: Iterable[RecordStretch], begins_within: bool
) -> list[RecordHole]:
    """What is absent before the first record of a run in these files, and between two of the
    `stretches` that are there. Files may have the same records, or some of them."""
    starts, ends = {part.first_hlc for part in parts}, {part.last_hlc for part in parts}
    holes = []
    before, since = 0, 0
    for each in sorted(stretches):
        if each.first > before + 1:
            absent: int | None = each.first - before - 1
            cause = "its first records are absent"
            if before:
                is_between = since in ends and each.since in starts
                cause = "a file of it is absent" if is_between else "records of it are absent"
            elif begins_within:
                absent, cause = None, EARLIER
            holes.append(RecordHole(since, each.since, absent, cause))
        if each.last > before:
            before, since = each.last, each.until
    return holes
