"""The main screen: subscriptions, the stream, filter, hold, details, why, a node that goes away."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from canopy.tui.constants import LOG_ROWS
from canopy.tui.model.subscriber import SubscriptionState
from canopy.tui.screens.base import Banner
from canopy.tui.screens.subscribe import SubscribeDialog
from canopy.tui.widgets.detail import DetailPane
from canopy.tui.widgets.event_stream import EventStream
from canopy.tui.widgets.filter_bar import FilterBar
from overlay.client import Failed, Subscribe, Unsubscribe, Why
from tests.canopy.tui.tui_fake_node import ME
from tests.canopy.tui.tui_pilot import Rig, play, quake


def stream(rig: Rig) -> EventStream:
    return rig.app.screen.query_one(EventStream)


async def with_events(rig: Rig, count: int = 30) -> None:
    await rig.subscribe("magnitude >= 5", "strong")
    rig.node.publish(*(quake(n, 5 + n / 100, place=f"place {n}") for n in range(count)))
    await rig.until(lambda: len(rig.app.attachment.log.view) == count, "all events")


def test_an_invalid_selector_shows_caret_and_reason_and_cannot_be_submitted() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        await rig.press("a")
        await rig.type_selector("magnitude > AND place")
        await rig.sees("✗ ", "▲")
        lines = rig.text.splitlines()
        at = next(n for n, line in enumerate(lines) if "magnitude > AND" in line)
        caret = next(line for line in lines[at:] if "▲" in line)
        assert caret.index("▲") == lines[at].index("AND")
        assert rig.app.screen.query_one("#ok").disabled
        await rig.press("enter")
        assert isinstance(rig.app.screen, SubscribeDialog)
        assert not rig.node.asked(Subscribe)

    play(scenario)


def test_a_corrected_selector_is_subscribed_and_its_events_appear() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        await rig.press("a")
        await rig.type_selector("magnitude >")
        assert rig.app.screen.query_one("#ok").disabled
        await rig.type_selector("= 5")
        await rig.sees("✓ a valid selector on magnitude")
        await rig.press("enter")
        await rig.until(lambda: rig.node.selectors() == ["magnitude >= 5"])
        rig.node.publish(quake(1, 6.25, place="Peru"), quake(2, 3.0))
        await rig.sees("6.25", "place=Peru", "● s1", "acknowledged, by magnitude")
        assert "e2" not in rig.text
        header = next(line for line in rig.text.splitlines() if "time" in line)
        assert header.index("id") < header.index("type") < header.index("magnitude")

    play(scenario)


def test_a_refusal_by_the_node_is_reported_in_the_list() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        rig.node.refuse = Failed(0, "refused", "too many registrations here")
        rig.app.attachment.subscribe("magnitude > 1", "mine", ("magnitude",))
        await rig.sees("✗ mine", "refused", "too many registrations here")

    play(scenario)


def test_thousands_of_events_are_one_update_per_beat() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5")
        rig.app.ticking.pause()
        await rig.pilot.pause()
        before = stream(rig).updates
        sent = 6_000
        for start in range(0, sent, 20):
            rig.node.publish(*(quake(n) for n in range(start, start + 20)))
        client = next(client for client in rig.node.clients if client.subscriptions)
        await rig.until(lambda: not client.queue, "the feed's thread to take all")
        await rig.pilot.pause(0.05)
        ticks = 0
        while rig.app.attachment.rate.total < sent:
            rig.app.tick()
            ticks += 1
            await rig.pilot.pause(0.05)
            assert ticks < 50
        assert stream(rig).updates - before <= ticks <= 10
        log = rig.app.attachment.log
        assert len(log.rows) == LOG_ROWS
        assert log.skipped + len(log.rows) >= sent - LOG_ROWS
        assert rig.app.attachment.subscriptions[1].rate.total == sent
        assert f"e{sent - 1}" in rig.text
        await rig.sees("5,000 events")

    play(scenario)


def test_the_filter_keeps_only_events_with_its_words() -> None:
    async def scenario(rig: Rig) -> None:
        await with_events(rig)
        await rig.press("slash")
        rig.app.screen.query_one(FilterBar).query_one(Input).value = "PLACE 17"
        await rig.sees("1 of 30 events", "place=place 17")
        assert "place=place 18" not in rig.text
        rig.node.publish(quake(40, place="no"), quake(41, place="17 more places"))
        await rig.sees("2 of 32 events")
        await rig.press("escape")
        await rig.sees("32 events")

    play(scenario)


def test_a_hold_keeps_the_list_still_and_loses_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        await with_events(rig)
        await rig.press("space")
        await rig.sees("‖ PAUSED")
        rig.node.publish(quake(77, place="while on hold"))
        await rig.sees("+1")
        assert "while on hold" not in rig.text
        await rig.press("space")
        await rig.sees("while on hold")
        assert "‖ PAUSED" not in rig.text

    play(scenario)


def test_a_cursor_stays_on_its_event_while_others_come() -> None:
    async def scenario(rig: Rig) -> None:
        await with_events(rig)
        stream(rig).focus()
        await rig.press("up", "up", "up")
        selected = stream(rig).selected
        assert selected is not None
        assert selected.event.attributes["id"] == "e27"
        rig.node.publish(*(quake(n) for n in range(100, 160)))
        await rig.until(lambda: len(rig.app.attachment.log.view) == 90)
        assert stream(rig).selected is selected
        assert "e159" not in rig.text
        await rig.press("end")
        await rig.sees("e159")
        assert stream(rig).selected is None

    play(scenario)


def test_a_flood_does_not_take_the_selected_event_away() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5")
        rig.node.publish(*(quake(n) for n in range(LOG_ROWS)))
        log = rig.app.attachment.log
        await rig.until(lambda: len(log.rows) == LOG_ROWS)
        stream(rig).focus()
        await rig.press("up")
        selected = stream(rig).selected
        assert selected is not None
        for start in range(LOG_ROWS, 2 * LOG_ROWS, 500):
            rig.node.publish(*(quake(n) for n in range(start, start + 500)))
            await rig.until(lambda end=start: log.paused or (len(log.view) and
                             log.view[-1].event.attributes["id"] == f"e{end + 499}"))  # fmt: skip
        assert log.paused
        assert stream(rig).selected is selected
        await rig.sees("‖ PAUSED", "Space resumes")

    play(scenario)


def test_why_asks_once_and_shows_path_pivot_and_verdicts() -> None:
    async def scenario(rig: Rig) -> None:
        await with_events(rig, 3)
        await rig.press("w")
        await rig.sees(
            "✓ delivered to strong",
            "pivot magnitude  virtual node [4 … 6.5)  2 hops",
            "✓ magnitude >= 5   saw 6.1",
            "✗ place LIKE '%a%'   saw 'Peru'",
            "? depth < 3   saw NULL",
            "walk found the tree of magnitude at 2222",
        )
        assert [c.event for c in rig.node.asked(Why)] == [f"{ME}.1.3"]
        stream(rig).focus()
        await rig.press("up")
        await rig.until(lambda: len(rig.node.asked(Why)) == 2, "the next event is asked about")

    play(scenario)


def test_why_of_a_forgotten_event_says_so() -> None:
    async def scenario(rig: Rig) -> None:
        rig.node.sequence = 665
        await with_events(rig, 1)
        await rig.press("w")
        await rig.sees("The node cannot explain it: this event is forgotten")

    play(scenario)


def test_details_show_all_attributes_and_the_payload() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5")
        attributes = quake(1, 5.5, place="line\nbreak\x1b[2J", tsunami=None, felt=True)
        rig.node.publish(attributes, payload=b'{"a": [1, 2]}')
        await rig.until(lambda: len(rig.app.attachment.log.view) == 1)
        stream(rig).focus()
        await rig.press("enter")
        rig.app.screen.query_one(DetailPane).styles.height = 30
        await rig.sees("NULL", "TRUE", r"line\u000abreak\u001b[2J", "13 bytes", '"a": [')
        assert "\x1b" not in rig.text

    play(scenario)


def test_choosing_a_subscription_shows_its_events_with_its_columns() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5", "strong")
        await rig.subscribe("depth < 10", "shallow")
        rig.node.publish(quake(1, 6, depth=50), quake(2, 2, depth=5), quake(3, 6, depth=5))
        await rig.sees("Events of shallow", "2 of 3 events")
        assert "e1" not in rig.text
        await rig.press("home")
        await rig.sees("strong, shallow")
        header = next(line for line in rig.text.splitlines() if "time" in line)
        assert header.index("magnitude") < header.index("depth") < header.index("also")

    play(scenario)


def test_remove_and_pause_end_the_subscription_at_the_node() -> None:
    async def scenario(rig: Rig) -> None:
        key = await rig.subscribe("magnitude >= 5")
        await rig.press("p")
        await rig.until(lambda: not rig.node.selectors(), "paused at the node")
        await rig.sees("‖ s1", "paused")
        await rig.press("p")
        await rig.until(lambda: rig.node.selectors() == ["magnitude >= 5"], "resumed")
        await rig.until(
            lambda: rig.app.attachment.subscriptions[key].state is SubscriptionState.LIVE
        )
        await rig.press("d")
        await rig.until(lambda: not rig.node.selectors(), "removed at the node")
        await rig.sees("No subscriptions yet.")
        assert len(rig.node.asked(Unsubscribe)) == 2

    play(scenario)


def test_edit_replaces_the_selector() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5", "mine")
        await rig.press("e")
        await rig.type_selector("0")
        await rig.press("enter")
        await rig.until(lambda: rig.node.selectors() == ["magnitude >= 50"])
        assert [s.name for s in rig.app.attachment.subscriptions.values()] == ["mine"]

    play(scenario)


def test_a_node_that_goes_is_reported_and_subscriptions_are_made_again() -> None:
    async def scenario(rig: Rig) -> None:
        await with_events(rig, 2)
        rig.node.go_away()
        await rig.sees("⚠ The node is gone", "✗ gone", "◌ strong")
        assert "e1" in rig.text, "what came stays readable"
        rig.node.come_back()
        await rig.until(lambda: rig.node.selectors() == ["magnitude >= 5"], "made again")
        await rig.sees("● ready", "● strong")
        assert not rig.app.screen.query_one(Banner).display
        rig.node.publish(quake(9, place="after the return"))
        await rig.sees("after the return")

    play(scenario)


def test_a_node_that_is_not_there_yet_is_waited_for() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.sees("⚠ The node is gone: no node runs at /nowhere", "not connected")
        rig.node.come_back()
        await rig.sees("fir 11111111", "● ready")

    play(scenario, up=False)


def test_a_small_terminal_shows_list_stream_and_on_demand_details() -> None:
    async def scenario(rig: Rig) -> None:
        await with_events(rig)
        lines = rig.text.splitlines()
        assert len(lines) == 24
        assert all(len(line) <= 80 for line in lines)
        assert not rig.app.screen.query_one(DetailPane).display
        await rig.sees("● strong", "e29", "? Help", "q Quit", "▲ canopy")
        await rig.press("w")
        await rig.sees("✓ delivered to strong", "e29")
        await rig.press("escape")
        await rig.until(lambda: not rig.app.screen.query_one(DetailPane).display)

    play(scenario, size=(80, 24))


def test_nothing_is_drawn_while_nothing_comes() -> None:
    async def scenario(rig: Rig) -> None:
        await with_events(rig, 2)
        before, ticks = stream(rig).updates, rig.app.ticks
        await rig.until(lambda: rig.app.ticks > ticks + 5)
        assert stream(rig).updates == before

    play(scenario)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
def test_a_notice_covers_no_event(size: tuple[int, int]) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        rig.app.notify("Paused, so that the selected event stays. Space resumes.", timeout=60)
        await rig.sees("Space resumes")
        toasts = [toast.region for toast in rig.app.screen.query("Toast")]
        assert toasts
        events = rig.app.screen.query_one(EventStream).region
        assert not any(toast.overlaps(events) for toast in toasts)
        assert all(0 < toast.height <= 2 for toast in toasts)

    play(scenario, size=size)
