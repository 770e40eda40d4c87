"""The streams: their shards with leaders and lags, durable consumers and groups; and one stream's
rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.markup import escape
from textual.widgets import Input, Label, Static

from canopy.client.seals import labelled, seal_of
from canopy.client.streams.management import bounds
from canopy.client.streams.reading import Start, parse_start
from canopy.tui.model.attachment import Attachment
from canopy.tui.model.log import EventLog
from canopy.tui.model.stream_reader import StreamReader
from canopy.tui.model.text import short, show_time
from canopy.tui.screens.base import MainScreen
from canopy.tui.screens.dialog import Dialog
from canopy.tui.widgets.event_columns import EventColumns
from canopy.tui.widgets.event_stream import EventStream
from canopy.tui.widgets.synced_table import SyncedTable
from matching import SelectorError, compile_selector
from overlay.client import Delivery, Event, Failed, GetStreams, Reply, StreamEvent, Streams
from overlay.info import GroupInfo, GroupShardInfo, ReplicaInfo, ShardInfo, StreamInfo
from overlay.phrases import counted, duration, visible
from overlay.stream_client import GetGroups, Groups, RowExplained, WhyRow

# --- the dialog that asks from where a stream is to be read, and which of its events ---


class ReplayRequest(NamedTuple):
    """The start of a reading (`Client.read`), and its selector; "": all events."""

    start: Start | int
    at: int
    selector: str


class ReplayDialog(Dialog[ReplayRequest]):
    """Asks where to begin and for a selector, and checks both while they are typed."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"Read {stream}", "Enter read · Esc cancel", "Read")
        self._request: ReplayRequest | None = None
        self._from = Input("first", id="from")
        self._selector = Input(placeholder="total > 100; nothing: all events", id="selector")
        self._verdict = Static(id="verdict", markup=False)

    def fields(self) -> ComposeResult:
        """Yield the two fields, and the result of their check."""
        yield Label("From: first, new, keys, an offset, or a time such as 2026-11-23T08:00")
        yield self._from
        yield Label("Events that this selector matches")
        yield self._selector
        yield self._verdict

    def on_mount(self) -> None:
        """Check the fields and focus the first."""
        self._check()
        self._from.focus()

    def on_input_changed(self) -> None:
        """Check the fields after each change."""
        self._check()

    def finish(self) -> None:
        """Return the request, if it is valid."""
        if self._request is None:
            self.app.bell()
        else:
            self.dismiss(self._request)

    def _check(self) -> None:
        selector = self._selector.value.strip()
        try:
            start, at = parse_start(self._from.value.strip())
            if selector:
                compile_selector(selector)
        except SelectorError as error:
            self._request, said = None, f"✗ {error.message}"
        except ValueError as error:
            self._request, said = None, f"✗ {error}"
        else:
            self._request = ReplayRequest(start, at, selector)
            said = "✓ " + ("all events" if not selector else "a valid selector")
        self._verdict.update(said)
        self.ok.disabled = self._request is None


STREAM_COLUMNS = ("stream", "shards", "copies", "key", "ttl", "captures")
SHARD_COLUMNS = ("", "shard", "node", "state", "offsets", "lag", "keys", "bytes")
CONSUMER_COLUMNS = ("consumer", "shard", "position", "lag", "selector")

LETTERS_MOST = 8
"""The most dead letters that are shown at once."""

PLACE = "#"
"""The column of an event's offset, with its shard before it if there are several."""


class StreamsScreen(MainScreen):
    """Streams on the left, the shards and consumers of one beside them, its events below."""

    TITLE = "streams"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l", "live", "Live", tooltip="Follow the selected stream from now on"),
        Binding("p", "replay", "Replay", tooltip="Read the selected stream from a place on"),
        Binding("s", "stop", "Stop", tooltip="Read the stream no more"),
        Binding("d", "dead", "Dead", tooltip="The dead letters of the stream's groups"),
        Binding("w", "why", "Why", tooltip="What became of the selected row?"),
        Binding("r", "poll", "Refresh", tooltip="Request the streams now", show=False),
        Binding("escape,o", "app.switch_mode('live')", "Events", tooltip="To the events"),
    ]

    def __init__(self, attachment: Attachment, clock: Callable[[], float]) -> None:
        super().__init__(attachment, clock)
        self.log_of_rows = EventLog()
        self._streams: dict[str, StreamInfo] = {}
        self._groups: dict[str, tuple[GroupInfo, ...]] = {}  # by stream
        self._reader: StreamReader | None = None
        self._read = ""  # the stream that is read
        self._several = False  # whether that has several shards

    def body(self) -> ComposeResult:
        """Yield the tables, and the rows under them."""
        with Vertical(id="streams"):
            with Horizontal(id="stream-tables"):
                with Vertical(classes="box", id="streams-box"):
                    yield SyncedTable(STREAM_COLUMNS, "stream-table", (1, 2))
                with Vertical(id="stream-side"):
                    with Vertical(classes="box", id="shards-box"):
                        yield SyncedTable(SHARD_COLUMNS, "shard-table", (1, 4, 5, 6, 7))
                    with Vertical(classes="box", id="consumers-box"):
                        yield SyncedTable(CONSUMER_COLUMNS, "consumer-table", (1, 2, 3))
            yield EventStream(self.log_of_rows, id="rows")

    def on_mount(self) -> None:
        """Set the titles of the boxes."""
        self.query_one("#streams-box").border_title = "Streams"
        self.query_one("#shards-box").border_title = "Shards"
        self.query_one("#consumers-box").border_title = "Durable consumers and groups"
        rows = self.query_one("#rows", EventStream)
        rows.border_title = "Rows: l follows the selected stream, p replays it"
        rows.set_columns(EventColumns((), False, {}, (PLACE,)))
        self.query_one("#stream-table").focus()

    def on_unmount(self) -> None:
        """Stop reading: the widgets are being removed."""
        super().on_unmount()
        self.action_stop()

    @property
    def chosen(self) -> str:
        """The name of the stream under the cursor, or ""."""
        return self.query_one("#stream-table", SyncedTable).chosen

    # -- what there is -----------------------------------------------------------------------

    def poll(self) -> None:
        """Request all streams, then the details of the selected one."""
        self.attachment.ask(GetStreams, self._on_streams, poll=True)

    def action_poll(self) -> None:
        """Request the streams at once."""
        self.poll()

    def _on_streams(self, reply: Reply) -> None:
        box = self.query_one("#streams-box")
        if isinstance(reply, Failed):
            box.border_title = f"Streams: {reply.reason}"
        if not isinstance(reply, Streams):
            return
        known = self._streams
        self._streams = {one.name: known.get(one.name, one) for one in reply.streams}
        part = "" if reply.complete else ", incomplete"
        box.border_title = f"{counted(len(reply.streams), 'stream')}{part}"
        rows = []
        for one in reply.streams:
            cells = (visible(one.name), f"{len(one.shards)}", f"{one.replicas}")
            kept = (visible(one.key), ttl_cell(one), visible(one.capture))
            rows.append((one.name, (*cells, *kept)))
        self.query_one("#stream-table", SyncedTable).sync(rows)
        self._ask_chosen()

    def _ask_chosen(self) -> None:
        name = self.chosen
        if name:
            self.attachment.ask(lambda n: GetStreams(n, name), self._on_stream, poll=True)
            self.attachment.ask(
                lambda n: GetGroups(n, name), lambda reply: self._on_groups(name, reply), poll=True
            )
        self._show_chosen()

    def _on_stream(self, reply: Reply) -> None:
        if isinstance(reply, Streams) and len(reply.streams) == 1:
            self._streams[reply.streams[0].name] = reply.streams[0]
            self._show_chosen()

    def _on_groups(self, name: str, reply: Reply) -> None:
        if isinstance(reply, Groups):
            self._groups = {name: reply.groups}
            self._show_chosen()

    def on_synced_table_chosen(self, event: SyncedTable.Chosen) -> None:
        """Request the details of the stream that was selected."""
        if event.table.id == "stream-table":
            self._ask_chosen()

    def _show_chosen(self) -> None:
        stream = self._streams.get(self.chosen)
        name = "" if stream is None else f" of {visible(stream.name)}"
        said = "" if stream is None else visible("; ".join(bounds(stream)))
        self.query_one("#shards-box").border_title = f"Shards{name}"
        self.query_one("#shards-box").border_subtitle = escape(said)
        self.query_one("#consumers-box").border_title = f"Durable consumers and groups{name}"
        shards: list[tuple[str, tuple[str, ...]]] = []
        consumers: list[tuple[str, tuple[str, ...]]] = []
        for shard in () if stream is None else stream.shards:
            for replica in shard.replicas:
                shards.append((f"{shard.number} {replica.node}", replica_cells(shard, replica)))
                for each in replica.consumers:
                    lag = max(0, replica.next - each.position)
                    cells = (f"{shard.number}", f"{each.position:,}", f"{lag:,}")
                    selector = visible(each.selector) or "all"
                    row = (visible(each.name), *cells, selector)
                    consumers.append((f"{shard.number} {each.name}", row))
        for group in self._groups.get(self.chosen, ()):
            for part in group.shards:
                consumers.append((f"{part.shard} group {group.name}", group_cells(group, part)))
        self.query_one("#shard-table", SyncedTable).sync(shards)
        self.query_one("#consumer-table", SyncedTable).sync(consumers)

    # -- rows --------------------------------------------------------------------------------

    def action_live(self) -> None:
        """Follow the selected stream from now on."""
        self._begin(ReplayRequest("new", 0, ""))

    def action_replay(self) -> None:
        """Ask where to begin to read the selected stream."""
        if self.chosen:
            self.app.push_screen(ReplayDialog(self.chosen), self._begin)

    def _begin(self, request: ReplayRequest | None) -> None:
        name = self.chosen
        if request is None or not name:
            return
        self.action_stop()
        self.log_of_rows.clear()
        known = self._streams.get(name)
        self._read, self._several = name, known is not None and len(known.shards) > 1
        start: Start | int = request.start
        what = f" where {request.selector}" if request.selector else ""
        rows = self.query_one("#rows", EventStream)
        rows.border_title = f"Rows of {visible(name)}{what}"
        rows.border_subtitle = "asking the leaders …"
        rows.new_view()
        self._reader = self.attachment.read_stream(
            name, request.selector, start, request.at, self._on_rows, self._on_reading
        )

    def action_stop(self) -> None:
        """Stop reading. The rows stay on the screen."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None
            if self.drawable:
                self.query_one("#rows").border_subtitle = "stopped"

    def _on_reading(self, reads: bool, text: str) -> None:
        self.query_one("#rows").border_subtitle = visible(text if reads else f"✗ {text}")

    def _on_rows(self, events: list[StreamEvent]) -> None:
        self.log_of_rows.add((0, self._delivery(event)) for event in events)
        self.query_one("#rows", EventStream).update_view()

    def _delivery(self, event: StreamEvent) -> Delivery:
        """Return the event as a delivery, for the list of events; its identity is stream, shard and
        offset."""
        place = f"{event.shard}/{event.offset}" if self._several else event.offset
        attributes = {PLACE: place, **event.attributes}
        identity = (self._read, event.shard, event.offset)
        whole = Event(*identity, event.time, attributes, event.payload, event.payload_type)
        return Delivery("", labelled(whole, seal_of(event)), "", "", "", 0)

    def on_event_stream_opened(self) -> None:
        """Ask what became of the row: Enter was pressed on it."""
        self.action_why()

    def action_dead(self) -> None:
        """Request the dead letters of the selected stream's groups."""
        name = self.chosen
        groups = [
            group.name
            for group in self._groups.get(name, ())
            if any(part.dead for part in group.shards)
        ]
        if not groups:
            self.notify("No dead letters.", timeout=2)
        for group in groups:
            self._ask_letters(name, group)

    def _ask_letters(self, name: str, group: str) -> None:
        self.attachment.ask(
            lambda request: GetGroups(request, name, group),
            lambda reply: self.notify(letters(group, reply), timeout=15, markup=False),
        )

    def action_why(self) -> None:
        """Ask what became of the selected (or newest) row."""
        row = self.query_one("#rows", EventStream).ensure_cursor()
        if row is None:
            self.notify("No row yet.", timeout=2)
            return
        event = row.event
        name, shard, offset = event.publisher, event.incarnation, event.sequence
        self.attachment.ask(
            lambda request: WhyRow(request, name, shard, offset),
            lambda reply: self.notify(explanation(offset, reply), timeout=15, markup=False),
        )


def ttl_cell(stream: StreamInfo) -> str:
    """Return how long the rows of a stream live; "" for ever."""
    own = visible(stream.ttl_by)
    for_all = duration(stream.ttl_seconds) if stream.ttl_seconds else ""
    return " or ".join(filter(None, (for_all, own)))


def letters(group: str, reply: Reply) -> str:
    """Return the dead letters of a group as text, the newest first."""
    if not isinstance(reply, Groups):
        return reply.reason if isinstance(reply, Failed) else ""
    newest = sorted(reply.letters, key=lambda letter: -letter.time)
    lines = [
        f"{letter.shard}/{letter.offset:,}: {visible(letter.reason)}, "
        f"{counted(letter.deliveries, 'delivery', 'deliveries')}"
        for letter in newest[:LETTERS_MOST]
    ]
    more = len(newest) - len(lines)
    lines += [f"… and {more:,} more: canopy stream dead"] if more else []
    return "\n".join((f"Dead letters of {visible(group)} (shard/offset)", *lines))


def replica_cells(shard: ShardInfo, replica: ReplicaInfo) -> tuple[str, ...]:
    """Return a replica's row in the table of shards."""
    mark = "★" if replica.node == shard.leader else " "
    if replica.state == "silent":
        return (mark, f"{shard.number}", short(replica.node), "✗ silent", "", "", "", "")
    behind = {node: chunks for one in shard.replicas for node, chunks in one.behind}
    offsets = f"{replica.first:,}…{replica.next - 1:,}" if replica.next > replica.first else "none"
    lag = "" if replica.node == shard.leader else f"{behind.get(replica.node, 0):,}"
    state = "✗ damaged" if replica.damaged else replica.state
    if replica.intake is not None and replica.intake.state != "captures":
        state += f", {replica.intake.state}"
    waiting = [fork for fork in replica.forks if fork.state != "copied"]
    state += f", {counted(len(waiting), 'fork')}" if waiting else ""
    keys = "" if replica.keys is None else f"{replica.keys:,}"
    cells = (mark, f"{shard.number}", short(replica.node), state, offsets, lag)
    return (*cells, keys, f"{replica.bytes:,}")


def group_cells(group: GroupInfo, part: GroupShardInfo) -> tuple[str, ...]:
    """Return a group's row in the table of consumers."""
    facts = [f"{part.leased:,} leased", counted(len(part.members), "member")]
    facts += [f"✗ {part.dead:,} dead"] if part.dead else []
    lag = max(0, part.end - part.floor)
    cells = (f"⋔ {visible(group.name)}", f"{part.shard}", f"{part.floor:,}", f"{lag:,}")
    return (*cells, f"{visible(group.selector) or 'all'}: {', '.join(facts)}")


def explanation(offset: int, reply: Reply) -> str:
    """Return what became of a row, as lines of text."""
    if isinstance(reply, Failed):
        return reply.reason
    assert isinstance(reply, RowExplained), reply
    there = f"offsets {reply.first:,} to {reply.next - 1:,} are there"
    lines = [f"row {offset:,}: {reply.state} ({there})"]
    if reply.time:
        by = visible(reply.producer) or "nobody who is known"
        lines.append(f"appended {show_time(reply.time)} by {by}, number {reply.number:,}")
    lines += [f"{visible(each.name)}: {each.what}" for each in reply.readers]
    return "\n".join(lines if reply.readers else [*lines, "there are no durable consumers"])
