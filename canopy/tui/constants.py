"""The numbers of the terminal UI, apart from sizes in the layout of one widget.

Each docstring says where the number comes from. *Guess* means that it was never measured; then the
docstring says how to measure it, where that could change it. Times are seconds.
"""

from __future__ import annotations

from typing import Final

# --- drawing ---

TICK: Final = 0.1
"""The shortest pause between two redraws: ten per second is as much as a person can read."""

RATE_TICKS: Final = 10  # ticks between two updates of the rates

POLL_TICKS: Final = 20
"""Ticks between two requests for the node's state: its gossip has a period of 2 s
(`ViewSettings.period`)."""

RATE_WINDOW: Final = 2.0
"""The time constant of a rate: steady enough to read, quick enough to follow."""

TELEMETRY_PERIOD: Final = 1.0  # between two samples of the telemetry feed that is started from here
TELEMETRY_SELECTOR: Final = "sample > 0"  # which each of its events has

# --- the event log ---

LOG_ROWS: Final = 5_000
"""The most events in the log: two hours at one event every other second, one second of a flood."""

INBOX_DELIVERIES: Final = 5_000
"""The most deliveries that are kept between two ticks: as many as the log has rows."""

EVICTION_MARGIN: Final = 2
"""A row in the older half (1/2) of a full log counts as near eviction: one tick of a flood adds a
tenth of the log. Guess; to be measured by selected events that are evicted under a flood."""

# --- the node ---

SUBSCRIPTIONS: Final = 32
"""The most subscriptions. Each has a thread and a connection; a screen shows ten. Guess; to be
measured by the delay of a tick with this number."""

REQUESTS: Final = 64  # requests that may be queued. Guess: a person makes one at a time
REQUEST_TIMEOUT: Final = 10.0  # for a reply: the traversal of a large ring takes a few seconds

CONNECT_TIMEOUT: Final = 3.0
"""Seconds that a connection to the control socket may take; it normally takes milliseconds. Guess;
to be measured on a machine that swaps."""

STOP_CHECK: Final = 0.25
"""The pause between two checks of a subscriber's thread whether it has to stop; too short to be
noticed."""

IDLE_CHECK: Final = 0.5  # the same, of the requester's thread

# --- what can be taken back and what is kept ---

UNDO: Final = 20
"""The most changes that can be undone: more than a person remembers. Each holds at most `LOG_ROWS`
events, and only the last `UNDO_EVENTS` changes hold any."""

UNDO_EVENTS: Final = 2  # times that the list was cleared of which the events are kept

SAVED_BYTES: Final = 1 << 20
"""The largest file of saved subscriptions: far more than `SUBSCRIPTIONS` selectors of the
longest."""

CLIPBOARD_BYTES: Final = 74_994
"""The most bytes that are copied: in Base64 they fill the 100,000 bytes that terminals accept of
one OSC 52 sequence."""

# --- dialogs and panes ---

CANDIDATES: Final = 50  # completions of a selector at most: more than are scrolled through

VALUE_SAMPLE: Final = 300
"""The number of events that are searched for an attribute's values; takes a few milliseconds."""

VALUES: Final = 20  # values that are proposed for an attribute. Guess: two screens of candidates

DRAFT_CHARACTERS: Final = 200_000
"""The most characters of a test event: far more than is typed, far less than a frame may have."""

SELECTOR_CHARACTERS: Final = 16_384  # characters of a selector; the compiler's own limit is lower
HEX_DUMP: Final = 512  # bytes of a binary payload that are shown. Guess: a screen
PAYLOAD_CHARACTERS: Final = 20_000  # characters of a payload that are shown. Guess: some 300 lines

CLUSTER_ATTRIBUTES: Final = 60
"""The most names of attributes in a cluster's details. Guess: half a screen."""

SELECTOR_COLUMNS: Final = 6
"""The most columns for the attributes of all selectors together; more would leave no room for the
rest."""

SIDEWAYS: Final = 8  # cells by which one press of an arrow moves the columns. Guess: a short column
