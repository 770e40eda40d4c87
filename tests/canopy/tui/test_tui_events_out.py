"""Sorting, columns, copying and saving of events."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from textual.widgets import Checkbox, Input

from canopy.feeds.objects import delivery_object
from canopy.tui.constants import CLIPBOARD_BYTES
from canopy.tui.model.log import EventLog, LogRow, SortOrder
from canopy.tui.screens.export import ExportDialog, file_name, write_new
from canopy.tui.screens.live import ColumnsDialog
from canopy.tui.widgets.event_stream import EventStream
from overlay.client import Delivery, Event
from tests.canopy.tui.tui_pilot import Rig, play, quake


def delivery(number: int, **attributes: object) -> Delivery:
    event = Event("a" * 16, 1, number, 1.0, {"id": f"e{number}", **attributes})
    return Delivery("s", event, "id", "", "", 1, 1.0)


def numbers(log: EventLog) -> list[int]:
    return [row.event.sequence for row in log.view]


def ids(rig: Rig) -> list[object]:
    return [row.event.attributes["id"] for row in rig.app.attachment.log.view]


async def three(rig: Rig) -> EventStream:
    await rig.subscribe("magnitude >= 1", "all")
    rig.node.publish(quake(1, 5, place="Peru"), quake(2, 7, depth=3), quake(3, 6, place="Fiji"))
    await rig.until(lambda: len(rig.app.attachment.log.view) == 3)
    stream = rig.app.screen.query_one(EventStream)
    stream.focus()
    return stream


def test_a_sorted_view_has_numbers_before_texts_and_the_absent_last() -> None:
    log = EventLog()
    values = [3, "b", None, 1.5, True, "a"]
    log.add((1, delivery(n, x=value)) for n, value in enumerate(values))
    log.add([(1, delivery(6))])
    log.sort(SortOrder("x", False))
    assert numbers(log) == [4, 3, 0, 5, 1, 2, 6]
    log.sort(SortOrder("x"))
    assert numbers(log) == [1, 5, 0, 3, 4, 2, 6]
    log.sort(None)
    assert numbers(log) == list(range(7))


def test_a_sorted_view_takes_new_events_in_their_places_and_drops_the_oldest() -> None:
    log = EventLog(limit=4)
    log.sort(SortOrder("x"))
    for n, x in enumerate((5, 1, 9, 3, 7)):
        log.add([(1, delivery(n, x=x))])
    assert numbers(log) == [2, 4, 3, 1]
    row = log.view[2]
    assert log.place_of(row) == 2
    log.add([(1, delivery(5, x=8)), (2, delivery(5, x=8))])
    assert numbers(log) == [2, 5, 4, 3]
    assert log.place_of(row) == 3


def test_asking_again_turns_the_order_and_then_ends_it() -> None:
    first = SortOrder.after(None, "x")
    second = SortOrder.after(first, "x")
    assert (first, second, SortOrder.after(second, "x")) == (
        SortOrder("x", True),
        SortOrder("x", False),
        None,
    )
    assert SortOrder.after(second, "y") == SortOrder("y", True)


def test_the_cursor_stays_on_its_event_while_others_are_sorted_in_before_it() -> None:
    async def scenario(rig: Rig) -> None:
        stream = await three(rig)
        await rig.press("s")
        await rig.until(lambda: isinstance(rig.app.screen, ColumnsDialog))
        await rig.press("down", "down", "s")
        await rig.sees("[x] magnitude ▼")
        await rig.press("enter")
        await rig.sees("magnitude ▼")
        assert ids(rig) == ["e2", "e3", "e1"]
        await rig.press("down", "down")
        assert stream.selected is not None
        assert stream.selected.event.attributes["id"] == "e3"
        rig.node.publish(quake(4, 9), quake(5, 8))
        await rig.until(lambda: ids(rig) == ["e4", "e5", "e2", "e3", "e1"])
        await rig.until(lambda: stream.place == 3, "the cursor's event")
        assert stream.selected.event.attributes["id"] == "e3"
        await rig.press("end")
        assert stream.selected is None

    play(scenario)


def test_a_click_on_a_title_sorts() -> None:
    async def scenario(rig: Rig) -> None:
        stream = await three(rig)
        header = next(line for line in rig.text.splitlines() if "time" in line)
        column = header.index("magnitude") - stream.region.x
        for mark, order in (("▼", ["e2", "e3", "e1"]), ("▲", ["e1", "e3", "e2"]),
                            ("", ["e1", "e2", "e3"])):  # fmt: skip
            await rig.pilot.click(EventStream, offset=(column, 1))
            await rig.until(lambda order=order: ids(rig) == order, mark)
            await rig.sees(f"magnitude {mark}")
        await rig.pilot.click(EventStream, offset=(column, 3))
        await rig.until(lambda: stream.selected is not None, "a click on the second event")
        assert stream.selected.event.attributes["id"] == "e2"

    play(scenario)


def test_columns_are_shown_and_hidden_and_reset() -> None:
    async def scenario(rig: Rig) -> None:
        await three(rig)

        def header() -> list[str]:
            return next(line for line in rig.text.splitlines() if "time" in line).split()

        await rig.until(lambda: "magnitude" in header())
        await rig.press("s")
        await rig.sees("[ ] place", "[x] type")
        await rig.press("down", "space", "down", "space", "down", "space")
        await rig.press("enter")
        await rig.until(lambda: "place" in header(), "the new column")
        assert "magnitude" not in header()
        assert "type" not in header()
        assert "magnitude=7" in rig.text
        await rig.press("s")
        await rig.press("r")
        await rig.until(lambda: "magnitude" in header() and "place" not in header(), "reset")

    play(scenario)


def test_an_event_is_copied_as_the_json_of_canopy_sub() -> None:
    async def scenario(rig: Rig) -> None:
        stream = await three(rig)
        written: list[str] = []
        driver = rig.app._driver
        assert driver is not None
        driver.write = written.append  # type: ignore[method-assign]
        await rig.press("up", "up", "y")
        await rig.sees("copied as JSON")
        (sequence,) = [text for text in written if text.startswith("\x1b]52;c;")]
        copied = json.loads(base64.b64decode(sequence.removeprefix("\x1b]52;c;")[:-1]))
        row = stream.selected
        assert row is not None
        assert copied == delivery_object(row.deliveries[1])
        assert copied["attributes"] == quake(2, 7, depth=3)

    play(scenario)


def test_what_is_too_long_for_a_terminal_is_not_copied() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 1")
        rig.node.publish(quake(1, place="x" * CLIPBOARD_BYTES))
        await rig.until(lambda: rig.app.attachment.log.view)
        await rig.press("y")
        await rig.sees("too long for the terminal's")  # a notice wraps its lines
        assert not rig.app.clipboard

    play(scenario)


def test_events_are_saved_to_new_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def save(rig: Rig) -> None:
        await rig.press("x")
        await rig.until(lambda: isinstance(rig.app.screen, ExportDialog))

    async def scenario(rig: Rig) -> None:
        stream = await three(rig)
        await save(rig)
        await rig.press("enter")
        await rig.sees("saved 1 event")
        row = stream.selected
        assert row is not None
        assert json.loads((tmp_path / "e3.json").read_text()) == delivery_object(row.deliveries[1])
        await save(rig)
        await rig.press("enter")
        await rig.sees("✗ File exists")
        rig.app.screen.query_one(Checkbox).toggle()
        await rig.until(lambda: rig.app.screen.query_one("#path", Input).value == "events.jsonl")
        await rig.press("enter")
        await rig.sees("saved 3 events")
        lines = (tmp_path / "events.jsonl").read_text().splitlines()
        assert [json.loads(line)["id"] for line in lines] == ["e1", "e2", "e3"]

    play(scenario)


@pytest.mark.parametrize(
    ("id_", "name"),
    [("q1", "q1.json"), ("../../x y", "x-y.json"), ("", "event.json"), (17, "17.json"),
     ("..", "event.json"), ("ü" * 200, "ü" * 60 + ".json")],
)  # fmt: skip
def test_an_id_is_never_a_path(id_: str | int, name: str) -> None:
    assert file_name(LogRow(1, 1, delivery(1, id=id_))) == name


def test_a_file_that_cannot_be_written_whole_is_not_left(tmp_path: Path) -> None:
    path = tmp_path / "x.json"

    class Lines(list[str]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield "one"
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_new(path, Lines())
    assert not path.exists()
