"""The main screen: subscriptions, the stream, filter, hold, details, why, a node that goes away."""

from __future__ import annotations

from textual.widgets import Input

from canopy.tui.constants import LOG_ROWS
from canopy.tui.model.subscriber import SubscriptionState
from canopy.tui.screens.subscribe import SubscribeDialog
from canopy.tui.widgets.banner import Banner
from canopy.tui.widgets.detail import DetailPane
from canopy.tui.widgets.event_stream import EventStream
from canopy.tui.widgets.filter_bar import FilterBar
from overlay.client import Failed, Subscribe, Unsubscribe, Why
from tests.canopy.tui.tui_fake_node import ME
from tests.canopy.tui.tui_pilot import Seat, play, quake


def stream(seat: Seat) -> EventStream:
    return seat.app.screen.query_one(EventStream)


async def with_events(seat: Seat, count: int = 30) -> None:
    await seat.subscribe("magnitude >= 5", "strong")
    seat.node.publish(*(quake(n, 5 + n / 100, place=f"place {n}") for n in range(count)))
    await seat.until(lambda: len(seat.app.attachment.log.view) == count, "all events")


def test_an_invalid_selector_shows_caret_and_reason_and_cannot_be_submitted() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.until(lambda: seat.app.attachment.up)
        await seat.press("a")
        await seat.type_selector("magnitude > AND place")
        await seat.sees("✗ ", "▲")
        lines = seat.text.splitlines()
        at = next(n for n, line in enumerate(lines) if "magnitude > AND" in line)
        caret = next(line for line in lines[at:] if "▲" in line)
        assert caret.index("▲") == lines[at].index("AND")
        assert seat.app.screen.query_one("#ok").disabled
        await seat.press("enter")
        assert isinstance(seat.app.screen, SubscribeDialog)
        assert not seat.node.asked(Subscribe)

    play(scenario)


def test_a_corrected_selector_is_subscribed_and_its_events_appear() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.until(lambda: seat.app.attachment.up)
        await seat.press("a")
        await seat.type_selector("magnitude >")
        assert seat.app.screen.query_one("#ok").disabled
        await seat.type_selector("= 5")
        await seat.sees("✓ a valid selector on magnitude")
        await seat.press("enter")
        await seat.until(lambda: seat.node.selectors() == ["magnitude >= 5"])
        seat.node.publish(quake(1, 6.25, place="Peru"), quake(2, 3.0))
        await seat.sees("6.25", "place=Peru", "● s1", "acknowledged, by magnitude")
        assert "e2" not in seat.text
        header = next(line for line in seat.text.splitlines() if "time" in line)
        assert header.index("id") < header.index("type") < header.index("magnitude")

    play(scenario)


def test_a_refusal_by_the_node_is_told_in_the_list() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.until(lambda: seat.app.attachment.up)
        seat.node.refuse = Failed(0, "refused", "too many registrations here")
        seat.app.attachment.subscribe("magnitude > 1", "mine", ("magnitude",))
        await seat.sees("✗ mine", "refused", "too many registrations here")

    play(scenario)


def test_thousands_of_events_are_one_update_per_beat() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.subscribe("magnitude >= 5")
        seat.app.ticking.pause()
        await seat.pilot.pause()
        before = stream(seat).updates
        sent = 6_000
        for start in range(0, sent, 20):
            seat.node.publish(*(quake(n) for n in range(start, start + 20)))
        client = next(client for client in seat.node.clients if client.subscriptions)
        await seat.until(lambda: not client.queue, "the feed's thread to take all")
        await seat.pilot.pause(0.05)
        ticks = 0
        while seat.app.attachment.rate.total < sent:
            seat.app.tick()
            ticks += 1
            await seat.pilot.pause(0.05)
            assert ticks < 50
        assert stream(seat).updates - before <= ticks <= 10
        log = seat.app.attachment.log
        assert len(log.rows) == LOG_ROWS
        assert log.skipped + len(log.rows) >= sent - LOG_ROWS
        assert seat.app.attachment.subscriptions[1].rate.total == sent
        assert f"e{sent - 1}" in seat.text
        await seat.sees("5,000 events")

    play(scenario)


def test_the_filter_keeps_only_events_with_its_words() -> None:
    async def scenario(seat: Seat) -> None:
        await with_events(seat)
        await seat.press("slash")
        seat.app.screen.query_one(FilterBar).query_one(Input).value = "PLACE 17"
        await seat.sees("1 of 30 events", "place=place 17")
        assert "place=place 18" not in seat.text
        seat.node.publish(quake(40, place="no"), quake(41, place="17 more places"))
        await seat.sees("2 of 32 events")
        await seat.press("escape")
        await seat.sees("32 events")

    play(scenario)


def test_a_hold_keeps_the_list_still_and_loses_nothing() -> None:
    async def scenario(seat: Seat) -> None:
        await with_events(seat)
        await seat.press("space")
        await seat.sees("‖ PAUSED")
        seat.node.publish(quake(77, place="while on hold"))
        await seat.sees("+1")
        assert "while on hold" not in seat.text
        await seat.press("space")
        await seat.sees("while on hold")
        assert "‖ PAUSED" not in seat.text

    play(scenario)


def test_a_cursor_stays_on_its_event_while_others_come() -> None:
    async def scenario(seat: Seat) -> None:
        await with_events(seat)
        stream(seat).focus()
        await seat.press("up", "up", "up")
        selected = stream(seat).selected
        assert selected is not None
        assert selected.event.attributes["id"] == "e27"
        seat.node.publish(*(quake(n) for n in range(100, 160)))
        await seat.until(lambda: len(seat.app.attachment.log.view) == 90)
        assert stream(seat).selected is selected
        assert "e159" not in seat.text
        await seat.press("end")
        await seat.sees("e159")
        assert stream(seat).selected is None

    play(scenario)


def test_a_flood_does_not_take_the_selected_event_away() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.subscribe("magnitude >= 5")
        seat.node.publish(*(quake(n) for n in range(LOG_ROWS)))
        log = seat.app.attachment.log
        await seat.until(lambda: len(log.rows) == LOG_ROWS)
        stream(seat).focus()
        await seat.press("up")
        selected = stream(seat).selected
        assert selected is not None
        for start in range(LOG_ROWS, 2 * LOG_ROWS, 500):
            seat.node.publish(*(quake(n) for n in range(start, start + 500)))
            await seat.until(lambda end=start: log.paused or (len(log.view) and
                             log.view[-1].event.attributes["id"] == f"e{end + 499}"))  # fmt: skip
        assert log.paused
        assert stream(seat).selected is selected
        await seat.sees("‖ PAUSED", "Space resumes")

    play(scenario)


def test_why_asks_once_and_shows_path_pivot_and_verdicts() -> None:
    async def scenario(seat: Seat) -> None:
        await with_events(seat, 3)
        await seat.press("w")
        await seat.sees(
            "✓ delivered to strong",
            "pivot magnitude  virtual node [4 … 6.5)  2 hops",
            "✓ magnitude >= 5   saw 6.1",
            "✗ place LIKE '%a%'   saw 'Peru'",
            "? depth < 3   saw NULL",
            "walk found the tree of magnitude at 2222",
        )
        assert [c.event for c in seat.node.asked(Why)] == [f"{ME}.1.3"]
        stream(seat).focus()
        await seat.press("up")
        await seat.until(lambda: len(seat.node.asked(Why)) == 2, "the next event is asked about")

    play(scenario)


def test_why_of_a_forgotten_event_says_so() -> None:
    async def scenario(seat: Seat) -> None:
        seat.node.sequence = 665
        await with_events(seat, 1)
        await seat.press("w")
        await seat.sees("The node cannot explain it: this event is forgotten")

    play(scenario)


def test_details_show_all_attributes_and_the_payload() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.subscribe("magnitude >= 5")
        attributes = quake(1, 5.5, place="line\nbreak\x1b[2J", tsunami=None, felt=True)
        seat.node.publish(attributes, payload=b'{"a": [1, 2]}')
        await seat.until(lambda: len(seat.app.attachment.log.view) == 1)
        stream(seat).focus()
        await seat.press("enter")
        seat.app.screen.query_one(DetailPane).styles.height = 30
        await seat.sees("NULL", "TRUE", r"line\nbreak\x1b[2J", "13 bytes", '"a": [')
        assert "\x1b" not in seat.text

    play(scenario)


def test_choosing_a_subscription_shows_its_events_with_its_columns() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.subscribe("magnitude >= 5", "strong")
        await seat.subscribe("depth < 10", "shallow")
        seat.node.publish(quake(1, 6, depth=50), quake(2, 2, depth=5), quake(3, 6, depth=5))
        await seat.sees("Events of shallow", "2 of 3 events")
        assert "e1" not in seat.text
        await seat.press("home")
        await seat.sees("strong, shallow")
        header = next(line for line in seat.text.splitlines() if "time" in line)
        assert header.index("magnitude") < header.index("depth") < header.index("also")

    play(scenario)


def test_remove_and_pause_end_the_subscription_at_the_node() -> None:
    async def scenario(seat: Seat) -> None:
        key = await seat.subscribe("magnitude >= 5")
        await seat.press("p")
        await seat.until(lambda: not seat.node.selectors(), "paused at the node")
        await seat.sees("‖ s1", "paused")
        await seat.press("p")
        await seat.until(lambda: seat.node.selectors() == ["magnitude >= 5"], "resumed")
        await seat.until(
            lambda: seat.app.attachment.subscriptions[key].state is SubscriptionState.LIVE
        )
        await seat.press("d")
        await seat.until(lambda: not seat.node.selectors(), "removed at the node")
        await seat.sees("No subscriptions yet.")
        assert len(seat.node.asked(Unsubscribe)) == 2

    play(scenario)


def test_edit_replaces_the_selector() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.subscribe("magnitude >= 5", "mine")
        await seat.press("e")
        await seat.type_selector("0")
        await seat.press("enter")
        await seat.until(lambda: seat.node.selectors() == ["magnitude >= 50"])
        assert [s.name for s in seat.app.attachment.subscriptions.values()] == ["mine"]

    play(scenario)


def test_a_node_that_goes_is_told_and_subscriptions_are_made_again() -> None:
    async def scenario(seat: Seat) -> None:
        await with_events(seat, 2)
        seat.node.go_away()
        await seat.sees("⚠ The node is gone", "✗ gone", "◌ strong")
        assert "e1" in seat.text, "what came stays readable"
        seat.node.come_back()
        await seat.until(lambda: seat.node.selectors() == ["magnitude >= 5"], "made again")
        await seat.sees("● ready", "● strong")
        assert not seat.app.screen.query_one(Banner).display
        seat.node.publish(quake(9, place="after the return"))
        await seat.sees("after the return")

    play(scenario)


def test_a_node_that_is_not_there_yet_is_waited_for() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.sees("⚠ The node is gone: no node runs at /nowhere", "not connected")
        seat.node.come_back()
        await seat.sees("fir 11111111", "● ready")

    play(scenario, up=False)


def test_a_small_terminal_shows_list_stream_and_on_demand_details() -> None:
    async def scenario(seat: Seat) -> None:
        await with_events(seat)
        lines = seat.text.splitlines()
        assert len(lines) == 24
        assert all(len(line) <= 80 for line in lines)
        assert not seat.app.screen.query_one(DetailPane).display
        await seat.sees("● strong", "e29", "? Help", "q Quit", "▲ canopy")
        await seat.press("w")
        await seat.sees("✓ delivered to strong", "e29")
        await seat.press("escape")
        await seat.until(lambda: not seat.app.screen.query_one(DetailPane).display)

    play(scenario, size=(80, 24))


def test_nothing_is_drawn_while_nothing_comes() -> None:
    async def scenario(seat: Seat) -> None:
        await with_events(seat, 2)
        before, ticks = stream(seat).updates, seat.app.ticks
        await seat.until(lambda: seat.app.ticks > ticks + 5)
        assert stream(seat).updates == before

    play(scenario)
