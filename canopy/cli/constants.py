"""The numbers of the commands that are no options.

Each says where it comes from. *Guess* means that it was never measured; then it says what would
measure it, where that could change it. Times are seconds, sizes bytes.
"""

from __future__ import annotations

import os
from typing import Final

# --- the connection to a node ---

WAIT: Final = 5.0
"""For a node that was started just before: it listens after half a second to two, on a machine
with other work."""

WAIT_INTERVAL: Final = 0.1
"""Between two attempts to connect."""

COMPLETION_TIMEOUT: Final = 0.5
"""For a node to name its attributes while a user waits for the shell to complete a word."""

WAIT_SILENTLY: Final = 1.0
"""Before it is said that a node is waited for."""

# --- pub and sub ---

EVENTS_LOOKED_AT: Final = 100
"""Recent events of a node by which it is seen of which types an attribute's values are."""

NAMES_TIMEOUT: Final = 2.0
"""For the names of attributes, which a node knows without asking others: `sub` only needs them to
point out what is odd. Guess; to be measured on a busy machine."""

PUB_BATCH: Final = 512
"""Events of one command at most. Guess; to be measured by publishing throughput against it."""

PUB_BATCH_BYTES: Final = 1 << 20
"""Bytes of one command at which it is sent, an eighth of what a frame may have."""

READ_AHEAD: Final = 4 * PUB_BATCH  # events that are parsed ahead of the node

REFUSED_PRINTED: Final = 20
"""Refused lines that `pub` prints; the rest is counted. Guess: about a screen."""

SESSION_LETTERS: Final = "abcdefghjkmnpqrstvwxyz23456789"
SESSION_LENGTH: Final = 6
"""How the ids of events without one begin: letters that are not taken for one another, drawn for
each feed. Of 2,000 feeds, as many as a node remembers events (`tree.history`), two are the same
once in 360 times."""

REFUSED_LISTED: Final = 10_000  # refused lines that `pub --json` lists. Guess: about a megabyte
DIFF_EVENTS: Final = 10_000  # that `sub --diff` asks for; a node answers with what it remembers
DIFF_SHOWN: Final = 5  # events and values of each kind that it shows. Guess: about a screen in all

DRY_RUN_NODES: Final = 20  # that `pub --dry-run` shows of an event. Guess: a screen

COUNT_INTERVAL: Final = 0.5  # between two updates of the count on a terminal


# --- status and top ---

WATCH_INTERVAL: Final = 2.0  # between two looks, as `top` of the system's

# --- stop ---

STOP_WAIT: Final = 60.0
"""For a node to drain and its process to end: its `drain_timeout` (10 s unless configured) and what
a loaded machine needs beyond it."""

# --- bench ---

BENCH_WAIT: Final = 0.05
"""Between two checks whether all has been delivered, and whether to stop receiving. It is part of
no latency."""

# --- demo: the overlay ---

DEMO_NODES: Final = 200
"""Processes on one machine: each takes some 40 MB. Guess; to be measured by a demo of this size."""

STARTING_AT_ONCE: Final = 2 * (os.cpu_count() or 1)
"""Processes that start at the same time: starting costs a second of processor time each."""

START_TIMEOUT: Final = 60.0
"""For one process to listen while others start. Guess; to be measured on a machine with one
core."""

READY_TIMEOUT: Final = 60.0
"""For all nodes to be ready, and as much again for every thirty. Guess; measured likewise."""

SMALL_TABLES: Final = {"CANOPY_VIEW__SIZE": "5", "CANOPY_VIEW__ACCESS_POINTS": "6"}
"""Of the nodes: of a dozen nodes and some more trees each knows fewer than half, as in a large
overlay. So the lower layer is a random graph and no complete one, and walks take steps on it, hit,
and are blocked."""

DRAIN_TIMEOUT: Final = "3"
"""`drain_timeout` of the nodes, which all leave together, so that none can take over. Guess; to be
measured by the time that stopping a demo takes."""

STOP_TIMEOUT: Final = 30.0
"""For a process to end after SIGTERM, before SIGKILL. Guess; measured likewise."""

DEATH_TIMEOUT: Final = 3.0
"""From a node's last answer to the end of its process, where a command fails because it died.
Guess; to be measured by the time that a crashing node takes to write its log."""

LOG_TAIL: Final = 12  # lines of a dead node's log that are shown
POLL: Final = 0.05  # between two checks of the processes

# --- demo: subscriptions, publishing, the end ---

DEMO_SUBSCRIPTIONS: Final = 20_000
"""Subscriptions of a demo: each is acknowledged singly. Guess; to be measured by subscriptions per
second of a demo."""

SUBACK_TIMEOUT: Final = 60.0
"""For one SUBACK: the walk, the lookup on the ring and the trees of all its conjunctions. Guess; to
be measured by the slowest SUBACK while 200 nodes start."""

DELIVERY_WAIT: Final = 0.5
"""One wait for deliveries, after which the thread checks whether the demo has ended."""

DEMO_BATCH: Final = 64
"""Events that one node publishes before the next one does: small, so that all nodes publish part of
a short feed. Guess; to be measured by events per second of a demo."""

DEMO_BATCH_BYTES: Final = 256 * 1024  # bytes at which a batch is sent

ADMISSION_TIMEOUT: Final = 120.0
"""For the admission of one batch. Guess; to be measured in an overlay under overload."""

TAKEN_PAUSE: Final = 0.02
"""Between two looks whether a node's programs have taken their deliveries. Guess; to be measured by
events per second of a demo with many subscriptions at one node."""

SAMPLE_EVENTS: Final = 14
"""Events of one telemetry sample on a common machine (measured: 11 to 16), for --rate."""

SAMPLE_PERIOD: Final = 1.0  # between two samples of a node: as often as system monitors sample

SAMPLING_NODES: Final = 16
"""Nodes of one machine that can sample every `SAMPLE_PERIOD`; with more the period is longer. A
sample costs 5 to 20 ms of processor time (measured), which the overlay needs too."""

QUIET_ROUNDS: Final = 4
"""Equal rounds of status requests in a row that count as quiescence. Guess; with `QUIET_PAUSE` this
is over a second. To be measured by demos that end before the last delivery."""

QUIET_PAUSE: Final = 0.35  # between two rounds

# --- demo: the tour ---

TOUR_NODES: Final = 8
"""Nodes from which on there is a tour: two clusters of three, and others."""

TOUR_BOUNDS: Final = {"CANOPY_TREE__SPLIT_AT": "8", "CANOPY_CLUSTER__SPLIT_TREES": "8"}
"""Of the nodes of a demo with a tour, so that a tree is cut and a cluster splits."""

TOUR_BANDS, TOUR_NEWS, TOUR_ROWS = 24, 20, 200
"""Subscriptions to one attribute, events that cross regions, rows of a stream (twice)."""

TOUR_TIMEOUT: Final = 60.0
"""For one scene. Guess; to be measured on a machine with one core."""

STALL_TIMEOUT: Final = 60.0
"""Without any change after which waiting for quiescence ends: longer than any retry of the
overlay. Guess; to be measured by the longest retry under load."""

PROGRESS_INTERVAL: Final = 5.0  # between two plain lines of one step, so that a log stays short
SUMMARY_REFUSED_PRINTED: Final = 10  # refused lines in the printed summary
SUMMARY_REFUSED_LISTED: Final = 1_000  # refused lines in summary.json

FETCH_TIMEOUT: Final = 20.0
"""For the connection to the USGS and for each read. Guess; to be measured on slow connections."""

FETCH_LIMIT: Final = 64 * 1024 * 1024  # the size of the USGS feed; a week has 1 to 3 MB

# --- sim (wall-clock times) ---

MAX_CONFIGURATIONS: Final = 32
"""Runs of one `sim replay`. Guess: the columns of a table that can still be compared."""

REPORT_INTERVAL: Final = 10.0  # between two lines of progress of `sim soak` and `sim pairs`
LINE_INTERVAL: Final = 1.0  # between two lines of progress of one stage of a run

REDRAW_INTERVAL: Final = 0.1
"""Between two updates of a bar: a run reports progress for every node and event."""

SHRINK_TIME: Final = 30.0
"""For which a bad seed is shrunk by default: some fifty runs of a small overlay."""

VIOLATIONS_PRINTED: Final = 20  # violations of a bad seed that are printed

REMIND_EVERY: Final = 5.0
"""Seconds between two lines that say that a lost node is still looked for. Guess."""
