"""Faults in what a person at a terminal sees: the command line and the terminal UI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.mutations.planting import fault, replace, replace_constant
from canopy.cli.streams import tables
from canopy.client.asynchronous import _AsyncConsumer
from canopy.client.hints import hints, never_true
from canopy.feeds import Item, table
from canopy.feeds.formats import with_ids
from canopy.feeds.geojson import is_collection
from canopy.tui.model.attachment import Change, UndoStack
from canopy.tui.model.export import write_new
from canopy.tui.model.log import Cleared, EventLog, Row, SortOrder
from canopy.tui.model.ring import members
from canopy.tui.model.saved import Loaded, SavedSubscriptions
from canopy.tui.widgets.event_stream import EventStream
from canopy.tui.widgets.filter_bar import FilterBar
from canopy.tui.widgets.selector_input import SelectorInput
from matching import Predicate
from overlay.info import ClusterInfo

KEYS = "tests/canopy/tui/test_tui_keys.py"
UNDO = "tests/canopy/tui/test_tui_undo.py"
LIVE = "tests/canopy/tui/test_tui_live.py"
OUT = "tests/canopy/tui/test_tui_events_out.py"
OVERLAY = "tests/canopy/tui/test_tui_overlay.py"


@fault(
    "commands: warnings",
    "tests/canopy/cli/test_cli_sub.py",
    "test_an_odd_selector_is_subscribed_with_a_warning",
)
def unseen_attributes_in_silence() -> None:
    """What a selector names and no event has had is not pointed out."""

    def _hints(predicate: Predicate, seen: Sequence[str]) -> tuple[str, ...]:
        return never_true(predicate)

    replace(hints, _hints)


@fault(
    "commands: events",
    "tests/canopy/cli/test_cli_pub.py",
    "TestPub::test_events_without_an_id_get_another_one_in_each_feed",
)
def feeds_share_ids() -> None:
    """Events without an id get their place in the feed as id, as those of every other feed do."""
    original = with_ids

    def _with_ids(items: Iterator[Item], prefix: str) -> Iterator[Item]:
        return original(items, "")

    replace(with_ids, _with_ids)


@fault(
    "commands: events",
    "tests/canopy/feeds/test_feeds_formats.py",
    "TestTables::test_a_field_may_be_as_long_as_a_line",
)
def short_fields_in_tables() -> None:
    """A row of a table with a field over 128 KiB is refused."""
    replace_constant(table, "EVENT_LIMIT", 128 * 1024)


@fault(
    "commands: events",
    "tests/canopy/feeds/test_feeds_detection.py",
    "test_a_feed_is_what_it_is_however_it_comes",
)
def collection_known_by_its_beginning() -> None:
    """A collection of GeoJSON whose type is not its first member is one event."""
    original = is_collection

    def _is_collection(value: Any) -> bool:
        return original(value) and next(iter(value)) == "type"

    replace(is_collection, _is_collection)


@fault(
    "commands: events",
    "tests/canopy/cli/test_cli_streams.py",
    "test_no_spreadsheet_calculates_a_text_and_no_terminal_acts_on_it",
)
def formulas_in_tables() -> None:
    """A text that a spreadsheet calculates is exported as it is."""

    def _harmless(text: str) -> str:
        return tables.CONTROL.sub("", text)

    replace(tables.harmless, _harmless)


@fault("terminal: completion", KEYS, "test_tab_right_after_a_word_completes_that_word")
def completion_of_an_earlier_text() -> None:
    """Tab takes the completion that was proposed for an earlier text."""

    def candidate(self: SelectorInput, what: str) -> bool:
        found = self._completion.candidates
        if found:
            self._line.replace(f"{found[0]} ", self._completion.start, self._line.cursor_position)
        return bool(found)

    replace(SelectorInput.candidate, candidate)


@fault("terminal: focus", KEYS, "test_tab_goes_through_panes_only_and_escape_leaves_the_filter")
def filter_stays_in_the_order_of_focus() -> None:
    """The filter can be reached by Tab once it had the focus."""

    def on_descendant_blur(self: FilterBar) -> None:
        pass

    replace(FilterBar.on_descendant_blur, on_descendant_blur)


@fault(
    "terminal: undo", UNDO, "test_a_removed_subscription_comes_back_in_its_place_with_its_events"
)
def nothing_to_undo() -> None:
    """What was removed is forgotten."""

    def push(self: UndoStack, change: Change) -> None:
        pass

    replace(UndoStack.push, push)


@fault("terminal: undo", UNDO, "test_a_restored_log_keeps_its_bound_and_each_event_once")
def restored_after_what_came_since() -> None:
    """Events that were cleared come back after those that came since."""
    original = EventLog.restore

    def restore(self: EventLog, cleared: Cleared) -> None:
        since = self.clear()
        original(self, cleared)
        original(self, Cleared([], []))
        self._rows.extend(since.rows)
        self._rebuild()

    replace(original, restore)


@fault("terminal: filter", LIVE, "test_the_filter_keeps_only_events_with_its_words")
def filter_shows_all() -> None:
    """The words of the filter hide no event."""

    def _shows(self: EventLog, row: Row) -> bool:
        return self._only is None or self._only in row.deliveries

    replace(EventLog._shows, _shows)


@fault("terminal: hold", LIVE, "test_a_hold_keeps_the_list_still_and_loses_nothing")
def held_list_moves() -> None:
    """New events appear in a list that is held."""

    def pause(self: EventLog, paused: bool) -> None:
        self.paused = False

    replace(EventLog.pause, pause)


@fault("terminal: sorting", OUT, "test_asking_again_turns_the_order_and_then_ends_it")
def sorted_for_ever() -> None:
    """Asking for the order of a column once more does not turn or end it."""

    def after(order: SortOrder | None, attribute: str) -> SortOrder | None:
        return SortOrder(attribute)

    replace(SortOrder.after, after)


@fault("terminal: saved events", OUT, "test_events_are_saved_to_new_files_only")
def saved_over_another_file() -> None:
    """Events are saved over a file that is there."""

    def _write_new(path: Path, lines: Sequence[str]) -> None:
        path.write_text("".join(lines), encoding="utf-8")

    replace(write_new, _write_new)


@fault("terminal: ring", OVERLAY, "test_members_are_named_once_each")
def members_named_twice() -> None:
    """A member with two roles is listed for each of them."""
    original = members

    def _members(cluster: ClusterInfo) -> list[tuple[str, str]]:
        found = original(cluster)
        return found + found[:1]

    replace(members, _members)


@fault("terminal: saved subscriptions", UNDO, "test_a_damaged_file_is_put_aside_with_a_notice")
def damaged_file_in_silence() -> None:
    """A damaged file of saved subscriptions is overwritten without a word."""
    original = SavedSubscriptions.load

    def load(self: SavedSubscriptions) -> Loaded:
        content = self.path.read_bytes() if self.path.exists() else None
        found = original(self)
        if content is not None:
            self.path.write_bytes(content)
        return Loaded(found.subscriptions)

    replace(original, load)


@fault(
    "terminal: mouse", "tests/canopy/tui/test_tui_events_out.py", "test_a_click_on_a_title_sorts"
)
def click_counted_with_the_border() -> None:
    """A click selects the event below the one that was clicked."""

    def on_click(self: EventStream, event: Any) -> None:
        self._go(self.log_of_events.first + self.scroll_offset.y + event.y - 1)

    replace(EventStream.on_click, on_click)


@fault(
    "clients: subscriptions",
    "tests/canopy/client/test_client_steps.py",
    "test_a_subscription_that_is_closed_while_its_node_is_away_opens_no_connection",
)
def closed_subscription_connects() -> None:
    """A subscription that is closed while its node is away opens another connection."""

    async def _pause(self: _AsyncConsumer[Any, Any], seconds: float) -> bool:
        await self._runtime.sleep(seconds)
        return False

    replace(_AsyncConsumer._pause, _pause)
