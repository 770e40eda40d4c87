"""The screen of streams: shards, leaders, lag, consumers; rows live and from a place on."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from canopy.tui.screens.streams import ReplayDialog
from canopy.tui.widgets.event_stream import EventStream
from overlay.client import BeginReading, GetStreams
from overlay.stream_client import WhyRow
from tests.canopy.tui.tui_pilot import Rig, play


async def opened(rig: Rig) -> None:
    await rig.until(lambda: rig.app.attachment.up)
    await rig.press("3")
    await rig.until(lambda: getattr(rig.app.main_screen, "TITLE", "") == "streams")
    await rig.sees("2 streams", "orders", "quakes")


def offsets(rig: Rig) -> list[object]:
    view = rig.app.screen.query_one("#rows", EventStream).log_of_events.view
    return [row.event.attributes["#"] for row in view]


@pytest.mark.parametrize("size", [(130, 44), (80, 24)])
def test_shards_leaders_lag_and_consumers_are_shown(size: tuple[int, int]) -> None:
    async def scenario(rig: Rig) -> None:
        await opened(rig)
        await rig.sees("Shards of orders", "★", "leads", "0…4", "✗ damaged", "✗ silent")
        await rig.sees("billing", "⋔ mailers")
        if size[0] > 100:
            await rig.sees("n > 1", "magnitude > 6", "n > 2: 1 leased, 1 member, ✗ 4 dead")
        await rig.press("down")
        await rig.sees("Shards of quakes")
        assert rig.node.asked(GetStreams)

    play(scenario, size=size)


def test_keys_ttl_and_dead_letters_are_shown() -> None:
    async def scenario(rig: Rig) -> None:
        await opened(rig)
        await rig.sees("key", "ttl", "customer", "2 h", "keys", "the newest row of each customer")
        await rig.sees("rows are of use for 2 h", "that are cut off take rows")
        await rig.press("d")
        await rig.sees("Dead letters of mailers", "0/2: the lease ran out, 5 deliveries")

    play(scenario, size=(230, 44))


def test_a_stream_is_followed_from_now_on_until_it_is_stopped() -> None:
    async def scenario(rig: Rig) -> None:
        await opened(rig)
        await rig.press("l")
        await rig.sees("Rows of orders", "from offset 5")
        with rig.node.lock:
            rig.node.rows.append({"n": 77, "colour": "blue"})
            rig.node.lock.notify_all()
        await rig.sees("colour=blue")
        assert offsets(rig) == [5]
        await rig.press("s")
        await rig.sees("stopped")
        with rig.node.lock:
            rig.node.rows.append({"n": 78, "colour": "red"})
            rig.node.lock.notify_all()
        await rig.press("l")
        await rig.sees("from offset 7")
        assert offsets(rig) == []

    play(scenario)


def test_a_stream_is_replayed_from_a_place_by_content() -> None:
    async def scenario(rig: Rig) -> None:
        await opened(rig)
        await rig.press("down", "p")
        await rig.until(lambda: isinstance(rig.app.screen, ReplayDialog), "the dialog")
        dialog = rig.app.screen
        dialog.query_one("#from", Input).value = "yesterday"
        await rig.sees("✗ first, new, keys, an offset")
        dialog.query_one("#from", Input).value = "2020-01-01T00:00"
        dialog.query_one("#selector", Input).value = "n >"
        await rig.until(lambda: dialog.query_one("#ok").disabled)
        dialog.query_one("#from", Input).value = "1"
        dialog.query_one("#selector", Input).value = "n <> 3"
        await rig.until(lambda: not dialog.query_one("#ok").disabled, "what was typed is valid")
        await rig.press("enter")
        await rig.sees("Rows of quakes where n <> 3", "from offset 1")
        await rig.until(lambda: offsets(rig) == [1, 2, 4], "the rows")
        begun = rig.node.asked(BeginReading)[-1]
        assert isinstance(begun, BeginReading)
        assert (begun.stream, begun.selector, begun.start) == ("quakes", "n <> 3", "offset")

    play(scenario)


def test_what_became_of_a_row_is_asked() -> None:
    async def scenario(rig: Rig) -> None:
        await opened(rig)
        await rig.press("l")
        await rig.sees("from offset 5")
        with rig.node.lock:
            rig.node.rows.append({"n": 77})
            rig.node.lock.notify_all()
        await rig.until(lambda: offsets(rig) == [5])
        await rig.press("w")
        await rig.until(lambda: rig.node.asked(WhyRow))
        assert [(c.stream, c.shard, c.offset) for c in rig.node.asked(WhyRow)] == [("orders", 0, 5)]  # type: ignore[attr-defined]
        await rig.sees("row 5: kept", "billing: read")

    play(scenario)


def test_a_reading_goes_on_when_the_node_comes_back() -> None:
    async def scenario(rig: Rig) -> None:
        await opened(rig)
        await rig.press("l")
        await rig.sees("from offset 5")
        rig.node.go_away()
        with rig.node.lock:
            rig.node.rows += [{"n": 100}, {"n": 101}]
        await rig.until(lambda: not rig.app.attachment.up)
        rig.node.come_back()
        await rig.until(lambda: offsets(rig) == [5, 6], "rows of the time without a node")

    play(scenario)
