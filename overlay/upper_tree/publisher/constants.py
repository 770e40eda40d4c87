"""Measures of publishing, in one place, each with where it comes from or what would measure it.

Those that a person may set are settings instead (`tree.*` in docs/reference/configuration.md).
"""

from __future__ import annotations

# --- pending events (publisher.py, pending_store.py) ---

MOVES = 3
"""`TreeMoved` answers for one event and tree, or hosts that were too late, after which the owner is
asked. Not measured; would be measured by the time to deliver while trees move."""

CHECK_LEAST = 0.05
"""Seconds between two checks for silent hosts at least. Not measured; would be measured by the
processor time of checks with `tree.pending` pairs in flight."""

ASK_ANEW = 0.25
"""Seconds between two questions for another host of trees whose hosts are all silent. By the delay
of events for a host that died, beside the questions that a silent host causes."""

IN_FLIGHT_LEAST = 48
"""Events in flight up to which nothing is held back: one batch of a client's (64) in flight holds
the next back; at 1,000 events per second that are matched within milliseconds nothing is."""

HOLD_MOST = 0.01
"""The longest time in seconds that an event is held back: at 25,000 events per second a full
message comes in that time, and at that rate no event would arrive sooner without it."""

# --- how many there may be (pending_store.py) ---

WINDOW_SECONDS = 0.25
"""Seconds of what hosts accept that may be pending: many times what an acceptance takes where hosts
keep up, and a quarter of the shortest election timeout. By the events per second of hosts that are
just kept busy, beside the elections of a machine that is not (`tests/overlay`)."""

WINDOW_LEAST = 256
"""Pairs that may be pending in any case: a full message of events with one tree. With four times as
many a machine with a twentieth of the usual speed sent most visits twice."""

RATE_PERIOD, RATE_HALF_LIFE = 0.1, 0.5
"""Seconds between two measurements of the rate of acceptances, and in which a higher one before
counts for half: some messages' worth, and two windows."""

WINDOW_SEARCHING = 1_024
"""… and where some wait for a tree to be found: what a search of a second leaves of a thousand
events per second that all visit it."""

SHORTEST_FOR = 10.0
"""Seconds of which the shortest acceptance counts, and of as many before: a route that has become
longer is known after twice that."""

# --- admission (admission.py) ---

MAX_ATTRIBUTES = 1_000
"""Attributes of one event: each may visit a tree. Not measured; would be measured by the time that
an event of this many attributes takes in a node that does nothing else."""

MAX_NAME = 256
"""Characters of an attribute's name, so that all names of an event fit into one walk."""

PUBLISH_TOGETHER = 256
"""Events of several publications that are sent as one batch. A batch has a fixed cost of some 0.1
ms, which these events share; 512 was no faster (measured)."""

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

WAIT_FACTOR, WAIT_MOST = 2.0, 60.0
"""An event counts as lost if its host has not accepted it within `WAIT_FACTOR` times the recent
time of an acceptance there, or within `WAIT_MOST` seconds. Longer times delay events that are lost
between two hosts; with shorter ones, hosts that are behind get everything several times
(docs/design/timeliness.md)."""

LATE_CHECK, LATE_AT_ONCE = 0.5, 64
"""Seconds between two looks whether another host is free for what has waited for `tree.retry`, and
how many events that may be given at one look, if it does not match fewer in a moment: what
publishers give it together, knowing nothing of each other, shall not keep it busy. By the events
that are matched twice (docs/design/timeliness.md)."""

WAIT_HALF_LIFE = 5.0
"""Seconds in which half of what events took at a host is forgotten, where they take less."""

MOVED_FOR = 2.0
"""Seconds that a host that said `TreeMoved` is suspected: it is being given its trees, or soon
named no more. Not measured; would be measured by the time from `Assign` to `Installed`."""

SUSPICIONS_MOST = 4_096
"""Suspicions that are remembered, the oldest forgotten first; as many as cached locations."""

RANKINGS_WATCHED = 32
"""Sets of hosts up to which a publisher chooses again among each when one was behind; beyond, all
its trees ask again."""

REPORT_FOR = 1.0
"""Seconds for which a reported load is used; long beside what an acceptance takes, short beside a
publisher's time-out. Not measured; to be measured by bench/experiments/timeliness."""

OWN_SHARE = 0.5
"""The share of a host's time that one publisher takes to be its own: as much as owners give a host
to do (`TARGET` in owner/constants.py). By the busiest host's share of time and the 99th percentile
of deliveries where few publishers have the events of many hosts (bench/experiments/scaling, load
*value*)."""

SENDS_MOST = 256
"""Visits to one host that are remembered until it accepts them: more than are on their way within
an acceptance's time."""

PREDICTED_MOST = 4_096
"""Hosts whose load is remembered; as many as suspicions."""

# --- locations and summaries (location_cache.py, summary_cache.py) ---

ENTRY_POINTS = 4
"""Entry points of a tree that are remembered beside the located virtual nodes. Not measured; would
be measured by the visits that meet `TreeMoved` after hosts were lost."""

LOCATIONS_PER_TREE = 256
"""Virtual nodes of one tree whose location is remembered. Not measured; would be measured by the
visits that are passed on in trees of more virtual nodes."""

REFRESH_ABSENT = 0.7
"""The share of a term after which *no subscribers* is asked for again while events keep coming:
those that come after its end have to wait for the answer, and cannot be routed together. Not
measured; would be measured by questions against events that waited."""

FENCES_MOST = 256
"""Arcs whose owner is new that are remembered for a term: as many clusters as the ring's cache has
(RingSettings.known_clusters)."""

SUMMARY_RETRY = 0.5
"""Seconds until a question for a summary that was not answered, or without one, is repeated: an
owner waits a quarter of a second or more before it makes one (owner/owned_tree.py)."""

REFRESH_SUMMARY = 0.8
"""The share of the term after which a used summary is asked for again: sooner would cost messages,
later some needless visits while the answer is on its way. Not measured; would be measured by
both."""

REFRESH_TOGETHER = 0.4
"""The share of the term after which a summary is asked for if another one is due. Not measured;
would be measured by questions per term."""

IDLE_MOST = 6
"""Terms that a summary is kept valid together with others though nothing checked it: a minute. Each
costs some 20 bytes of a question that leaves anyway, and an invalidation if it is contradicted. Not
measured; would be measured by visits that rare attributes' summaries save."""

CHECKS_LEAST = 256
"""Events after which a summary that skips few of them is checked no more. Not measured; would be
measured by the processor time of checks against that of visits saved."""

SKIPS_SHARE = 16
"""… few: less than one in this many. A check costs about as much as matching. As above."""

USELESS_FOR = 60.0
"""Seconds after its term until a summary that skipped few is tried again. As above."""

SKIP_RATES_MOST = 1_024
"""Hosts with certain trees of which it is remembered whether events skip them."""

PLANNED_FOR = 1.0
"""Seconds after which a plan is made again though nothing has changed: so late it is noticed that a
summary is worth a question, or no check any more. A tenth of a term (`tree.summary_term`)."""

PLANS_MOST = 64
"""Plans that are kept, by the names of events' attributes: as many shapes of events as are
published at a time. Others are planned for each batch."""

# --- much at once (publisher.py, pending_store.py) ---

SPREAD_SECONDS = 0.02
"""While hosts are behind one is chosen for as many events together as it matches within so long:
what waited for one host, or for room, goes to several others then. A fifth of what deliveries may
take. By how long the last of them waits there, beside the visits."""

SPREAD_EVENTS, SPREAD_MOST = 64, 0.1
"""… but for at least `SPREAD_EVENTS` events, if a host matches them within `SPREAD_MOST` seconds: a
part is a visit and a frame for each interested node, which cost about as much as these events. (A
host that gets little of its machine seems slow: with smaller parts, which cost more, it was slower
still, and the parts smaller, down to three events.)"""

PAIRS_AT_ONCE = 2_048
"""Pairs that are routed one by one in a turn: 15 ms (measured)."""

# --- finding trees (pending_store.py, tree_finder.py) ---

SEARCH_TOGETHER = 0.5
"""Seconds for which what waits for a tree that was found waits for other searches: as long as a
walk of ten hops of 20 ms, a lookup and an answer take. Beyond, the order of the first events is not
kept. Not measured; would be measured by how long searches take in an overlay over continents."""

SEARCHES_MOST = 256
"""Trees whose search others wait for; the searches that began first are forgotten."""

SEARCH_PAUSE = 0.25
"""Seconds before an owner that refused is looked for again. Not measured; would be measured by how
long arcs move."""

SEARCH_PAUSE_SHARE = 0.25
"""The share of the time that an event has waited for a tree that no host serves now, for which the
next search waits: its outage is a quarter longer at most, and needless questions and visits are
few. (At a fixed pace they filled slow links, and what hosts wait for came too late: a seed of the
soak.)"""

SEARCH_PAUSE_MOST = 4.0
"""Seconds of such a pause at most. Not measured; would be measured as the one before."""

REDIRECTS_MOST = 3
"""Owners in a row that are asked without a pause, so that two stale ones do not send a question to
and fro. Not measured; would be measured by redirects per question while arcs move."""

QUESTIONS_MOST = 1_024
"""Questions whose time is remembered: summaries in later answers are not used. Not measured; would
be measured by questions per round trip on slow links."""

# --- hosts that the owner has not named ---

HOSTS_DOUBTED_MOST = 8
"""Hosts of one tree whose acceptances wait for the owner's word: more than a virtual node has."""

DOUBTED_MOST = 20_000
"""Events of one tree that such a host has accepted: as many as may be pending (`tree.pending`)."""

CONFIRMED_MOST = 1_024
"""Hosts of one tree that its owner has named and that are remembered; one that is forgotten is
asked for again."""
