"""Completion in the dialog, publishing, help, palette, themes, and the way in and out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Input, TextArea

from canopy.tui.app import UNREACHABLE, USAGE, run
from canopy.tui.screens.help import HelpScreen
from canopy.tui.screens.live import LiveScreen
from canopy.tui.screens.overlay import OverlayScreen
from canopy.tui.screens.publish import PublishDialog
from canopy.tui.screens.subscribe import SubscribeDialog
from canopy.tui.widgets.event_stream import EventStream
from canopy.tui.widgets.selector_input import SelectorInput
from overlay.client import Attributes, Failed, Feed, Publish, Subscribe
from tests.canopy.tui.tui_fake_node import ME
from tests.canopy.tui.tui_pilot import TRIES, Seat, play, quake


def typed(seat: Seat) -> str:
    return seat.app.screen.query_one(SelectorInput).value


def test_tab_completes_names_words_and_values_seen() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.subscribe("magnitude >= 5")
        seat.node.publish(quake(1, place="Peru"), quake(2, place="Chile's coast"))
        await seat.until(lambda: len(seat.app.attachment.log.rows) == 2)
        await seat.press("a")
        await seat.type_selector("pl")
        await seat.sees("▸ place")
        await seat.press("tab")
        assert typed(seat) == "place "
        await seat.press("tab")
        assert typed(seat) == "place = "
        await seat.sees("▸ 'Chile''s coast'", "'Peru'")
        await seat.press("down", "tab")
        assert typed(seat) == "place = 'Peru' "
        await seat.press("tab")
        await seat.type_selector("mag")
        await seat.press("tab")
        assert typed(seat) == "place = 'Peru' AND magnitude "

    play(scenario)


def test_without_a_candidate_tab_goes_on() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.until(lambda: seat.app.attachment.up)
        await seat.press("a")
        await seat.type_selector("magnitude >= 5")
        await seat.press("tab")
        assert seat.app.focused is seat.app.screen.query_one("#name", Input)
        await seat.press("escape")
        assert isinstance(seat.app.screen, LiveScreen)

    play(scenario)


def test_a_test_event_is_checked_published_and_told() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.subscribe("magnitude >= 5")
        await seat.press("n")
        area = seat.app.screen.query_one(TextArea)
        area.text = '{"magnitude": NaN}'
        await seat.sees("✗ NaN is not a value")
        await seat.press("ctrl+s")
        assert not seat.node.asked(Publish)
        area.text = '{"magnitude": 5.75, "parts": [1, 2]}'
        await seat.sees("✓ an event of 3 attributes and a payload")
        await seat.press("ctrl+s")
        await seat.sees(f"✓ published as {ME}.1.1")
        (command,) = seat.node.asked(Publish)
        assert command.receipt
        assert command.events[0].attributes["type"] == "event"
        assert command.events[0].payload == b'{"parts": [1, 2]}'
        await seat.press("escape")
        await seat.sees("5.75")

    play(scenario)


def test_help_opens_and_closes_and_fits_a_small_terminal() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.press("f1")
        assert isinstance(seat.app.screen, HelpScreen)
        await seat.sees("command palette", "Esc close")
        await seat.press("escape")
        assert isinstance(seat.app.screen, LiveScreen)

    play(scenario, size=(80, 24))


def test_the_palette_has_every_action_with_its_key() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.until(lambda: seat.app.attachment.up)
        commands = {c.title: c for c in seat.app.get_system_commands(seat.app.screen)}
        keys = {command.help for command in commands.values()}
        assert {"Add, key a", "Filter, key /", "Hold, key space", "Why, key w", "Clear, key c",
                "New event, key n", "Remove, key d", "Pause, key p", "Edit, key e",
                "Follow, key end", "Overlay, key o", "Help, key ?"} <= keys  # fmt: skip
        assert {"Details", "Quit", "Light or dark"} <= {key.split(",")[0] for key in keys}
        commands["Start telemetry"].callback()
        await seat.until(lambda: seat.node.asked(Feed))
        assert seat.node.asked(Feed)[0].period > 0
        await seat.press("ctrl+p")
        await seat.pilot.press(*"pause the li")
        await seat.sees("Pause the list, or resume it")
        await seat.press("enter")
        await seat.until(lambda: seat.app.attachment.log.paused, "the palette's action")

    play(scenario)


def test_the_theme_changes_at_a_key() -> None:
    async def scenario(seat: Seat) -> None:
        assert seat.app.current_theme.dark
        await seat.press("t")
        assert not seat.app.current_theme.dark

    play(scenario)


def test_keys_go_between_the_screens_and_out() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.press("o")
        assert isinstance(seat.app.screen, OverlayScreen)
        await seat.press("1")
        assert isinstance(seat.app.screen, LiveScreen)
        key = await seat.subscribe("magnitude >= 5")
        assert key == 1
        await seat.press("q")
        await seat.until(lambda: not seat.app.is_running)

    play(scenario)


def test_answers_that_come_before_and_after_a_dialog_harm_nothing() -> None:
    async def scenario(seat: Seat) -> None:
        attachment = seat.app.attachment
        await seat.until(lambda: attachment.up, "the node")
        wanted, publishing = SubscribeDialog(attachment), PublishDialog(attachment, None)
        dialogs = [wanted, publishing]
        told = [
            lambda: wanted._on_attributes(Attributes(1, ("magnitude",))),
            lambda: publishing._on_published(Failed(1, "unknown", "no")),
        ]
        for dialog, tell in zip(dialogs, told, strict=True):
            if dialog is wanted:
                tell()  # not composed yet
            await seat.app.push_screen(dialog)
            await seat.until(lambda dialog=dialog: dialog.is_mounted, "the dialog")
            # What taking down looks like in between: the dialog is there, its parts are not.
            await dialog.query("*").remove()
            tell()
            await dialog.dismiss(None)
            tell()
        await seat.press("o")
        assert isinstance(seat.app.screen, OverlayScreen)

    play(scenario)


def test_markup_of_others_is_text() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.subscribe("magnitude >= 5", "[red]bold[/]")
        seat.node.publish(quake(1, place="[link=x]y[/nothing]"))
        await seat.sees("[red]bold[/]", "[link=x]y[/nothing]")
        await seat.press("d")
        await seat.sees("removed [red]bold[/]")

    play(scenario)


def test_no_node_is_told_in_one_line_with_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(str(tmp_path / "nothing")) == UNREACHABLE
    error = capsys.readouterr().err
    assert "nothing" in error
    assert "Traceback" not in error


def test_without_a_terminal_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None) == USAGE
    assert "use `canopy sub`" in capsys.readouterr().err


def test_an_own_fault_is_one_line() -> None:
    async def scenario(seat: Seat) -> None:
        seat.app.tracebacks = False

        def fault() -> None:
            raise RuntimeError("broken\nin two lines")

        seat.app.call_later(fault)
        for _ in range(TRIES):  # not by the pilot, which waits for an app that goes on
            if seat.app.return_code is not None:
                break
            await asyncio.sleep(0.02)
        assert seat.app.return_code == 1
        (said,) = seat.app._exit_renderables
        assert str(said) == (
            "canopy tui: internal error, RuntimeError: broken (CANOPY_DEBUG=1 shows more)"
        )

    play(scenario)


def test_a_name_that_nobody_has_seen_is_pointed_out() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.until(lambda: seat.app.attachment.up)
        await seat.press("a")
        await seat.type_selector("magnitud > 5 AND place = 'x'")
        await seat.sees("✓ a valid selector on magnitud, place  (not seen yet: magnitud)")

    play(scenario)


@pytest.mark.parametrize("dark", [True, False])
def test_the_list_is_readable_in_both_themes(dark: bool) -> None:
    async def scenario(seat: Seat) -> None:
        if not dark:
            await seat.press("t")
        await seat.pilot.pause()
        stream = seat.app.screen.query_one(EventStream)
        for name in sorted(EventStream.COMPONENT_CLASSES):
            style = stream.get_component_rich_style(name)
            assert style.color is not None
            assert style.bgcolor is not None
            ink, paper = style.color.get_truecolor(), style.bgcolor.get_truecolor()
            assert contrast(ink, paper) >= 4.5, f"{name}: WCAG AA"

    play(scenario)


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """WCAG 2.1's contrast ratio of two colours."""

    def luminance(colour: tuple[int, int, int]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
                  for c in (part / 255 for part in colour)]  # fmt: skip
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dim, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dim + 0.05)


def test_a_latency_level_goes_with_the_subscription() -> None:
    async def scenario(seat: Seat) -> None:
        await seat.until(lambda: seat.app.attachment.up)
        await seat.press("a")
        await seat.type_selector("magnitude >= 5")
        seat.app.screen.query_one("#level", Input).focus()
        await seat.press("7", "2", "enter")  # there is no level 7
        await seat.until(lambda: len(seat.node.asked(Subscribe)) == 1)
        assert seat.node.asked(Subscribe)[0].latency_level == 2
        (made,) = seat.app.attachment.subscriptions.values()
        assert made.level == 2

    play(scenario)
