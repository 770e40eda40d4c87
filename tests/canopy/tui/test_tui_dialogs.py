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
from tests.canopy.tui.tui_pilot import TRIES, Rig, play, quake


def typed(rig: Rig) -> str:
    return rig.app.screen.query_one(SelectorInput).value


def test_tab_completes_names_words_and_values_seen() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5")
        rig.node.publish(quake(1, place="Peru"), quake(2, place="Chile's coast"))
        await rig.until(lambda: len(rig.app.attachment.log.rows) == 2)
        await rig.press("a")
        await rig.type_selector("pl")
        await rig.sees("▸ place")
        await rig.press("tab")
        assert typed(rig) == "place "
        await rig.press("tab")
        assert typed(rig) == "place = "
        await rig.sees("▸ 'Chile''s coast'", "'Peru'")
        await rig.press("down", "tab")
        assert typed(rig) == "place = 'Peru' "
        await rig.press("tab")
        await rig.type_selector("mag")
        await rig.press("tab")
        assert typed(rig) == "place = 'Peru' AND magnitude "

    play(scenario)


def test_without_a_candidate_tab_goes_on() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        await rig.press("a")
        await rig.type_selector("magnitude >= 5")
        await rig.press("tab")
        assert rig.app.focused is rig.app.screen.query_one("#name", Input)
        await rig.press("escape")
        assert isinstance(rig.app.screen, LiveScreen)

    play(scenario)


def test_a_test_event_is_checked_published_and_reported() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5")
        await rig.press("n")
        area = rig.app.screen.query_one(TextArea)
        area.text = '{"magnitude": NaN}'
        await rig.sees('✗ "magnitude": NaN is no value')
        await rig.press("ctrl+s")
        assert not rig.node.asked(Publish)
        area.text = '{"magnitude": 5.75, "parts": [1, 2]}'
        await rig.sees("✓ an event of 3 attributes and a payload")
        await rig.press("ctrl+s")
        await rig.sees(f"✓ published as {ME}.1.1")
        (command,) = rig.node.asked(Publish)
        assert command.receipt
        assert command.events[0].attributes["type"] == "event"
        assert command.events[0].payload == b'{"parts":[1,2]}'
        await rig.press("escape")
        await rig.sees("5.75")

    play(scenario)


def test_help_opens_and_closes_and_fits_a_small_terminal() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.press("f1")
        assert isinstance(rig.app.screen, HelpScreen)
        await rig.sees("command palette", "Esc close")
        await rig.press("escape")
        assert isinstance(rig.app.screen, LiveScreen)

    play(scenario, size=(80, 24))


def test_a_picture_of_the_screen_is_saved_into_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        (save,) = [
            command.callback
            for command in rig.app.get_system_commands(rig.app.screen)
            if command.title == "Save a picture of the screen"
        ]
        save()
        (picture,) = tmp_path.glob("canopy-*.svg")
        assert "</svg>" in picture.read_text(encoding="utf-8")
        monkeypatch.setattr("time.strftime", lambda form: picture.name)
        save()  # within the same second
        await rig.sees(f"saved {picture.name}", "File exists")

    play(scenario, size=(60, 24))


def test_the_palette_has_every_action_with_its_key() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        commands = {c.title: c for c in rig.app.get_system_commands(rig.app.screen)}
        keys = {command.help for command in commands.values()}
        assert {"Add, key a", "Filter, key /", "Hold, key space", "Why, key w", "Clear, key c",
                "New event, key n", "Remove, key d", "Pause, key p", "Edit, key e",
                "Follow, key end", "Overlay, key o", "Help, key ?"} <= keys  # fmt: skip
        assert {"Details", "Quit", "Light or dark"} <= {key.split(",")[0] for key in keys}
        commands["Start telemetry"].callback()
        await rig.until(lambda: rig.node.asked(Feed))
        assert rig.node.asked(Feed)[0].period > 0
        button = rig.app.screen.query_one("#telemetry")
        assert button.display
        await rig.pilot.click("#telemetry")
        await rig.until(lambda: rig.node.selectors() == ["sample > 0"])
        assert len(rig.node.asked(Feed)) == 2
        assert not button.display
        await rig.press("ctrl+p")
        await rig.pilot.press(*"pause the li")
        await rig.sees("Pause the list, or resume it")
        await rig.press("enter")
        await rig.until(lambda: rig.app.attachment.log.paused, "the palette's action")

    play(scenario)


def test_the_theme_changes_at_a_key() -> None:
    async def scenario(rig: Rig) -> None:
        assert rig.app.current_theme.dark
        await rig.press("t")
        assert not rig.app.current_theme.dark

    play(scenario)


def test_keys_go_between_the_screens_and_out() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.press("o")
        assert isinstance(rig.app.screen, OverlayScreen)
        await rig.press("1")
        assert isinstance(rig.app.screen, LiveScreen)
        key = await rig.subscribe("magnitude >= 5")
        assert key == 1
        await rig.press("q")
        await rig.until(lambda: not rig.app.is_running)

    play(scenario)


def test_answers_that_come_before_and_after_a_dialog_harm_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        attachment = rig.app.attachment
        await rig.until(lambda: attachment.up, "the node")
        wanted, publishing = SubscribeDialog(attachment), PublishDialog(attachment, None)
        dialogs = [wanted, publishing]
        messages = [
            lambda: wanted._on_attributes(Attributes(1, ("magnitude",))),
            lambda: publishing._on_published(Failed(1, "unknown", "no")),
        ]
        for dialog, tell in zip(dialogs, messages, strict=True):
            if dialog is wanted:
                tell()  # not composed yet
            await rig.app.push_screen(dialog)
            await rig.until(lambda dialog=dialog: dialog.is_mounted, "the dialog")
            # What taking down looks like in between: the dialog is there, its parts are not.
            await dialog.query("*").remove()
            tell()
            await dialog.dismiss(None)
            tell()
        await rig.press("o")
        assert isinstance(rig.app.screen, OverlayScreen)

    play(scenario)


def test_markup_of_others_is_text() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.subscribe("magnitude >= 5", "[red]bold[/]")
        rig.node.publish(quake(1, place="[link=x]y[/nothing]"))
        await rig.sees("[red]bold[/]", "[link=x]y[/nothing]")
        await rig.press("d")
        await rig.sees("removed [red]bold[/]")

    play(scenario)


def test_an_absent_node_is_reported_in_one_line_with_its_exit_code(
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
    async def scenario(rig: Rig) -> None:
        rig.app.tracebacks = False

        def fault() -> None:
            raise RuntimeError("broken\nin two lines")

        rig.app.call_later(fault)
        for _ in range(TRIES):  # not by the pilot, which waits for an app that goes on
            if rig.app.return_code is not None:
                break
            await asyncio.sleep(0.02)
        assert rig.app.return_code == 1
        (said,) = rig.app._exit_renderables
        assert str(said) == (
            "canopy tui: internal error, RuntimeError: broken (CANOPY_DEBUG=1 shows more)"
        )

    play(scenario)


def test_an_attribute_name_that_was_never_seen_is_pointed_out() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        await rig.press("a")
        await rig.type_selector("magnitud > 5 AND place = 'x'")
        await rig.sees("✓ a valid selector on magnitud, place  (not seen yet: magnitud)")

    play(scenario)


@pytest.mark.parametrize("dark", [True, False])
def test_the_list_is_readable_in_both_themes(dark: bool) -> None:
    async def scenario(rig: Rig) -> None:
        if not dark:
            await rig.press("t")
        await rig.pilot.pause()
        stream = rig.app.screen.query_one(EventStream)
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
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.up)
        await rig.press("a")
        await rig.type_selector("magnitude >= 5")
        rig.app.screen.query_one("#level", Input).focus()
        await rig.press("7", "2", "enter")  # there is no level 7
        await rig.until(lambda: len(rig.node.asked(Subscribe)) == 1)
        assert rig.node.asked(Subscribe)[0].latency_level == 2
        (made,) = rig.app.attachment.subscriptions.values()
        assert made.level == 2

    play(scenario)
