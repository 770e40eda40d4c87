"""The main screen: subscriptions, the stream of their events, and one event in detail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList
from textual.widgets.option_list import Option

from canopy.tui.constants import (
    CLIPBOARD_BYTES,
    SELECTOR_COLUMNS,
    TELEMETRY_PERIOD,
    TELEMETRY_SELECTOR,
)
from canopy.tui.model.attachment import Attachment, Changes, SubscriptionEntry
from canopy.tui.model.log import LogRow, SortOrder
from canopy.tui.screens.base import MainScreen
from canopy.tui.screens.export import ExportDialog, delivery_of, event_json
from canopy.tui.screens.publish import PublishDialog
from canopy.tui.screens.subscribe import SubscribeDialog, SubscriptionRequest
from canopy.tui.widgets.detail import DetailPane
from canopy.tui.widgets.event_columns import FIXED, EventColumns, sort_mark
from canopy.tui.widgets.event_stream import EventStream
from canopy.tui.widgets.filter_bar import FilterBar
from canopy.tui.widgets.subscription_list import SubscriptionList
from overlay.client import Done, Failed, GetSubscriptions, Reply, Subscriptions, Why
from overlay.phrases import counted, visible

# --- the dialog for the columns of the events, and by which of them these are sorted ---


class ColumnsRequest(NamedTuple):
    """The chosen columns (None: those of the selectors), and the order."""

    names: tuple[str, ...] | None
    order: SortOrder | None


class ColumnsDialog(ModalScreen[ColumnsRequest | None]):
    """The dialog for columns and order: lists the attributes `names`; those in `shown` have a
    column."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("space", "show_or_hide", "Show or hide"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reset", "Reset"),
    ]

    def __init__(
        self, names: Sequence[str], shown: Collection[str], order: SortOrder | None
    ) -> None:
        super().__init__()
        self._names = names
        self._shown = set(shown)
        self._order = order
        self._list = OptionList(*(Option(self._line(name)) for name in names), id="columns")

    def compose(self) -> ComposeResult:
        """Yield the list of attributes."""
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = "Columns and order"
            dialog.border_subtitle = "Space show/hide · s sort · r reset · Enter done · Esc cancel"
            yield self._list

    def on_mount(self) -> None:
        """Put the cursor into the list of columns."""
        self._list.focus()

    def on_option_list_option_selected(self) -> None:
        """Return the chosen columns: Enter was pressed."""
        names = tuple(name for name in self._names if name in self._shown)
        self.dismiss(ColumnsRequest(names, self._order))

    def action_show_or_hide(self) -> None:
        """Show or hide the column under the cursor."""
        if self._list.highlighted is not None:
            self._shown ^= {self._names[self._list.highlighted]}
            self._update()

    def action_sort(self) -> None:
        """Sort by the column under the cursor: first the largest first, then the smallest, then
        not."""
        if self._list.highlighted is not None:
            self._order = SortOrder.after(self._order, self._names[self._list.highlighted])
            self._update()

    def action_reset(self) -> None:
        """Return to the columns of the selectors, in the order of arrival."""
        self.dismiss(ColumnsRequest(None, None))

    def _update(self) -> None:
        for at, name in enumerate(self._names):
            self._list.replace_option_prompt_at_index(at, self._line(name))

    def _line(self, name: str) -> Text:
        shown = "[x]" if name in self._shown else "[ ]"
        return Text(f"{shown} {visible(name)}{sort_mark(name, self._order)}", no_wrap=True)


OPENING = ("add", "filter", "publish", "export")
"""Actions that open a field to type into."""


class LiveScreen(MainScreen):
    """The screen of subscriptions and their events."""

    TITLE = "events"
    BINDINGS: ClassVar[list[BindingType]] = [
        # Those with priority open a text: what is typed after the key must not come before it.
        Binding("a", "add", "Add", tooltip="Add a subscription", priority=True),
        Binding(
            "slash",
            "filter",
            "Filter",
            tooltip="Show only events that contain these words",
            priority=True,
        ),
        Binding("w", "why", "Why", tooltip="Why was the selected event delivered?"),
        Binding("space", "pause", "Hold", tooltip="Pause the list, or resume it"),
        Binding(
            "n", "publish", "New event", tooltip="Publish a test event", show=False, priority=True
        ),
        Binding("y", "copy", "Copy", tooltip="Copy the selected event as JSON", show=False),
        Binding(
            "x",
            "export",
            "Save",
            tooltip="Save events to a file as JSON",
            show=False,
            priority=True,
        ),
        Binding(
            "s", "columns", "Columns", tooltip="Sort the events, choose their columns", show=False
        ),
        Binding(
            "u", "undo", "Undo", tooltip="Undo the last removal, change or clearing", show=False
        ),
        Binding("c", "clear", "Clear", tooltip="Remove all events from the list", show=False),
        Binding("escape", "close", "Close details", show=False),
        Binding("o", "app.other_screen", "Overlay", tooltip="Node, ring and trees"),
    ]

    def __init__(self, attachment: Attachment, clock: Callable[[], float]) -> None:
        super().__init__(attachment, clock)
        self._listed: tuple[int, ...] = ()  # subscriptions that the columns were made for
        self._columns: dict[int | None, tuple[str, ...]] = {}  # chosen, by subscription

    def body(self) -> ComposeResult:
        """Yield the list of subscriptions beside (or above) the events."""
        with Horizontal(id="live"):
            yield SubscriptionList(id="subscriptions")
            with Vertical(id="events"):
                yield FilterBar()
                yield Button("Show this machine's telemetry", id="telemetry")
                yield EventStream(self.attachment.log, id="stream")
                yield DetailPane(id="detail")

    def on_mount(self) -> None:
        """Set the titles, and show the subscriptions and events."""
        self.query_one(SubscriptionList).border_title = "Subscriptions"
        self.query_one("#stream").border_title = "Events"
        self._show_subscriptions()
        self._choose(None)
        self.query_one(SubscriptionList).focus()

    # -- the tick ---------------------------------------------------------------------------

    def tick(self, changes: Changes) -> None:
        """Draw the changes since the last tick."""
        super().tick(changes)
        if changes.subscriptions:
            self._show_subscriptions()
            if self._listed != tuple(self.attachment.subscriptions):
                self._show_columns(self.query_one(SubscriptionList).chosen)
        if changes.events:
            bar = self.query_one(FilterBar)
            bar.show(self.attachment.log)
            if not self.attachment.log.paused:
                self.query_one(EventStream).update_view()

    def update_rates(self) -> None:
        """Draw the rates, which change even without events."""
        super().update_rates()
        self._show_subscriptions()

    def poll(self) -> None:
        """Request the pivots of the subscriptions."""
        self.attachment.ask(GetSubscriptions, self._on_subscriptions, poll=True)

    def _on_subscriptions(self, reply: Reply) -> None:
        if isinstance(reply, Subscriptions):
            for info in reply.subscriptions:
                ours = self.attachment.find(info.subscription)
                if ours is not None:
                    ours.pivots = info.pivots
            self._show_subscriptions()

    def _show_subscriptions(self) -> None:
        attachment = self.attachment
        self.query_one(SubscriptionList).show(
            list(attachment.subscriptions.values()), attachment.rate
        )
        self.query_one("#telemetry").display = not attachment.subscriptions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable commands while a text is typed, and undo while there is nothing to undo."""
        if action in OPENING and isinstance(self.focused, Input):
            return False
        if action == "undo" and not self.attachment.undo_stack:
            return False
        return super().check_action(action, parameters)

    def action_undo(self) -> None:
        """Undo the last removal, change or clearing."""
        try:
            what = self.attachment.undo()
        except ValueError as error:
            self.notify(str(error), severity="error")
            return
        self._show_subscriptions()
        self._choose(self.query_one(SubscriptionList).chosen)
        self._after_change(f"undone: {what} again")

    def _after_change(self, line: str) -> None:
        self.refresh_bindings()
        if line:
            self.notify(line, timeout=5, markup=False)

    # -- subscriptions ----------------------------------------------------------------------

    def action_add(self) -> None:
        """Open the dialog for a new subscription."""
        self.app.push_screen(SubscribeDialog(self.attachment), self._on_request)

    def _on_request(self, request: SubscriptionRequest | None) -> None:
        if request is None:
            return
        try:
            made = self.attachment.subscribe(*request)
        except ValueError as error:
            self.notify(str(error), severity="error")
            return
        self._show_subscriptions()
        self.query_one(SubscriptionList).choose(made.key)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Have the node publish its machine's telemetry, and subscribe to it."""
        event.stop()
        self.attachment.feed_telemetry(TELEMETRY_PERIOD, self._on_telemetry)

    def _on_telemetry(self, reply: Reply) -> None:
        if isinstance(reply, Done):
            self._on_request(SubscriptionRequest(TELEMETRY_SELECTOR, "telemetry", ()))
        elif isinstance(reply, Failed):
            self.notify(reply.reason, severity="error", markup=False)

    def on_subscription_list_action_requested(
        self, event: SubscriptionList.ActionRequested
    ) -> None:
        """Remove, pause or edit a subscription."""
        subscription = self.attachment.subscriptions.get(event.key)
        if subscription is None:
            return
        if event.what == "remove":
            self._remove(subscription)
        elif event.what == "pause":
            self.attachment.pause(event.key)
        else:
            self._edit(subscription)

    def _remove(self, subscription: SubscriptionEntry) -> None:
        self.attachment.remove(subscription.key)
        self._after_change(f"removed {subscription.name}; u brings it back")
        self._show_subscriptions()

    def _edit(self, subscription: SubscriptionEntry) -> None:
        def done(request: SubscriptionRequest | None) -> None:
            if request is not None and subscription.key in self.attachment.subscriptions:
                made = self.attachment.change(subscription.key, *request)
                self._after_change("")
                self._show_subscriptions()
                self.query_one(SubscriptionList).choose(made.key)

        dialog = SubscribeDialog(
            self.attachment, subscription.selector, subscription.name, subscription.level
        )
        self.app.push_screen(dialog, done)

    def on_subscription_list_chosen(self, event: SubscriptionList.Chosen) -> None:
        """Show the events of the selected subscription."""
        self._choose(event.key)

    def _choose(self, key: int | None) -> None:
        titles = {s.key: s.name for s in self.attachment.subscriptions.values()}
        stream = self.query_one(EventStream)
        stream.border_title = "Events" if key is None else f"Events of {titles[key]}"
        self._show_view(key)
        self._show_columns(key)

    def _show_columns(self, key: int | None) -> None:
        titles = {s.key: s.name for s in self.attachment.subscriptions.values()}
        self._listed = tuple(titles)
        chosen, order = self._columns_of(key), self.attachment.log.order
        fixed = [name for name in FIXED if name in chosen]
        with_names = key is None and len(titles) > 1
        columns = EventColumns(chosen, with_names, titles, fixed, order)
        self.query_one(EventStream).set_columns(columns)

    def _columns_of(self, key: int | None) -> tuple[str, ...]:
        """Return the attributes with a column: the chosen ones, else those of the selectors."""
        if key in self._columns:
            return self._columns[key]
        subscriptions = self.attachment.subscriptions
        if key is not None:
            return (*FIXED, *subscriptions[key].attributes)
        found = {name: None for s in subscriptions.values() for name in s.attributes}
        return (*FIXED, *list(found)[:SELECTOR_COLUMNS])

    def action_columns(self) -> None:
        """Open the dialog for columns and order."""
        key = self.query_one(SubscriptionList).chosen
        shown = self._columns_of(key)
        names = list(dict.fromkeys([*FIXED, *shown, *self.attachment.log.attribute_names()]))

        def done(request: ColumnsRequest | None) -> None:
            if request is None:
                return
            if request.names is None:
                self._columns.pop(key, None)
            else:
                self._columns[key] = request.names
            self._sort(request.order)

        self.app.push_screen(ColumnsDialog(names, shown, self.attachment.log.order), done)

    def on_event_stream_sort_requested(self, event: EventStream.SortRequested) -> None:
        """Sort by the column whose title was clicked."""
        log = self.attachment.log
        self._sort(SortOrder.after(log.order, event.attribute) if event.attribute else None)

    def _sort(self, order: SortOrder | None) -> None:
        self.attachment.log.sort(order)
        self._choose(self.query_one(SubscriptionList).chosen)

    # -- events -----------------------------------------------------------------------------

    def _show_view(self, key: int | None) -> None:
        words = self.query_one(FilterBar).words
        self.attachment.log.show(key, words)
        self.query_one(EventStream).new_view()
        self.query_one(FilterBar).show(self.attachment.log)

    def on_filter_bar_changed(self) -> None:
        """Show the events that contain the words of the filter."""
        self._show_view(self.query_one(SubscriptionList).chosen)

    def on_filter_bar_left(self) -> None:
        """Return the focus to the list."""
        self.query_one(EventStream).focus()

    def action_filter(self) -> None:
        """Focus the filter above the events."""
        self.query_one(FilterBar).enter()

    def action_pause(self) -> None:
        """Pause the list of events, or resume it."""
        log = self.attachment.log
        log.pause(not log.paused)
        self.query_one(EventStream).update_view()
        self.query_one(FilterBar).show(log)

    def action_clear(self) -> None:
        """Remove all events from the list."""
        removed = self.attachment.clear()
        if removed:
            self._after_change(f"removed {counted(removed, 'event')}; u brings them back")
        self.query_one(EventStream).new_view()
        self.query_one(FilterBar).show(self.attachment.log)

    def on_event_stream_selected(self, event: EventStream.Selected) -> None:
        """Show the event under the cursor."""
        self._show_row(event.row)

    def _show_row(self, row: LogRow | None) -> None:
        subscriptions = self.attachment.subscriptions
        chosen = self.query_one(SubscriptionList).chosen
        first = "" if row is None else delivery_of(row, chosen).subscription
        self.query_one(DetailPane).show(
            row,
            lambda key: subscriptions[key].name if key in subscriptions else "(removed)",
            first,
        )

    def on_event_stream_near_eviction(self) -> None:
        """Pause the list, so that the selected event is not evicted."""
        if not self.attachment.log.paused:
            self.action_pause()
            self.notify("Paused, so that the selected event stays. Space resumes.", timeout=4)

    def on_event_stream_opened(self) -> None:
        """Show the details, also on a small screen."""
        self.add_class("-details")
        self.query_one(DetailPane).tab = "event"

    def _chosen_row(self) -> LogRow | None:
        """Return the selected, or else the newest event; None, with a notice, if there is none."""
        row = self.query_one(EventStream).ensure_cursor()
        if row is None:
            self.notify("No event yet.", timeout=2)
        return row

    def action_why(self) -> None:
        """Ask why the selected (or newest) event was delivered."""
        row = self._chosen_row()
        if row is None:
            return
        self._show_row(row)
        self.add_class("-details")
        self.query_one(DetailPane).show_why()

    def action_close(self) -> None:
        """Hide the details on a small screen, else follow the newest event again."""
        if self.has_class("-details"):
            self.remove_class("-details")
        else:
            self.query_one(EventStream).action_follow()
        self.query_one(EventStream).focus()

    def on_detail_pane_why_requested(self, event: DetailPane.WhyRequested) -> None:
        """Request the explanation from the node."""
        identity = event.identity
        pane = self.query_one(DetailPane)
        self.attachment.ask(
            lambda request: Why(request, identity), lambda reply: pane.explain(identity, reply)
        )

    def action_copy(self) -> None:
        """Copy the selected (or newest) event to the terminal's clipboard, by OSC 52."""
        row = self._chosen_row()
        if row is None:
            return
        text = event_json(row, self.query_one(SubscriptionList).chosen)
        if len(text.encode()) > CLIPBOARD_BYTES:
            self.notify("too long for the terminal's clipboard; x saves it", severity="warning")
            return
        self.app.copy_to_clipboard(text)
        self.notify("copied as JSON, if the terminal allows it; x saves to a file", timeout=4)

    def action_export(self) -> None:
        """Open the dialog that saves events."""
        row = self._chosen_row()
        if row is None:
            return
        shown, chosen = list(self.attachment.log.view), self.query_one(SubscriptionList).chosen
        dialog = ExportDialog(row, shown, chosen)
        self.app.push_screen(dialog, lambda line: self._after_change(line or ""))

    def action_publish(self) -> None:
        """Open the dialog for a test event, filled from the selected one."""
        self.app.push_screen(PublishDialog(self.attachment, self.query_one(EventStream).selected))
