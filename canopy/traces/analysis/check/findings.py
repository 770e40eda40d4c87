"""The faults and the notes of a check of a trace folder, in sentences."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from canopy.traces.analysis.check.gather import LINES, GatheredFile, RunPart
from canopy.traces.analysis.check.result import (
    COMPLETE,
    FINDINGS,
    KILLED,
    LATER,
    NOTHING,
    OPEN,
    STOPPED,
    WRITING,
    NodeCheck,
    OverlayCheck,
    RunCheck,
    TraceCheck,
    TraceFinding,
)
from canopy.traces.analysis.completeness.collect import Completeness, node_of
from canopy.traces.analysis.completeness.facts import FOREVER, RecordStretch, Run
from canopy.traces.analysis.completeness.holes import EARLIER, RecordHole, RunFacts
from canopy.traces.analysis.completeness.overlays import OverlayFacts
from canopy.traces.analysis.constants import CLOCKS_AGREE, NANOSECONDS
from canopy.traces.analysis.parsing.lines import CUT_OFF, DAMAGED, lines_of, pieces
from canopy.traces.analysis.read import SUFFIXES
from canopy.traces.analysis.verdict.outcome import absences, some_of
from overlay.phrases import counted

Held = Mapping[Run, Sequence[tuple[GatheredFile, RunPart]]]
"""The files of each run, with what they have of it."""


@dataclass(frozen=True)
class RepeatedRecords:
    """Records that are there again."""

    records: int
    contradictions: dict[str, int]
    """By node id, the numbers of its records under which there are different ones."""
    files: tuple[tuple[Path, Path], ...]
    """Files with the same text as another, and that one."""


def copies_of(held: Held) -> RepeatedRecords:
    """Find the records that the files of these runs have twice. Files with the same text are not
    read again; others are read where their numbers overlap, one run after another."""
    records = 0
    different: dict[str, int] = {}
    same: dict[Path, Path] = {}
    for (node, run), parts in sorted(held.items(), key=lambda item: item[0]):
        originals: dict[bytes, tuple[GatheredFile, RunPart]] = {}
        for file, part in parts:
            original = originals.setdefault(file.digest, (file, part))[0]
            if original is not file:
                same[file.path] = original.path
                records += part.facts.records
        again, contradictions = _compared(node, run, list(originals.values()))
        records += again
        if contradictions:
            different[node] = different.get(node, 0) + contradictions
    return RepeatedRecords(records, different, tuple(sorted(same.items())))


def _compared(
    node: str, run: int, parts: Sequence[tuple[GatheredFile, RunPart]]
) -> tuple[int, int]:
    """Count the copies among the records of a run, and the numbers under which there are different
    records."""
    ranges = _overlaps(sorted(each for _, part in parts for each in part.stretches))
    if not ranges:
        return 0, 0
    found: dict[int, list[int]] = {}
    for file, _ in parts:
        for number, content in _contents(file.path, node, run):
            place = bisect_right(ranges, number, key=lambda each: each[0]) - 1
            if place >= 0 and number <= ranges[place][1]:
                found.setdefault(number, []).append(content)
    different = sum(len(set(contents)) > 1 for contents in found.values())
    return sum(len(contents) - 1 for contents in found.values()) - different, different


def _overlaps(stretches: Sequence[RecordStretch]) -> list[tuple[int, int]]:
    """The ranges of numbers that are in two of the `stretches`, which are in order."""
    ranges: list[tuple[int, int]] = []
    reached = 0
    for each in stretches:
        if each.first <= reached:
            first, last = each.first, min(each.last, reached)
            if ranges and first <= ranges[-1][1] + 1:
                ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
            else:
                ranges.append((first, last))
        reached = max(reached, each.last)
    return ranges


def _contents(path: Path, node: str, run: int) -> Iterable[tuple[int, int]]:
    """Number and hash of each record of a run in a file, as far as it can be read."""
    try:
        for lines in lines_of(pieces(path)):
            for line in lines:
                record = LINES.parse(line)[0] if line else None
                if record is None or record.n is None:
                    continue
                if record.run == run and record.node == node:
                    yield record.n, hash(msgspec.json.encode(record))
    except DAMAGED:
        return


WRITING_SECONDS: Final = 30.0
"""A file that was written to so recently is still being written: a node writes every ten seconds
(`health.period`), if it has nothing else to write."""


class Seen:
    """Gathers the findings and notes of one folder."""

    def __init__(
        self,
        traces: Path,
        held: Held,
        complete: Completeness,
        copies: RepeatedRecords,
        now: float,
        read_on: Collection[str] = (),
    ) -> None:
        """`read_on` are nodes with later files, which were not read."""
        self._traces = traces
        self._held = held
        self._complete = complete
        self._copies = copies
        self._now = now
        self._read_on = read_on
        self.findings: list[TraceFinding] = []
        self.notes: list[TraceFinding] = []
        self._ends = {(run.node, run.run): self._end(run) for run in complete.runs}

    def _end(self, run: RunFacts) -> str:
        if run.stopped:
            return STOPPED
        if run.ended is not None:
            return KILLED
        if run.node in self._read_on:
            return LATER
        changed = max(file.changed for file, _ in self._held[run.node, run.run])
        return WRITING if self._now - changed < WRITING_SECONDS else OPEN

    def _inner(self, path: Path) -> str:
        """A file's name inside the folder."""
        return str(path.relative_to(self._traces))

    def look_at_file(self, file: GatheredFile) -> None:
        """Whether a file could be read, and is where it belongs."""
        name = self._inner(file.path)
        node = file.home or None
        if file.error:
            got = sum(part.facts.records for part in file.parts)
            text = f"cannot be read {'after' if got else 'at all:'}"
            text += f" {counted(got, 'record')}: {file.error}" if got else f" {file.error}"
            self.findings.append(TraceFinding("damaged file", text, node, file=name))
        elif not file.parts and not file.unreadable:
            self.notes.append(TraceFinding("empty file", "has no record", node, file=name))
        ends = {self._ends[part.facts.node, part.facts.run] for part in file.parts}
        unreadable = dict(file.problems)
        if file.torn and unreadable.get(CUT_OFF) and ends <= {KILLED, WRITING} and ends:
            unreadable[CUT_OFF] -= 1
            why = "is being written" if WRITING in ends else "its node was killed"
            text = f"ends within a line: {why}"
            self.notes.append(TraceFinding("cut line", text, node, file=name, records=1))
        if lines := sum(unreadable.values()):
            problems = "; ".join(
                f"{problem} ({count:,})" for problem, count in sorted(unreadable.items()) if count
            )
            text = f"{counted(lines, 'line')} of it {'is' if lines == 1 else 'are'} no record: "
            self.findings.append(
                TraceFinding("unreadable lines", text + problems, node, file=name, records=lines)
            )
        strangers = sorted({part.facts.node for part in file.parts} - {file.home})
        if strangers and file.home:
            text = f"has records of {some_of(strangers)}, in the folder of {file.home}"
            self.notes.append(TraceFinding("foreign records", text, node, file=name))

    def look_at_run(self, overlay: OverlayFacts, run: RunFacts) -> None:
        """Find the absent records of a run, and the contradictions between its records."""
        for doubt in run.doubts:
            self._found(run, "doubt", doubt, None)
        inner = [hole for hole in run.holes if hole.records is not None]
        absent = sum(hole.records or 0 for hole in inner)
        if absent:
            self._absent(run, inner, absent)
        elif run.lost:
            text = f"the node counted {counted(run.lost, 'record')} as lost"
            self._found(run, "lost records", text, run.lost)
        for hole in run.holes:
            if hole.records is None and hole.cause != EARLIER:
                self._open_end(run, hole)
        illegible = sum(part.illegible for _, part in self._held[run.node, run.run])
        if illegible:
            text = f"the attributes of {counted(illegible, 'event')} cannot be read"
            self._found(run, "unreadable attributes", text, illegible)
        steps = [step for _, part in self._held[run.node, run.run] for step in part.steps]
        if steps:
            worst = max(steps, key=abs)
            way = "forward, or its machine slept" if worst > 0 else "back"
            text = f"its wall clock was set {counted(len(steps), 'time')} while it ran, by up to "
            text += f"{abs(worst):,.1f} s {way}"
            self.notes.append(TraceFinding("clock set", text, run.node, run.run))

    def _absent(self, run: RunFacts, holes: Sequence[RecordHole], absent: int) -> None:
        verb = "is" if absent == 1 else "are"
        text = f"{counted(absent, 'record')} {verb} absent"
        if len(holes) > 1:
            text += f" in {len(holes):,} places"
        causes = sorted({hole.cause for hole in holes} - {"records of it are absent"})
        if causes:
            text += f" ({', '.join(causes)})"
        if run.lost:
            text += f"; the node counted {run.lost:,} as lost"
        elif run.explained:
            text += "; as many lines of its files are unreadable"
        kind = "lost records" if run.explained else "absent records"
        since, until = min(hole.since for hole in holes), max(hole.until for hole in holes)
        self._found(run, kind, text, absent, since, until)

    def _open_end(self, run: RunFacts, hole: RecordHole) -> None:
        if self._ends[run.node, run.run] == LATER:
            return
        if self._ends[run.node, run.run] == WRITING:
            text = "is still being written: the last seconds are not judged"
            self.notes.append(TraceFinding("still writing", text, run.node, run.run))
            return
        text = hole.cause
        if hole.until >= FOREVER:
            text += ": its node was killed, or the last file is cut or was copied while it wrote"
        self._found(run, "no end", text, None, hole.since, hole.until)

    def _found(
        self,
        run: RunFacts,
        kind: str,
        text: str,
        records: int | None,
        since: int | None = None,
        until: int | None = None,
    ) -> None:
        self.findings.append(
            TraceFinding(
                kind,
                text,
                run.node,
                run.run,
                records=records,
                since=since / NANOSECONDS if since else None,
                until=None if until is None or until >= FOREVER else until / NANOSECONDS,
            )
        )

    def look_at_overlay(self, overlay: OverlayFacts) -> None:
        """Find the nodes of an overlay that are absent or keep other shares of the events."""
        for node in overlay.absent:
            text = "has no records at all, and others name it"
            self.findings.append(TraceFinding("absent node", text, node))
        for node in overlay.strangers:
            text = f"met nodes of another overlay than {overlay.name}, which its headers name"
            self.findings.append(TraceFinding("doubt", text, node))
        if overlay.apart:
            text = f"{overlay.name}: its nodes never met others of the same overlay's name"
            self.findings.append(TraceFinding("overlay in parts", text))
        samples = _samples(overlay)
        if len(samples) > 1:
            named = ", ".join(f"{share} at {counted(n, 'node')}" for share, n in samples.items())
            text = f"{overlay.name}: nodes keep different shares of the events ({named}); judged "
            text += f"are the {percent_text(overlay.sample)} that all keep"
            self.notes.append(TraceFinding("sampling", text))
        elif overlay.sample < 1:
            share = percent_text(overlay.sample)
            text = f"{overlay.name}: all nodes keep {share} of the events"
            self.notes.append(TraceFinding("sampling", text))
        for run in overlay.runs:
            if run.shares:
                share = percent_text(min(share for _, share in run.shares))
                text = f"published so many events that it traced a share of them, {share} at times"
                self.notes.append(TraceFinding("sampling", text, run.node))

    def look_at_clocks(self) -> None:
        """Wall clocks that are off."""
        if self._complete.clocks_agree:
            return
        for node, ahead in sorted(self._complete.clock_offsets().items()):
            if abs(ahead) >= CLOCKS_AGREE:
                way = "ahead of" if ahead > 0 else "behind"
                text = f"its wall clock is {abs(ahead):,.3f} s {way} the median node's"
                self.notes.append(TraceFinding("clock", text, node))

    def look_at_copies(self) -> None:
        """Records that are there twice."""
        for path, original in self._copies.files:
            text = f"has the same text as {self._inner(original)}, and counts once"
            home = node_of(str(path)) or None
            self.notes.append(TraceFinding("copy", text, home, file=self._inner(path)))
        named = {path for path, _ in self._copies.files}
        whole = sum(
            part.facts.records
            for parts in self._held.values()
            for file, part in parts
            if file.path in named
        )
        if self._copies.records > whole:
            more = counted(self._copies.records - whole, "record")
            self.notes.append(TraceFinding("copy", f"{more} repeat others, and count once"))
        for node, number in sorted(self._copies.contradictions.items()):
            text = f"under {counted(number, 'number')} there are different records of it"
            self.findings.append(TraceFinding("contradictions", text, node, records=number))

    def look_at_passed_over(self, paths: Sequence[Path]) -> None:
        """Files of other kinds."""
        for path in paths:
            text = f"is not read: only {' and '.join(SUFFIXES)} are"
            self.notes.append(TraceFinding("other file", text, file=self._inner(path)))

    def result(self, files: Sequence[GatheredFile]) -> TraceCheck:
        """The findings of all files together."""
        complete = self._complete
        overlays = tuple(self._overlay(each) for each in complete.overlays)
        judged = any(each.published and each.subscriptions for each in overlays)
        facts = [part.facts for file in files for part in file.parts]
        return TraceCheck(
            result=NOTHING if not judged else FINDINGS if self.findings else COMPLETE,
            folder=str(self._traces),
            files=len(files),
            size=sum(file.size for file in files),
            records=sum(each.records for each in facts),
            unreadable=sum(file.unreadable for file in files),
            copies=complete.copies,
            first=min((each.first for each in facts), default=None),
            last=max((each.last for each in facts), default=None),
            findings=tuple(self.findings),
            notes=tuple(self.notes),
            overlays=overlays,
            nodes=tuple(self._nodes()),
        )

    def _overlay(self, overlay: OverlayFacts) -> OverlayCheck:
        runs = [(run.node, run.run) for run in overlay.runs]
        kinds = [part.kinds for key in runs for _, part in self._held[key]]
        return OverlayCheck(
            name=overlay.name,
            nodes=len(overlay.nodes),
            absent=overlay.absent,
            published=sum(each.get("publish", 0) for each in kinds),
            subscriptions=sum(each.get("suback", 0) for each in kinds),
            samples=_samples(overlay),
            reasons=tuple(absences(overlay)),
        )

    def _nodes(self) -> list[NodeCheck]:
        ahead = self._complete.clock_offsets()
        names: dict[str, str] = {}
        about: dict[str, int] = {}
        for (node, _), parts in sorted(self._held.items()):
            for _, part in parts:
                names[node] = part.name or names.get(node, "")
        for finding in self.findings:
            if finding.node:
                about[finding.node] = about.get(finding.node, 0) + 1
        found = []
        for overlay in self._complete.overlays:
            for node in sorted(overlay.nodes):
                runs = [self._run(run) for run in overlay.runs if run.node == node]
                found.append(
                    NodeCheck(
                        node,
                        names.get(node) or None,
                        overlay.name,
                        ahead.get(node),
                        runs=tuple(runs),
                        findings=about.get(node, 0),
                    )
                )
        return found

    def _run(self, run: RunFacts) -> RunCheck:
        parts = self._held[run.node, run.run]
        kinds: dict[str, int] = {}
        for _, part in parts:
            for kind, count in part.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + count
        return RunCheck(
            run=run.run,
            files=len(parts),
            records=run.records,
            absent=sum(hole.records or 0 for hole in run.holes),
            lost=run.lost,
            sample=run.sample,
            first=run.first,
            last=run.last,
            end=self._ends[run.node, run.run],
            kinds=dict(sorted(kinds.items())),
        )


def _samples(overlay: OverlayFacts) -> dict[str, int]:
    """Count the nodes by the share of the events that they keep, the smallest share first."""
    known = [(run.sample, run.node) for run in overlay.runs if run.sample is not None]
    shares = {node: sample for sample, node in sorted(known, reverse=True)}
    counts: dict[str, int] = {}
    for share in sorted(shares.values()):
        counts[percent_text(share)] = counts.get(percent_text(share), 0) + 1
    return counts


def percent_text(share: float) -> str:
    """A share of 1 in percent."""
    return f"{share * 100:.6g} %"
