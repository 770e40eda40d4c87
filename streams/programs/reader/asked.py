"""What a program has asked of a reading: whether it can be, and where each shard begins."""

from __future__ import annotations

from matching import SelectorError, compile_selector
from overlay.client import BeginReading
from streams.directory.entry import StreamEntry
from streams.programs.reader.cursor import WINDOW, WINDOW_LEAST, Cursor
from streams.programs.reader.messages import SELECTOR_MOST, ReadFrom


def strange_of(command: BeginReading, entry: StreamEntry) -> str:
    """Why positions are not those of this stream; "": they are, or do not say whose they are."""
    if command.stream_id in ("", entry.id):
        return ""
    return (
        f"these positions are of another stream {entry.name}, with the id {command.stream_id}: it "
        f"was removed, and this one ({entry.id}) was founded since. Begin anew, as with start first"
    )


def cursors_of(command: BeginReading, entry: StreamEntry) -> list[Cursor]:
    """One for each shard that is to be read."""
    positions = dict(command.positions)
    window = max(WINDOW // len(entry.places), WINDOW_LEAST)
    untils = dict(command.tables)
    losses = dict(command.losses)
    start = ReadFrom(command.start, command.at)

    def start_of(place: int) -> ReadFrom:
        if place in untils:
            return ReadFrom("keys", positions.get(place, 0), untils[place], losses.get(place, -1))
        if place in positions:
            return ReadFrom("offset", positions[place], 0, losses.get(place, -1))
        return start

    return [
        Cursor(place, shard, start_of(place), window)
        for place, shard in enumerate(entry.shards())
        if command.shard in (-1, place)
    ]


def fault_of(command: BeginReading) -> tuple[str, str] | None:
    """(code, reason) why a reading cannot begin."""
    if len(command.selector) > SELECTOR_MOST:
        return "selector", f"a selector has at most {SELECTOR_MOST} characters"
    if command.selector:
        try:
            compile_selector(command.selector)
        except SelectorError as error:
            return "selector", error.caret()
    if not command.durable.isprintable():
        return "usage", "a durable consumer's name has printable characters only"
    if command.resume and not (command.durable and command.token):
        return "usage", "only a durable consumer with a token can go on"
    if command.packed and command.durable:
        return "usage", "a durable consumer's rows are not packed: which it has taken is recorded"
    if command.shard >= 0 and command.durable:
        return "usage", "a durable consumer reads all shards"
    if command.start == "keys" and command.durable:
        return "usage", "a durable consumer begins in the history, not with the newest rows"
    if any(position < 0 for _, position in (*command.positions, *command.tables)):
        return "usage", "an offset is 0 or more"
    return None
