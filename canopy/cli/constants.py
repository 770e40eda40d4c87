"""The fixed numbers of the commands, which no option sets.

Each docstring says where the number comes from. *Guess* means that it was never measured; then the
docstring says how to measure it, where that could change it. Times are seconds, sizes bytes.
"""

from __future__ import annotations

import os
from typing import Final

# --- the connection to a node ---

WAIT: Final = 5.0
"""Seconds to wait for a node that was just started. It listens after 0.5 to 2 s on a machine with
other work."""

WAIT_INTERVAL: Final = 0.1
"""The pause between two attempts to connect."""

COMPLETION_TIMEOUT: Final = 0.5
"""Seconds for which the completion of a word waits for the node's answer, while the user waits for
the shell."""

WAIT_SILENTLY: Final = 1.0
"""Seconds for which a command waits for a node before it says so."""

# --- pub and sub ---

EVENTS_LOOKED_AT: Final = 100
"""The number of recent events from which the types of an attribute's values are found."""

NAMES_TIMEOUT: Final = 2.0
"""Seconds for which `sub` waits for the names of attributes, which it needs only for hints. A node
knows them without asking others. Guess; to be measured on a busy machine."""

PUB_BATCH: Final = 512
"""The most events of one command. Guess; to be measured by the throughput of publishing."""

PUB_BATCH_BYTES: Final = 1 << 20
"""The size at which a command is sent: an eighth of the largest frame."""

READ_AHEAD: Final = 4 * PUB_BATCH  # events that are parsed ahead of the node

REFUSED_PRINTED: Final = 20
"""The number of refused lines that `pub` prints; further ones are only counted. Guess: a
screenful."""

SESSION_LETTERS: Final = "abcdefghjkmnpqrstvwxyz23456789"
SESSION_LENGTH: Final = 6
"""The length of the random prefix of the ids that a feed's events get. Its letters cannot be
mistaken for one another. Among 2,000 feeds, the number of events that a node remembers
(`tree.history`), two have the same prefix with probability 1/360."""

REFUSED_LISTED: Final = 10_000  # refused lines that `pub --json` lists. Guess: about a megabyte
DIFF_EVENTS: Final = 10_000  # that `sub --diff` asks for; a node answers with what it remembers
DIFF_SHOWN: Final = 5  # events and values of each kind that it shows. Guess: about a screen in all

DRY_RUN_NODES: Final = 20  # that `pub --dry-run` shows of an event. Guess: a screen

COUNT_INTERVAL: Final = 0.5  # between two updates of the count on a terminal


# --- status and top ---

WATCH_INTERVAL: Final = 2.0  # between two looks, as `top` of the system's

# --- stop ---

STOP_WAIT: Final = 60.0
"""Seconds for which `stop` waits for a node to drain and end: its `drain_timeout` (10 s by
default), and a margin for a loaded machine."""

# --- bench ---

BENCH_WAIT: Final = 0.05
"""The pause between two checks whether all events were delivered and whether to stop receiving. It
is part of no latency."""

# --- demo: the overlay ---

DEMO_NODES: Final = 200
"""The most processes of a demo on one machine; each takes some 40 MB. Guess; to be measured by a
demo of this size."""

STARTING_AT_ONCE: Final = 2 * (os.cpu_count() or 1)
"""The number of processes that start at the same time. Each start takes a second of processor
time."""

START_TIMEOUT: Final = 60.0
"""Seconds that one process may take to listen while others start. Guess; to be measured on a
machine with one core."""

READY_TIMEOUT: Final = 60.0
"""Seconds that thirty nodes may take to be ready; more nodes get proportionally more. Guess; to be
measured on a machine with one core."""

SMALL_TABLES: Final = {"CANOPY_VIEW__SIZE": "5", "CANOPY_VIEW__ACCESS_POINTS": "6"}
"""Table sizes of a demo's nodes. With a dozen nodes and somewhat more trees, each node then knows
fewer than half of them, as in a large overlay: the lower layer is a random graph and not a complete
one, and walks take steps, hit, and are blocked."""

DRAIN_TIMEOUT: Final = "3"
"""`drain_timeout` of a demo's nodes. They all leave together, so no node can take over from
another. Guess; to be measured by the time that stopping a demo takes."""

STOP_TIMEOUT: Final = 30.0
"""Seconds that a process may take to end after SIGTERM, before it gets SIGKILL. Guess; to be
measured by the time that stopping a demo takes."""

DEATH_TIMEOUT: Final = 3.0
"""Seconds that a failed command waits for the end of the node's process, to report the reason from
its log. Guess; to be measured by the time that a crashing node takes to write its log."""

LOG_TAIL: Final = 12  # lines of a dead node's log that are shown
POLL: Final = 0.05  # between two checks of the processes

# --- demo: subscriptions, publishing, the end ---

DEMO_SUBSCRIPTIONS: Final = 20_000
"""The most subscriptions of a demo. Each is acknowledged by itself. Guess; to be measured by
subscriptions per second of a demo."""

SUBACK_TIMEOUT: Final = 60.0
"""Seconds that one SUBACK may take: the walk, the lookup on the ring and the trees of all
conjunctions. Guess; to be measured by the slowest SUBACK while 200 nodes start."""

DELIVERY_WAIT: Final = 0.5
"""Seconds for which a thread waits for deliveries before it checks whether the demo has ended."""

DEMO_BATCH: Final = 64
"""The number of events that a node publishes before the next node's turn. It is small, so that
every node publishes part of a short feed. Guess; to be measured by events per second of a demo."""

DEMO_BATCH_BYTES: Final = 256 * 1024  # bytes at which a batch is sent

ADMISSION_TIMEOUT: Final = 120.0
"""Seconds that the admission of one batch may take. Guess; to be measured in an overlay under
overload."""

TAKEN_PAUSE: Final = 0.02
"""The pause between two checks whether a node's programs have taken their deliveries. Guess; to be
measured by events per second of a demo with many subscriptions at one node."""

SAMPLE_EVENTS: Final = 14
"""The number of events of one telemetry sample on a common machine (measured: 11 to 16). --rate is
converted to a sampling period with it."""

SAMPLE_PERIOD: Final = 1.0  # between two samples of a node: as often as system monitors sample

SAMPLING_NODES: Final = 16
"""The number of nodes of one machine that can sample every `SAMPLE_PERIOD`; with more nodes the
period is longer. A sample costs 5 to 20 ms of processor time (measured), which the overlay needs
too."""

QUIET_ROUNDS: Final = 4
"""The number of successive rounds of status requests with equal answers that count as quiescence.
Guess; with `QUIET_PAUSE` this is over a second. To be measured by demos that end before the last
delivery."""

QUIET_PAUSE: Final = 0.35  # between two rounds

# --- demo: the tour ---

TOUR_NODES: Final = 8
"""The least number of nodes of a tour: two clusters of three, and two other nodes."""

TOUR_BOUNDS: Final = {"CANOPY_TREE__SPLIT_AT": "8", "CANOPY_CLUSTER__SPLIT_TREES": "8"}
"""Settings of the nodes of a demo with a tour, with which a tree is cut and a cluster splits."""

TOUR_BANDS, TOUR_NEWS, TOUR_ROWS = 24, 20, 200
"""Subscriptions to one attribute, events that cross regions, rows of a stream (twice)."""

TOUR_TIMEOUT: Final = 60.0
"""Seconds that one scene of the tour may take. Guess; to be measured on a machine with one core."""

STALL_TIMEOUT: Final = 60.0
"""Seconds without any change after which waiting for quiescence ends: longer than any retry of the
overlay. Guess; to be measured by the longest retry under load."""

PROGRESS_INTERVAL: Final = 5.0  # between two plain lines of one step, so that a log stays short
SUMMARY_REFUSED_PRINTED: Final = 10  # refused lines in the printed summary
SUMMARY_REFUSED_LISTED: Final = 1_000  # refused lines in summary.json

FETCH_TIMEOUT: Final = 20.0
"""Seconds that the connection to the USGS, and each read from it, may take. Guess; to be measured
on slow connections."""

FETCH_LIMIT: Final = 64 * 1024 * 1024  # the size of the USGS feed; a week has 1 to 3 MB

# --- sim (wall-clock times) ---

MAX_CONFIGURATIONS: Final = 32
"""The most configurations of one `sim replay`. Guess: the columns of a table that can still be
compared."""

REPORT_INTERVAL: Final = 10.0  # between two lines of progress of `sim soak` and `sim pairs`

REDRAW_INTERVAL: Final = 0.1
"""The pause between two updates of a bar: a run reports progress for every node and event."""

SHRINK_TIME: Final = 30.0
"""Seconds of shrinking a bad seed, by default: some fifty runs of a small overlay."""

VIOLATIONS_PRINTED: Final = 20  # violations of a bad seed that are printed

REMIND_EVERY: Final = 5.0
"""The seconds between two messages that a lost node is still looked for. Guess."""
