"""Measures of publishing, in one place, each with where it comes from or what would measure it.

Those that a person may set are settings instead (`tree.*` in docs/reference/configuration.md).
"""

from __future__ import annotations

# --- pending events (publisher.py, coalescer.py) ---

MOVES = 3
"""`TreeMoved` answers for one event and tree after which the ring is asked instead of a walk. Not
measured; would be measured by the time to deliver while trees move."""

CHECK_LEAST = 0.05
"""Seconds between two checks for silent hosts at least. Not measured; would be measured by the
processor time of checks with `tree.pending` pairs in flight."""

IN_FLIGHT_LEAST = 48
"""Events in flight up to which nothing is held back: one batch of a client's (64) in flight holds
the next back; at 1,000 events per second that are matched within milliseconds nothing is."""

HOLD_MOST = 0.01
"""Seconds that an event is held back at most: at 25,000 events per second a full message's worth
comes in that time, and who publishes so many sees no event sooner otherwise."""

# --- admission (admission.py) ---

MAX_ATTRIBUTES = 1_000
"""Attributes of one event: each may visit a tree. Not measured; would be measured by the time that
one event of so many attributes takes in a node that does nothing else."""

MAX_NAME = 256
"""Characters of an attribute's name, so that all names of an event fit into one walk."""

# --- choosing a replica (replicas.py, load_prediction.py) ---

TIMEOUT_LEAST = 0.5
"""Seconds that a host may take to accept, at least: more than a busy host's longest turn. (A cut
link shall delay deliveries by a second at most.)"""

TIMEOUT_FIRST = 1.0
"""The time-out before anything was measured: RFC 6298, section 2.1."""

TIMEOUT_FACTOR = 4.0
"""Times the smoothed time that hosts take. RFC 6298 adds four times the variance; not measured
here; would be measured by how many visits are sent twice while hosts are busy."""

SMOOTHING = 0.125
"""Weight of a new measurement: RFC 6298, section 2.3."""

SILENT_FOR = 5.0
"""Seconds that a silent host is suspected; then one event tries it again. About as long as it takes
to notice a dead host and to replace it (`links.dead_after`)."""

MOVED_FOR = 2.0
"""Seconds that a host that said `TreeMoved` is suspected: it is being given its trees, or soon
named no more. Not measured; would be measured by the time from `Assign` to `Installed`."""

SUSPICIONS_MOST = 4_096
"""Suspicions that are remembered, the oldest forgotten first; as many as cached locations."""

REPORT_FOR = 1.0
"""Seconds for which a reported load is used; long beside what an acceptance takes, short beside a
publisher's time-out. Not measured; would be measured by `canopy sim timeliness` over this value."""

PREDICTED_MOST = 4_096
"""Hosts whose load is remembered; as many as suspicions."""
