"""Checks of a world; each returns `Violation`s.

Deliveries: `oracle` (brute force: every event against every selector) and `deliveries`. At rest:
`ownership` (arcs and partition maps, one ring: P2, P5; Zave's invariants of Chord), `node_state`
(subscribers, owners and hosts agree; bounds; routes in trees: C7), `cluster_logs` (P1, P4; at every
moment). Of the trace records: `trace_rules` (walks, paths, copies, counting). `failure_report`
selects the records that explain a violation. The checks read the machines' state and change
nothing.
"""

from __future__ import annotations

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """A property that does not hold. `about` names the event and the subscription concerned, if
    any, by their identities (`failure_report`)."""

    kind: str  # missing, spurious, duplicate, altered, late, unanswered, map, arc, …
    text: str
    about: tuple[str, ...] = ()
