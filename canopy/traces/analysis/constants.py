"""The numbers of the analysis.

Each says where it comes from. *Guess* means that it was never measured; then it says what would
measure it, where that could change it.
"""

from __future__ import annotations

from typing import Final

# --- Java and Spark ---

OLDEST_JAVA: Final = 17  # Spark 4's documented minimum

JAVA_TIMEOUT: Final = 30.0
"""Seconds for a JVM to print its version, which takes 0.1 s. Guess; to be measured on a machine
that swaps."""

QUICK_BYTES: Final = 32 * 1024 * 1024
"""Below this much input Spark's generated code does not pay, nor the JVM's second compiler:
measured on 1.4 MB, a start of 4.8 s instead of 6.4 s and 18.5 s of CPU for the whole instead of
23.6 s. Not verifying the jars' classes saves nothing that could be measured."""

ONE_COMPILER_BYTES: Final = 1 << 30
"""Below this much input the JVM's second compiler takes more time than its code saves: measured on
141 MB, 44.5 s of CPU for the whole instead of 74.1 s, of which that compiler took 24; on 648 MB,
98.5 s instead of 125.2 s. Where that turns is a guess; to be measured on a quiet machine."""

ARCHIVE_SECONDS: Final = 600.0
"""After which an archive of classes that somebody began to make is begun again. Making one takes
33 s of CPU, at the lowest priority, and 180 MB."""

ARCHIVES_KEPT: Final = 2  # those last used. Guess: of two Javas

ONE_TASK_BYTES: Final = 8 * 1024 * 1024
"""Below this much input each job is one task, without a shuffle, and its plan is not revised while
it runs: the fixed costs of a stage are all that there is. Measured on 0.1 MB, processor time of
one analysis more in the same JVM: 9.1 s instead of 15.5 s."""

PARTITION_BYTES: Final = 32 * 1024 * 1024
"""Bytes of input for each partition of a shuffle: its rows fit a task's share of a heap of 1 GB
with room to sort. Spark joins partitions that turn out to be smaller."""

MAX_DEPTH: Final = 600
"""Levels of a selector's JSON tree. Matching allows 128 levels of selector, each at most 3 of JSON;
Python calls functions 1,000 deep unless configured."""

PAIRS_HERE: Final = 100_000
"""Pairs of event and selector that a small run matches without a worker, whose start takes a second
of CPU: 0.1 s of matching at most."""

PAIRS_AT_ONCE: Final = 100_000_000
"""Matching pairs of event and selector in one batch: 3 GB in a worker. The first batch is so small
that all of its pairs may match, each other one at most twice as large as the one before."""

LINE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a line beyond which no more of it is read. An event's attributes are smaller than a
frame of 1 MB."""

OPEN_BYTES: Final = 64 * 1024
"""The cost of opening a file, in bytes, when Spark combines files into tasks. Spark's default (4
MB) is for remote stores and makes a task of every 32 small files. Reading 64 KB takes as long as
opening a file on a local disk."""

WRITERS: Final = 40
"""Files that a task keeps open, so that the records of as many days are not sorted once more when
they are written into the state."""

BLOCK_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a block of Parquet, for one of `WRITERS`: all of them and two tasks have to fit the
heap."""

# --- judging ---

GRACE_SECONDS: Final = 1.0
"""Around the end of a subscription, when a delivery is right either way: an unsubscribe crosses the
overlay in milliseconds. Guess; to be measured by the times of unsubscribes at hosts."""

SETTLE_SECONDS: Final = 10.0
"""Seconds within which a delivery is made: an event that was published this long before records end
or are absent may have been delivered within the absent stretch. A delivery on a busy machine took
up to 8.5 s. A SUBACK that takes longer leaves the pairs of its subscription unjudged."""

FLUSH_SECONDS: Final = 2.0
"""Seconds by which a killed node may have outlived its last written record: nodes write every half
second. Guess; to be measured with nodes on a busy machine."""

CLOCKS_AGREE: Final = 0.05
"""Seconds by which wall clocks may differ so that latencies are taken from them. The two clocks
of a record are read one after another, and a busy machine lets some milliseconds pass in between
(median)."""

CLOCK_STEP: Final = 1.0
"""Seconds by which a wall clock has to jump against the monotonic clock to count as set while the
node ran. Guess: more than a busy machine lets pass between the reading of the two clocks."""

NANOSECONDS: Final = 1_000_000_000  # per second

DAY_SECONDS: Final = 86_400  # Unix time has no leap seconds: midnight UTC is a multiple of it

UNJUDGED_LIMIT: Final = 0.01
"""The share of pairs that may be left open in a run that is called exact."""

INCIDENT_WINDOW: Final = 10.0
"""Seconds within which reports of several nodes are one incident: a silent peer counts as dead
after six."""

TURN_SLACK: Final = 0.001
"""Seconds by which a walk's record may precede the publish record of the same turn."""

# --- health ---

HEALTH_WINDOW: Final = 120.0  # seconds that are looked at together; Tensor, table III

LOST_AFTER: Final = 60.0
"""Seconds without a record after which a process that wrote health records counts as crashed: six
of them. Guess; to be measured by how late records reach the files."""

# --- what the report shows ---

EXAMPLES_SHOWN: Final = 20
"""Pairs of each kind that are listed one by one, beside their groups. Guess: more than is read."""

GROUPS_SHOWN: Final = 20  # groups of wrong pairs of each kind that are listed. Guess, as above

EPISODE_SECONDS: Final = 60.0
"""Seconds by which the publications of two wrong pairs of one node and cause may be apart to be in
one group. Guess: longer than an election or a lost link lasts."""

CORRUPT_SHOWN: Final = 100  # reasons of corrupt lines that are counted. Guess, as above

SUBSCRIPTIONS_SHOWN: Final = 60
"""Subscriptions that are listed, those with faults first. Guess, as above."""

INCIDENTS_SHOWN: Final = 200  # incidents that are listed, the first ones. Guess, as above
SLOWEST_EVENTS: Final = 6  # slow deliveries whose paths are drawn. Guess: two screens
PATH_STEPS: Final = 60  # steps of one path that are drawn; the number of the others is shown
LINE_CHARACTERS: Final = 400  # characters of a corrupt line that are kept: enough to recognise it
BINS_PER_DECADE: Final = 6  # of the latency histogram: about 1, 1.5, 2.2, 3.2, 4.6, 6.8, 10 ms
LEAST_MS: Final = 0.01  # latencies below this are in one bin: the clock is not more precise
ATTRIBUTES_SHOWN: Final = 40  # attributes that are listed, those with most visits. Guess, as above
SLOW_SHOWN: Final = 15  # hosts and links that are listed, the slowest ones. Guess, as above

STEPS_COMPARED: Final = 200_000
"""Records by which hosts and links are compared, which take this process a second."""

CSV_ROWS: Final = 100_000
"""Rows up to which a table is written as CSV beside its Parquet: the size that spreadsheets
open."""

TIME_BINS: Final = 60  # columns of the picture of the run over time: what a phone can show


# --- what can go wrong in an analysis, said so that a person knows what to do next ---


class AnalysisError(Exception):
    """The analysis could not be made. The text says what, where and what to do about it."""
