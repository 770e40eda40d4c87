"""What is taken away comes back: undo, and subscriptions that outlive the TUI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from canopy.tui.constants import SUBSCRIPTIONS, UNDO, UNDO_EVENTS
from canopy.tui.model.attachment import UndoableChange, UndoStack
from canopy.tui.model.log import EventLog
from canopy.tui.model.saved import SavedSubscription, SavedSubscriptions, saved_path
from canopy.tui.model.subscriber import SubscriptionState
from overlay.client import Delivery, Event
from tests.canopy.tui.tui_pilot import Rig, play, quake

STRONG = SavedSubscription("magnitude >= 5", "strong")
QUIET = SavedSubscription("depth < 10", "quiet", 2, paused=True)


def names(rig: Rig) -> list[str]:
    return [s.name for s in rig.app.attachment.subscriptions.values()]


def test_a_removed_subscription_comes_back_in_its_place_with_its_events() -> None:
    async def scenario(rig: Rig) -> None:
        key = await rig.subscribe("magnitude >= 5", "strong")
        await rig.subscribe("depth < 10", "shallow")
        rig.node.publish(quake(1, 6))
        await rig.until(lambda: len(rig.app.attachment.log.rows) == 1)
        await rig.press("up", "d")
        await rig.sees("removed strong; u brings it back")
        await rig.until(lambda: rig.node.selectors() == ["depth < 10"], "removed at the node")
        await rig.press("u")
        await rig.sees("undone: strong again")
        await rig.until(lambda: len(rig.node.selectors()) == 2, "subscribed again")
        assert names(rig) == ["strong", "shallow"]
        (row,) = rig.app.attachment.log.rows
        assert list(row.deliveries) == [key]
        await rig.press("u")
        assert names(rig) == ["strong", "shallow"], "there is nothing more to undo"

    play(scenario)


def test_a_cleared_list_comes_back_before_what_came_since() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5", "strong")
        rig.node.publish(quake(1), quake(2))
        await rig.sees("2 events")
        await rig.press("c")
        await rig.sees("removed 2 events; u brings them back", "0 events")
        rig.node.publish(quake(3))
        await rig.sees("1 events")
        await rig.press("u")
        await rig.sees("3 events")
        shown = [row.event.attributes["id"] for row in rig.app.attachment.log.view]
        assert shown == ["e1", "e2", "e3"]

    play(scenario)


def test_an_edit_can_be_undone() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5", "strong")
        await rig.press("e")
        await rig.type_selector("0")
        await rig.press("enter")
        await rig.until(lambda: rig.node.selectors() == ["magnitude >= 50"])
        await rig.press("u")
        await rig.until(lambda: rig.node.selectors() == ["magnitude >= 5"], "as it was")
        assert names(rig) == ["strong"]

    play(scenario)


def delivery(number: int) -> Delivery:
    event = Event("a" * 16, 1, number, 1.0, {"id": number})
    return Delivery("s", event, "id", "", "", 1, 1.0)


def test_a_restored_log_keeps_its_bound_and_each_event_once() -> None:
    log = EventLog(limit=4)
    log.add((1, delivery(n)) for n in range(3))
    cleared = log.clear()
    log.add((2, delivery(n)) for n in range(2, 5))
    log.restore(cleared)
    assert [row.event.sequence for row in log.view] == [1, 2, 3, 4]
    assert set(log.view[1].deliveries) == {1, 2}
    log.pause(True)
    log.add([(1, delivery(8))])
    cleared = log.clear()
    log.add([(1, delivery(9))])
    log.restore(cleared)
    assert log.held == 2
    log.pause(False)
    assert [row.event.sequence for row in log.view] == [3, 4, 8, 9][-4:]


def test_the_undo_stack_is_bounded_in_changes_and_in_events() -> None:
    stack = UndoStack()
    for number in range(UNDO * 2):
        stack.push(UndoableChange(str(number), lambda: None, has_events=number % 2 == 0))
    assert len(stack) <= UNDO
    undone = [stack.undo() for _ in range(len(stack))]
    assert sum(int(what) % 2 == 0 for what in undone) == UNDO_EVENTS
    assert undone[0] == str(UNDO * 2 - 1)
    assert stack.undo() == ""


def test_what_cannot_be_undone_now_is_kept() -> None:
    stack = UndoStack()

    def no_room() -> None:
        raise ValueError("no room")

    stack.push(UndoableChange("x", no_room))
    with pytest.raises(ValueError, match="no room"):
        stack.undo()
    assert len(stack) == 1


@pytest.fixture
def saved(tmp_path: Path) -> SavedSubscriptions:
    return SavedSubscriptions(tmp_path / "state" / "tui" / "node.json")


def test_a_damaged_file_is_put_aside_with_a_notice(saved: SavedSubscriptions) -> None:
    saved.save([STRONG])
    saved.path.write_text(saved.path.read_text()[:-9])

    async def scenario(rig: Rig) -> None:
        await rig.sees("the saved subscriptions were damaged")
        assert not names(rig)

    play(scenario, saved=saved)
    assert saved.path.with_name("node.json.damaged").exists()
    assert not saved.path.exists()


class TestSaved:
    def test_subscriptions_are_made_again_at_the_next_start(
        self, saved: SavedSubscriptions
    ) -> None:
        async def first(rig: Rig) -> None:
            await rig.subscribe("magnitude >= 5", "strong")
            await rig.subscribe("depth < 10", "shallow")
            await rig.press("p")
            await rig.press("q")

        async def second(rig: Rig) -> None:
            await rig.sees("subscribed again: 2 saved", "--fresh")
            await rig.until(lambda: rig.node.selectors() == ["magnitude >= 5"], "subscribed")
            assert names(rig) == ["strong", "shallow"]
            header = next(line for line in rig.text.splitlines() if "time" in line)
            assert header.index("magnitude") < header.index("depth")
            states = [s.state for s in rig.app.attachment.subscriptions.values()]
            assert states[1] is SubscriptionState.PAUSED
            await rig.press("down", "d")
            await rig.until(lambda: not rig.node.selectors())

        async def third(rig: Rig) -> None:
            await rig.sees("subscribed again: 1 saved")
            assert names(rig) == ["shallow"]

        for scenario in (first, second, third):
            play(scenario, saved=saved)

    def test_a_fresh_start_subscribes_to_nothing_before_it_is_asked(
        self, saved: SavedSubscriptions
    ) -> None:
        saved.save([STRONG, QUIET])

        async def scenario(rig: Rig) -> None:
            await rig.sees("started without 2 saved")  # a notice wraps its lines
            assert not names(rig)
            assert saved.load().subscriptions == (STRONG, QUIET), "not forgotten by looking"
            await rig.press("u")
            await rig.until(lambda: rig.node.selectors() == ["magnitude >= 5"], "subscribed")
            assert names(rig) == ["strong", "quiet"]

        play(scenario, saved=saved, fresh=True)

    @pytest.mark.parametrize(
        "bad",
        [
            {"selector": "magnitude >", "name": "x"},
            {"selector": 5, "name": "x"},
            {"selector": "TRUE", "name": "x", "level": 77},
            {"selector": "TRUE", "name": "x", "more": 1},
            "TRUE",
        ],
    )
    def test_the_good_part_of_a_damaged_file_is_used(
        self, saved: SavedSubscriptions, bad: object
    ) -> None:
        saved.save([STRONG])
        content = json.loads(saved.path.read_text())
        content["subscriptions"].append(bad)
        saved.path.write_text(json.dumps(content))
        found, notice = saved.load()
        assert (found, "damaged" in notice) == ((STRONG,), True)
        assert not saved.path.exists()

    @pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"format": 1}', "null"])
    def test_any_content_is_read_without_an_error(
        self, saved: SavedSubscriptions, content: str
    ) -> None:
        saved.save([])
        saved.path.write_text(content)
        found, notice = saved.load()
        assert not found
        assert notice

    def test_more_than_there_is_room_for_are_not_all_made(self, saved: SavedSubscriptions) -> None:
        saved.save([STRONG] * (SUBSCRIPTIONS + 1))
        found, notice = saved.load()
        assert (len(found), "damaged" in notice) == (SUBSCRIPTIONS, True)

    def test_a_folder_that_takes_no_file_is_reported_and_the_subscription_is_made(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")

        async def scenario(rig: Rig) -> None:
            await rig.subscribe("magnitude >= 5")
            await rig.sees("the subscriptions cannot be saved")

        play(scenario, saved=SavedSubscriptions(tmp_path / "file" / "node.json"))

    def test_each_node_has_a_file_of_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        default = tmp_path / "data" / "canopy" / "default"
        paths = {saved_path(str(tmp_path / "a" / "x")), saved_path(str(tmp_path / "b" / "x"))}
        assert len(paths) == 2
        assert saved_path(None) == saved_path(str(default))
        assert saved_path(None).parent == tmp_path / "state" / "canopy" / "tui"
