"""The state folder: what analyses of earlier days have found, for those of later ones.

    state.json   `State`: which files have been taken in, and where the tables of each day are
    g000012/     what the twelfth run wrote: tables of the days that it changed, facts of its files
    lock         held by a run

Nothing of a generation is changed once it is written. A run writes a new one beside the old, then
replaces ``state.json`` in one step, and then removes what that no longer names. So a run that is
killed leaves the state as it was.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from canopy.traces.analysis.completeness.collect import Facts
from canopy.traces.analysis.constants import AnalysisError
from canopy.traces.schema import READABLE, VERSION

FORMAT: Final = "canopy-trace-state"
STATE_VERSION: Final = 3  # incremented when the state or the meaning of its tables changes

RECORDS: Final = "records"  # by the day of the record
PUBLISHED: Final = "publications"  # by the day of the publication
JUDGED: Final = "deliveries"  # by the day of the publication, else of the first delivery


class TakenFile(msgspec.Struct):
    """A trace file whose records are in the state."""

    size: int  # bytes of text
    generation: int  # that has its facts
    days: list[str]  # of its records


class EventRange(msgspec.Struct, array_like=True, frozen=True):
    """Events of one run (`node.run`) of a publisher, by their sequence numbers."""

    run: str
    first: int
    last: int

    def meets(self, other: EventRange) -> bool:
        """Whether some event may be in both."""
        return self.run == other.run and self.first <= other.last and other.first <= self.last

    def joined(self, other: EventRange) -> EventRange:
        """Return the range from the first to the last event of both ranges, which are of one
        run."""
        return EventRange(self.run, min(self.first, other.first), max(self.last, other.last))


class Day(msgspec.Struct):
    """One day (UTC): its tables, and the basis of their verdicts."""

    tables: dict[str, str] = {}  # folder by name, below the state's
    published: list[EventRange] = []  # events that were published on it
    strangers: list[EventRange] = []  # events without publication that were delivered on it
    elsewhere: list[str] = []  # other days with records of events that were published on it
    first: int | None = None  # hybrid logical clock of its first publication
    last: int | None = None  # and of its last
    needs: list[str] = []  # runs: its verdicts depend on whether all of their records are there
    basis: str = ""  # a hash of what it was judged by, beside its records
    line: dict[str, Any] | None = None  # of `trends`; {}: nothing to say. None: not judged yet
    closed: bool = False  # only its line is left, and what outlives it (`prune.close_days`)

    def close(self) -> None:
        """Keep the line, and which events were published on the day."""
        self.tables, self.strangers, self.elsewhere, self.needs = {}, [], [], []
        self.basis, self.closed = "", True


class State(msgspec.Struct):
    """The content of ``state.json``."""

    format: str = FORMAT
    version: int = STATE_VERSION
    schema: int = VERSION  # of the trace records
    overlays: list[str] = []  # names in its files
    generation: int = 0
    files: dict[str, TakenFile] = {}
    """By the path below the trace folder, as it was before it was compressed."""
    days: dict[str, Day] = {}
    late: int = 0  # records of closed days that came later, and were left out


class _Head(msgspec.Struct):
    """The fields that every version of ``state.json`` has."""

    format: str = ""
    version: int = 0
    schema: int = 0


LASTING: Final = ("start", "stop", "subscribe", "confined", "suback", "unsubscribe")
"""The kinds of records that a closed day keeps: of processes and subscriptions, which may go on."""


class StateFolder:
    """The state in a folder, while this process has its lock (`opened`)."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder = folder
        self.state = state
        self.generation = state.generation + 1
        """The one that this run writes."""

    @property
    def draft(self) -> Path:
        """The folder of this run's generation."""
        return self.folder / _name(self.generation)

    def place(self, day: str, table: str) -> Path | None:
        """Return the folder of this table of the day."""
        found = self.state.days[day].tables.get(table) if day in self.state.days else None
        return None if found is None else self.folder / found

    @property
    def closed(self) -> list[str]:
        """The days that are closed, in order."""
        return [name for name, day in sorted(self.state.days.items()) if day.closed]

    def closed_events(self) -> dict[str, EventRange]:
        """By run of a publisher the events that it published on closed days."""
        found: dict[str, EventRange] = {}
        for each in (each for name in self.closed for each in self.state.days[name].published):
            found[each.run] = found[each.run].joined(each) if each.run in found else each
        return found

    def places(self, table: str, days: Iterable[str] | None = None) -> list[Path]:
        """Return the folders of this table of these `days`; None: of all, in their order."""
        days = sorted(self.state.days) if days is None else days
        found = (self.place(day, table) for day in days)
        return [place for place in found if place is not None]

    def stored_bytes(self) -> int:
        """The size of the tables of records."""
        return sum(
            path.stat().st_size for place in self.places(RECORDS) for path in place.iterdir()
        )

    def wrote(self, table: str, days: Sequence[str]) -> None:
        """Note that this run has written this table of these `days`. A day without rows has no
        folder."""
        for name in days:
            day = self.state.days.setdefault(name, Day())
            place = f"{self.draft.name}/{table}/of={name}"
            day.tables.pop(table, None)
            if (self.folder / place).is_dir():
                day.tables[table] = place

    def load_facts(self) -> dict[str, Facts]:
        """The facts of all files that are in the state."""
        found: dict[str, Facts] = {}
        for number in sorted({taken.generation for taken in self.state.files.values()}):
            place = self.folder / _name(number) / "facts.json"
            try:
                facts = msgspec.json.decode(place.read_bytes(), type=dict[str, Facts])
            except (OSError, msgspec.MsgspecError) as error:
                raise _unusable(self.folder, f"{place} cannot be read: {error}") from error
            found |= {
                name: each
                for name, each in facts.items()
                if name in self.state.files and self.state.files[name].generation == number
            }
        return found

    def store_facts(self, facts: dict[str, Facts]) -> None:
        """Write the facts of the files that this run has taken in."""
        self.draft.mkdir(parents=True, exist_ok=True)
        (self.draft / "facts.json").write_bytes(msgspec.json.encode(facts))

    def commit(self) -> None:
        """Make the draft of this run the state, and remove files that are no longer part of it."""
        self.state.generation = self.generation
        draft = self.folder / ".state.json.new"
        with draft.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(self.state)))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / "state.json")
        self.sweep()

    def sweep(self) -> None:
        """Remove files that the state does not name: those of earlier generations, or of a run that
        ended before its commit."""
        kept = {place for day in self.state.days.values() for place in day.tables.values()}
        facts = {_name(taken.generation) for taken in self.state.files.values()}
        for generation in self.folder.glob("g[0-9]*"):
            for table in generation.iterdir():
                if table.is_file():
                    if generation.name not in facts:
                        table.unlink()
                    continue
                for place in table.iterdir():
                    if f"{generation.name}/{table.name}/{place.name}" not in kept:
                        shutil.rmtree(place) if place.is_dir() else place.unlink()
                if not any(table.iterdir()):
                    table.rmdir()
            if not any(generation.iterdir()):
                generation.rmdir()


def read_state(folder: Path) -> State:
    """Read the state in `folder`; an empty one if there is none. Raises AnalysisError if the folder
    has other content, or the state is of another version."""
    try:
        if not folder.exists():
            return State()
        if not folder.is_dir():
            raise AnalysisError(f"the state {folder} is a file; name a folder")
        text = (folder / "state.json").read_bytes()
    except FileNotFoundError:
        strange = [path.name for path in folder.iterdir() if path.name != "lock"]
        if strange and not all(name.startswith(("g0", ".state.json")) for name in strange):
            raise AnalysisError(
                f"{folder} is no state of an analysis: it has {sorted(strange)[0]} and no "
                "state.json; name a new folder"
            ) from None
        return State()
    except OSError as error:
        raise AnalysisError(f"the state {folder} cannot be read: {error}") from error
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.format != FORMAT:
            raise AnalysisError(f"{folder} is no state of an analysis; name a new folder")
        if head.version != STATE_VERSION or head.schema not in READABLE:
            raise _unusable(
                folder,
                f"it is of version {head.version} for trace records of version {head.schema}, and "
                f"this analysis keeps version {STATE_VERSION} for records of version {VERSION}",
            )
        state = msgspec.json.decode(text, type=State)
        state.schema = VERSION
        return state
    except msgspec.MsgspecError as error:
        raise _unusable(folder, f"state.json is damaged: {error}") from error


@contextmanager
def opened(folder: Path) -> Iterator[StateFolder]:
    """The state in `folder`, for one process at a time. Raises AnalysisError."""
    read_state(folder)  # before anything is written there
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("wb")
    except OSError as error:
        raise AnalysisError(f"the state {folder} cannot be written: {error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AnalysisError(f"another run uses the state {folder}: wait for its end") from None
        held = StateFolder(folder, read_state(folder))
        held.sweep()
        yield held


def _unusable(folder: Path, why: str) -> AnalysisError:
    return AnalysisError(
        f"the state {folder} cannot be used: {why}; name a new folder and analyse from the traces"
    )


def _name(generation: int) -> str:
    return f"g{generation:06}"
