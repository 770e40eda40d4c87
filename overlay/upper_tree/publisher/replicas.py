"""C6: which replica of a virtual node a publisher visits, and which hosts it suspects.

All hosts of a virtual node have all of its registrations, so any of them will do. A publisher ranks
hosts by a hash of itself and the host and takes the first: it visits the same one each time, so
that its link stays open, it visits one host for all trees that share their hosts, and publishers
spread. If it is a host itself it comes first, since that costs no message; then come hosts in its
own region and other near ones (M1).

A host that is behind is passed over for one that will be done sooner (load_prediction.py), but not
for one that shares its processors (machines.py): events would only leave their order. One that
is known to be sub-healthy is used where all others are, or are suspected (T6).

A host that does not accept is *suspected*, and comes last. One is silent that has not accepted
anything for the time-out below while something waits for it, and has not said either that it waits
there; one that answers `TreeMoved` is
suspected for that tree only. A suspicion ends when the host accepts, or after a while, so that a
host that was only slow, or is given back its trees, is used again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from overlay.bounded import BoundedDict
from overlay.health import Health
from overlay.machine import NodeId, Peer, Region
from overlay.settings import TreeSettings
from overlay.upper_tree.host_load import HostLoad, hosts_of, machine_of
from overlay.upper_tree.partition import ranked
from overlay.upper_tree.publisher.constants import (
    MOVED_FOR,
    RANKINGS_WATCHED,
    SILENT_FOR,
    SMOOTHING,
    SUSPICIONS_MOST,
    TIMEOUT_FACTOR,
    TIMEOUT_FIRST,
    TIMEOUT_LEAST,
    WAIT_FACTOR,
    WAIT_HALF_LIFE,
    WAIT_MOST,
)
from overlay.upper_tree.publisher.load_prediction import LoadPredictor


class LastWord(msgspec.Struct):
    """The time at which a host last accepted events, or reported that events wait there. The record
    is changed in place, by `ReplicaSelector.accepted`: it is written for every acceptance, and
    assigning to a `BoundedDict` costs a microsecond."""

    at: float
    wait: float = 0.0
    """Seconds that an event may take there: as long as one took, or what waited would take, of
    late."""


class Ranking(msgspec.Struct):
    """Hosts in the order of preference, and the one to visit while none of them is suspected."""

    order: list[Peer]
    chosen: Peer
    chosen_at: int
    """The count of `ReplicaSelector.changes`."""
    is_choice: bool
    """Whether more than one of them may be chosen while none is suspected."""


class ReplicaSelector:
    """One publisher's choice among the hosts that replicate a virtual node. Times are the Port's
    seconds."""

    def __init__(
        self,
        me: NodeId,
        timeout_most: float,
        by_time: bool = True,
        health: Health | None = None,
        region: Region = "",
        machine: str = "",
        processors: int = 1,
    ) -> None:
        """`timeout_most`: the seconds after which a host counts as silent, however slow hosts were
        before. `by_time`: whether a host that is behind is passed over (P7). `health`: the known
        health of hosts; None: it is never known. `region`: the publisher's region. `machine`: the
        publisher's machine ("": no host is on it). `processors`: the number of processors of this
        machine."""
        self.me = me
        self.region = region
        self._machine = machine
        self._here = hosts_of(processors)
        self._health = health
        self._health_changes = 0  # as of the last `expire`
        self.by_time = by_time
        self.predictor = LoadPredictor()
        self.timeout_most = timeout_most
        self.changes = 0
        """Grows whenever `choose` may answer differently than before."""
        self._now = 0.0  # of the last `expire`
        self._suspected: BoundedDict[tuple[str, NodeId], float] = BoundedDict(SUSPICIONS_MOST)
        """(attribute, or "" for all trees; host) -> until when."""
        self._heard_at: BoundedDict[NodeId, LastWord] = BoundedDict(SUSPICIONS_MOST)
        self._rankings: BoundedDict[tuple[Peer, ...], Ranking] = BoundedDict(SUSPICIONS_MOST)
        self._smoothed: float | None = None  # seconds from a visit to its acceptance

    @classmethod
    def configured(
        cls, me: Peer, settings: TreeSettings, health: Health, processors: int
    ) -> ReplicaSelector:
        """The choice of the node `me` with these settings, on a machine with `processors`
        processors."""
        return cls(
            *(me.id, settings.retry, settings.choice == "time", health, me.region),
            *(machine_of(me), processors),
        )

    # --- choosing ---

    def choose(self, attribute: str, hosts: Sequence[Peer]) -> Peer:
        """The host to visit for this tree, of these (at least one)."""
        if len(hosts) == 1:
            return hosts[0]
        key = tuple(hosts)
        ranking = self._rankings.get(key)
        if ranking is None:
            order = ranked(self.me, hosts, self.region)
            is_choice = len(self._apart(order)) > 1
            best = self._best(order)
            ranking = self._rankings[key] = Ranking(order, best, self.changes, is_choice)
        if self._suspected:
            order = [host for host in ranking.order if not self.suspects(attribute, host.id)]
            return self._best(order or ranking.order)
        if ranking.chosen_at != self.changes:
            ranking.chosen, ranking.chosen_at = self._best(ranking.order), self.changes
        return ranking.chosen

    def _best(self, order: Sequence[Peer]) -> Peer:
        if self._health is not None:
            order = self._health.healthiest(order)
        return self.predictor.best(self._apart(order), self._now) if self.by_time else order[0]

    def _apart(self, order: Sequence[Peer]) -> Sequence[Peer]:
        """Return the hosts, in this order, that do not compete for the same processors. Of the
        hosts on the publisher's own machine, keep only as many as its processors can serve."""
        here = [host.id for host in order if machine_of(host) == self._machine][self._here :]
        return [host for host in order if host.id not in here] if here else order

    def suspects(self, attribute: str, node: NodeId) -> bool:
        """Whether this host of the tree is to be chosen last."""
        return ("", node) in self._suspected or (attribute, node) in self._suspected

    def is_free(self, node: NodeId, now: float) -> bool:
        """Whether nothing is predicted to wait at a host. Where hosts are not chosen by that, no
        host is taken to be free."""
        return self.by_time and self.predictor.is_free(node, now)

    def outdoes(self, one: Peer, other: Peer, now: float) -> bool:
        """Whether `one` is known to be healthier than `other`, or `other` is far behind it."""
        if self._health is not None and other not in self._health.healthiest((one, other)):
            return True
        return self.by_time and self.predictor.is_behind(other.id, one.id, now)

    def at_once(self, events: int) -> int:
        """The number of `events` events for which a host is to be chosen together, at least one:
        all of them where there is nothing to choose."""
        most = self.predictor.at_once if self.by_time else None
        if most is None or not any(each.is_choice for each in self._rankings.values()):
            return max(1, events)
        return max(1, min(events, most))

    # --- learning ---

    @property
    def timeout(self) -> float:
        """Seconds without an acceptance after which a host is silent: a multiple of the smoothed
        time that hosts take (RFC 6298, section 2), within bounds."""
        if self._smoothed is None:
            return min(TIMEOUT_FIRST, self.timeout_most)
        return min(max(TIMEOUT_LEAST, TIMEOUT_FACTOR * self._smoothed), self.timeout_most)

    def sent(self, node: NodeId, events: int, now: float) -> None:
        """Note that events are sent to a host."""
        self.predictor.sent(node, events, now)

    def waits(self, node: NodeId, now: float, load: HostLoad | None) -> None:
        """Note that a host has accepted nothing more, but works, and reports its load."""
        self.accepted(node, None, now, load, -math.inf)

    def accepted(
        self,
        node: NodeId,
        took: float | None,
        now: float,
        load: HostLoad | None = None,
        upto: float | None = None,
    ) -> None:
        """Note that a host has accepted, `took` seconds after it was sent (None: not known), all
        that was sent up to `upto` (None: by `took`), and reports its load (None: nothing
        waits)."""
        if took is not None:
            upto = now - took
            smoothed = took if self._smoothed is None else self._smoothed
            self._smoothed = smoothed + SMOOTHING * (took - smoothed)
        self.predictor.reported(node, load, now, upto)
        took = took or 0.0
        last = self._heard_at.get(node)
        if last is None:
            last = self._heard_at[node] = LastWord(now)
        else:
            self._heard_at.move_to_end(node)
        if load is not None and load.service > 0:
            took = max(took, load.queue / load.service)
        if last.wait:
            took = max(took, last.wait * 0.5 ** ((now - last.at) / WAIT_HALF_LIFE))
        last.wait, last.at = took, now
        if self._suspected.pop(("", node), None) is not None:
            self.changes += 1

    def late_after(self, node: NodeId) -> float:
        """Seconds after which an event that this host has not accepted may have been lost on its
        way: several times what events took there of late, and no less than `timeout_most`."""
        last = self._heard_at.get(node)
        if last is None:
            return self.timeout_most
        return max(self.timeout_most, min(WAIT_FACTOR * last.wait, WAIT_MOST))

    def silent_from(self, node: NodeId, since: float) -> float:
        """Return the time from which a host counts as silent that was sent something at `since` and
        accepts nothing further."""
        last = self._heard_at.get(node)
        return (since if last is None else max(since, last.at)) + self.timeout

    def suspect_silent(self, node: NodeId, now: float) -> None:
        """Choose other hosts for a while, since this one is silent."""
        self._suspect(("", node), now + SILENT_FOR)

    def suspect_moved(self, attribute: str, node: NodeId, now: float) -> None:
        """Note the host's answer that it does not serve this tree (now)."""
        self._suspect((attribute, node), now + MOVED_FOR)

    def _suspect(self, what: tuple[str, NodeId], until: float) -> None:
        self.changes += what not in self._suspected
        self._suspected.renew(what, until)

    def expire(self, now: float) -> None:
        """Drop expired suspicions, and update the predictions of which hosts are behind."""
        self._now = now
        if self.predictor.update(now):
            self._choose_again()
        if self._health is not None and self._health.changes != self._health_changes:
            self._health_changes = self._health.changes
            self.changes += 1
        if self._suspected and min(self._suspected.values()) <= now:
            for what in [what for what, until in self._suspected.items() if until <= now]:
                del self._suspected[what]
            self.changes += 1

    def _choose_again(self) -> None:
        """Choose hosts again, since one was behind. A publisher's trees share few sets of hosts;
        where these are few, they show whether any choice changes."""
        if self._suspected or len(self._rankings) > RANKINGS_WATCHED:
            self._rankings.clear()  # those that are still asked for come back
            self.changes += 1
            return
        chosen = [self._best(ranking.order) for ranking in self._rankings.values()]
        rankings = list(zip(self._rankings.values(), chosen, strict=True))
        self.changes += any(ranking.chosen != best for ranking, best in rankings)
        for ranking, best in rankings:
            ranking.chosen, ranking.chosen_at = best, self.changes

    def __len__(self) -> int:
        """Return the number of suspicions. Used by checks."""
        return len(self._suspected)
