"""Keys: fast typing, the focus, the palette's order, and which key quits."""

from __future__ import annotations

from textual.widgets import Input

from canopy.tui.screens.subscribe import SubscribeDialog
from canopy.tui.widgets.detail import DetailPane
from canopy.tui.widgets.event_stream import EventStream
from canopy.tui.widgets.filter_bar import FilterBar
from canopy.tui.widgets.selector_input import SelectorInput
from canopy.tui.widgets.subscription_list import SubscriptionList
from overlay.client import Subscribe
from tests.canopy.tui.tui_pilot import Rig, play


def typed(rig: Rig) -> str:
    return rig.app.screen.query_one(SelectorInput).value


async def opened(rig: Rig) -> None:
    """The dialog, as a person who waits for it sees it."""
    await rig.until(lambda: rig.app.attachment.up)
    await rig.press("a")
    await rig.until(lambda: rig.app.screen.query("SelectorInput Input"), "the dialog")
    await rig.sees("▸ magnitude")


def test_tab_right_after_a_word_completes_that_word() -> None:
    async def scenario(rig: Rig) -> None:
        await opened(rig)
        rig.type_fast("pla", "tab")
        rig.type_fast("= 1 AND tsu", "tab")
        await rig.until(lambda: typed(rig) == "place = 1 AND tsunami ", "all that was typed")

    play(scenario)


def test_what_is_typed_with_the_key_that_opens_the_dialog_is_not_lost() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5", "strong")
        rig.type_fast("adepth > 3")
        await rig.sees("✓ a valid selector on depth")
        assert not rig.app.screen.query_one("#ok").disabled
        await rig.press("escape")
        rig.type_fast("adpla")
        await rig.until(lambda: isinstance(rig.app.screen, SubscribeDialog))
        await rig.until(lambda: typed(rig), "what was typed")
        assert typed(rig) == "dpla"
        assert len(rig.app.attachment.subscriptions) == 1, "d was a letter"

    play(scenario)


def test_what_is_typed_with_the_key_of_the_filter_is_filtered() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5", "strong")
        rig.type_fast("/dac")
        await rig.until(lambda: rig.app.screen.query_one(FilterBar).words == "dac")
        assert len(rig.app.attachment.subscriptions) == 1

    play(scenario)


def test_enter_right_after_the_selector_subscribes_to_all_of_it() -> None:
    async def scenario(rig: Rig) -> None:
        await opened(rig)
        rig.type_fast("magnitude > 5 AND place = 'x'", "enter")
        await rig.until(lambda: rig.node.asked(Subscribe), "subscribed")
        (made,) = rig.app.attachment.subscriptions.values()
        assert made.selector == "magnitude > 5 AND place = 'x'"
        assert made.attributes == ("magnitude", "place")

    play(scenario)


def test_tab_goes_through_panes_only_and_escape_leaves_the_filter() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5", "strong")
        screen = rig.app.screen
        kinds = set()
        for _ in range(8):
            assert not isinstance(rig.app.focused, Input)
            kinds.add(type(rig.app.focused))
            await rig.press("tab")
        assert {SubscriptionList, EventStream} <= kinds
        await rig.press("slash")
        assert rig.app.focused is screen.query_one(FilterBar).query_one(Input)
        await rig.press("q", "a")
        assert screen.query_one(FilterBar).words == "qa", "letters, no commands"
        await rig.press("escape")
        assert isinstance(rig.app.focused, EventStream)
        assert not screen.query_one(FilterBar).words
        await rig.press("shift+tab")
        assert isinstance(rig.app.focused, SubscriptionList)

    play(scenario)


def test_the_pane_with_the_focus_has_another_border() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        panes = [rig.app.screen.query_one(kind) for kind in (SubscriptionList, EventStream)]
        for focused in panes:
            focused.focus()
            await rig.pilot.pause()
            for pane in [*panes, rig.app.screen.query_one(DetailPane)]:
                assert (pane.styles.border.top[0] == "heavy") == (pane is focused)

    play(scenario)


def test_ctrl_c_names_the_key_that_the_footer_names() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.press("ctrl+c")
        await rig.sees("Press q to quit", "q Quit")
        assert "ctrl+q" not in rig.text.lower()

    play(scenario)


def test_the_palette_begins_with_what_is_wanted_most_and_hides_cursor_keys() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        titles = [c.title for c in rig.app.get_system_commands(rig.app.screen)]
        assert titles[0] == "Add a subscription"
        assert not [title for title in titles if "page" in title or "Columns to" in title]
        assert titles.index("Publish a test event") < titles.index("Start telemetry")
        await rig.press("ctrl+p")
        await rig.sees("Add a subscription", "Show only events that contain these words")
        first = min(
            (n, title)
            for title in titles
            for n, line in enumerate(rig.text.splitlines())
            if title in line
        )
        assert first[1] == "Add a subscription"

    play(scenario)
