"""Every number of the lower layer that is no setting (those are `overlay.settings.ViewSettings` and
`WalkSettings`).

Each is a bound against what peers may send, or a choice that was never measured; then it says what
would measure it.
"""

from __future__ import annotations

# --- the exchange of views ---

MAX_UNANSWERED_PERIODS = 3
"""Shuffle periods after which a partner that did not reply leaves the view. Guess: a dead link is
noticed sooner; to be measured by the share of dead entries in views under churn and loss."""

MAX_EXCHANGED = 256
"""Entries of a kind in one exchange, whatever the settings of the sender: a bound on what a message
can cost, a dozen times the default sizes."""

NEAR_SHARE = 0.5
"""Share of a view that is kept for nodes of the own region, if there are enough of them: most
requests of a node to its neighbours, walks above all, then stay within the region …"""

FAR_SHARE = 0.5
"""… and for nodes of other regions: ten of twenty, so that with half of all nodes dead a view still
leads into others (docs/lab/regions.md)."""

RENEW_EVERY = 5
"""Periods after which one place of a ranked view gets another seed: a view of 20 changes in 200 s.
The more often, the sooner views follow who comes, and the more of a view those have who push most,
since they are heard of first (docs/lab/security.md)."""

MAX_HEARD = 256
"""Peers that are remembered where views are ranked, a sample of all that were heard of: a dozen
times a view, so that the best of them for a place is about as good as the best of all. 100 kB."""

HEARD_FOR = 150
"""Shuffles (five minutes) for which news of a peer counts there. In an overlay of a thousand nodes
that name eight peers in an exchange a node hears of each every 70. The longer, the more of those
who are remembered are dead by then, and are tried in vain; the shorter, the more of them are those
who push most, in large overlays. Guess; to be measured by the liars in views of thousands."""

# --- hints about the ring ---

MAX_RING_HINTS = 16
"""Hints that a node remembers, and rings that are known to have ended. Guess; to be measured by the
lookups that start at a wrong cluster in a large ring."""

RING_HINTS_PER_EXCHANGE = 4
"""Hints that an exchange carries beside the sender's own. Guess; measured the same way."""

# --- nodes with a tier ---

MAX_TIERED_REGIONS = 64
"""Regions of which nodes with a tier are remembered: more than a large overlay has. 20 kB."""

TIERED_PER_REGION = 3
"""Nodes with a tier that are remembered of one region: two of them may be out of reach. Guess; to
be measured by the events that enter a region at a node without a tier while others have one."""

# --- what is known to be wrong ---

MAX_TOMBSTONES = 1_024
"""Dead nodes that are remembered: more than die within the life of one entry. Guess; to be measured
by entries of dead nodes that come back when a fifth of a large overlay dies at once."""

MAX_STALE_POINTS = 1_024
"""Access points that are known to be wrong. Guess; to be measured by `stale_points` while trees
move between hosts."""

# --- walks ---

MAX_WALK_ATTRIBUTES = 256
"""Attributes on one walk; more go on several walks. A bound on the message: a name has at most some
hundred bytes."""

POINTS_PER_HIT = 3
"""Access points of one tree that a hit names, so that a publisher has another one where the first
is silent: as many as a virtual node has hosts (`tree.replicas`)."""

MAX_OPEN_WALKS = 8_192
"""Walks of this node that have not ended; beyond, a new one fails at once. Guess: a thousand times
what a publisher of ordinary events has; to be measured by `walks_refused`."""

MAX_HOPS = 1_024
"""Walks with a longer limit or trace are refused: a hundred times the paper's limits (CBDLO,
sections 5.3 and 5.4: 10 and 30)."""

# --- relaying ---

HELPERS = 3
"""Nodes that are asked at once whether they reach a peer whose link is silent: the k of SWIM, whose
authors take 3 (section 3.1; Lifeguard has the same)."""

PROBES_PER_SECOND = 64
"""Connections by way of other nodes that a node opens within a second, each for one indirect probe:
twenty silent links. Where more fall silent together it is rather this node, or a whole network,
that is cut off. Guess; to be measured by the sessions that end while a fifth of the nodes dies."""

DETOURS_MOST = 4_096
"""Connections by way of other nodes that are remembered at either end: as many as there may be
links. The oldest is given up. 0.5 kB each."""

LOST_FOR = 3.0
"""Seconds for which a helper passes nothing on to a node whose session has just ended: half of
`links.dead_after`, in which they would dial a dead node again for each probe. Guess."""

LOST_NODES_MOST = 1_024
"""Number of lost nodes that are remembered, the latest ones: more than die within that time.
Guess."""

# --- peer_records.py ---

RECORD_HOLDS = 86_400.0
"""Seconds for which a node's signed address holds: it signs another one when half of them are over,
and a node that has moved is named at its former address no longer than that."""

RECORD_SKEW = 3_600.0
"""Seconds by which clocks may differ, as for certificates."""

RECORDS_KEPT = 1_024
"""Records whose signature was verified: entries come again and again."""
