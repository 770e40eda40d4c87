"""Publishers that may have cached what an owner of this arc, perhaps a lost one, sent (C5, P4).

Which copies publishers have (`InvalidationTable`) is in no log: it changes too often. But a new
primary must not give a SUBACK that a cached summary does not admit, or an event that is published
after it could miss its registration. So the log says *which publishers* have copies at all, which
changes seldom; they are the *cache holders*:

* No publisher is sent a summary before a majority has in the log that it is a cache holder.
* A new primary asks all of them (`AskCached`). Each reports its valid copies, and from then on uses
  no answer of an older epoch that is still on its way. Those copies are invalidated like the new
  primary's own. A SUBACK waits for those who have not answered until their copies have expired for
  certain: one `tree.summary_term`.
* A publisher without a valid copy leaves the log when its link is down, when it reports that it has
  none, or after a while.

Some are in no log: those to whom a cluster sent summaries that forked off, or lost its log (P5)
without a complete replica (owner/registrations/restoration.py). Then it is unknown whom to ask,
and SUBACKs wait for the term; the log says that as well (`has_unknown_holders`).

A primary that asks itself may use its own answer no longer than its leader lease, so that a lost
one need not be asked what it has cached of itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from overlay.chord.events import Elected, Replanted, RoleChanged
from overlay.chord.messages import Cluster
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, ProtocolError, Timer
from overlay.settings import Settings
from overlay.upper_tree.batches import MAX_BATCH
from overlay.upper_tree.events import CopiesReported, CopyInvalidated
from overlay.upper_tree.messages import AskCached, CacheReport
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration
from overlay.upper_tree.owner.tree_log import HOLDERS_PER_ENTRY, CacheHoldersChanged
from overlay.upper_tree.summaries.constants import (
    COPIES_MOST,
    HOLDERS_MOST,
    KEEP_FOR,
    REPORTS_TOGETHER,
    SWEEP_SHARE,
)

# --- which publishers have cached copies of which trees' summaries, for invalidation (C5, C9) ---
#
# A publisher may cache a summary for a short term, and skips visits on the strength of it. The
# SUBACK of a registration that some copy does not admit therefore waits until every holder of such
# a copy has acknowledged its invalidation, or the copy's term is over: every event that is
# published after the SUBACK finds the registration. (These are leases on cached data with write
# invalidation: Gray & Cheriton, SOSP 1989.)
#
# *No subscribers* is the empty summary, with digest 0. A copy is known by its summary's digest and
# by a number that grows with each grant, so that the acknowledgement of an old invalidation does
# not end a younger copy.


class CachedCopy(msgspec.Struct):
    """One publisher's copy of one tree's summary."""

    peer: Peer
    until: float  # it may be used until then
    number: int
    digest: int
    invalidating: bool = False  # `Invalidate` was sent, and no answer has come
    inherited_until: float = 0.0  # until then it may be one that a former owner granted


class InvalidationTable:
    """Remembers, in bounded memory, which publishers hold copies of summaries. Times are the Port's
    seconds."""

    def __init__(self, capacity: int = COPIES_MOST) -> None:
        """`capacity`: the number of copies that are known at most."""
        self.capacity = capacity
        self.number = 0
        """The number of the last granted copy."""
        self._copies: OrderedDict[tuple[str, NodeId], CachedCopy] = OrderedDict()
        self._by_tree: dict[str, dict[NodeId, CachedCopy]] = {}
        self.unknown_until = 0.0
        """Until then publishers may have valid copies that this table does not name: for want of
        room, or since a former owner granted them (cache_holders.py)."""

    def inherit(self, attribute: str, peer: Peer, now: float, left: float, digest: int) -> None:
        """Add a copy that a former owner has granted `peer`, which may use it for `left`
        seconds."""
        self.grant(attribute, peer, now, left, digest)
        copy = self._copies.get((attribute, peer.id))
        if copy is not None:
            copy.inherited_until = now + left

    def grant(self, attribute: str, peer: Peer, now: float, term: float, digest: int = 0) -> None:
        """Grant `peer` a copy of the tree's summary with this digest (0: the tree has no
        subscribers) for `term` seconds."""
        self.number += 1
        until = now + term
        key = (attribute, peer.id)
        if (before := self._copies.get(key)) is not None:
            until = max(until, before.until)  # it uses the old copy until the new one arrives
        copy = CachedCopy(peer, until, self.number, digest)
        if before is not None:
            copy.inherited_until = before.inherited_until
        self._copies[key] = copy
        self._copies.move_to_end(key)
        self._by_tree.setdefault(attribute, {})[peer.id] = copy
        while self._copies:
            oldest, copy = next(iter(self._copies.items()))
            if copy.until > now and len(self._copies) <= self.capacity:
                break
            if copy.until > now:  # evicted while valid: registrations have to wait for its term
                self.expect_unknown(copy.until)
            self._forget(*oldest)

    def expect_unknown(self, until: float) -> None:
        """Until then publishers may have valid copies that this table does not name."""
        self.unknown_until = max(self.unknown_until, until)

    def attributes(self) -> tuple[str, ...]:
        """The trees of which some publisher was granted a copy."""
        return tuple(self._by_tree)

    def holders(self, attribute: str, now: float) -> list[CachedCopy]:
        """The copies of the tree's summary that may still be used."""
        return [b for b in self._by_tree.get(attribute, {}).values() if b.until > now]

    def has_inherited(self, attribute: str, now: float) -> bool:
        """Whether a publisher may use a copy of the tree's summary that a former owner granted."""
        copies = self._by_tree.get(attribute, {}).values()
        return self.unknown_until > now or any(copy.inherited_until > now for copy in copies)

    def invalidated(self, attribute: str, node: NodeId, number: int) -> None:
        """Note that `node` has dropped its copies of the tree's summary up to this number."""
        copy = self._copies.get((attribute, node))
        if copy is not None and copy.number <= number:
            self._forget(attribute, node)

    def _forget(self, attribute: str, node: NodeId) -> None:
        del self._copies[attribute, node]
        tree = self._by_tree[attribute]
        del tree[node]
        if not tree:
            del self._by_tree[attribute]


class HolderSweep(Timer, frozen=True):
    """Look for cache holders whose copies have expired."""


class CacheHolders(Machine):
    """At the primary: keeps the log's list of cache holders, and asks them under a new epoch."""

    def __init__(
        self, port: Port, settings: Settings, owner: Owner, restoration: TreeRestoration
    ) -> None:
        super().__init__(port)
        self.term = settings.tree.summary_term
        self.table = InvalidationTable()
        self.owner = owner
        self.clusters = owner.clusters
        self.trees = owner.trees
        self.hosts = owner.hosts
        self.restoration = restoration
        self._epoch = 0  # under which this node leads; 0: it does not
        self._index: dict[NodeId, int] = {}  # of the entry that named it, if it is this node's own
        self._until: dict[NodeId, float] = {}  # when the last copy expires that it was granted
        self._unreported: dict[NodeId, Peer] = {}  # former primaries' holders that did not report
        self._unreported_until = 0.0  # then all copies of these have expired
        self._unasked: dict[NodeId, None] = {}  # of these, those who may have lost the question
        self._without: dict[NodeId, None] = {}  # reported no copy, and were granted none since
        self._sweep = Alarm(port, HolderSweep())

    # --- before a publisher is sent something that it may cache ---

    def admit(self, peer: Peer) -> int | None:
        """Make `peer` a cache holder. Returns the number of the log entry that has to be committed
        before it is sent a summary (-1: none has to); None if there is no room in the log."""
        if peer.id == self.port.me.id:
            return -1
        holders = self.owner.state.cache_holders
        if holders.get(peer.id) != peer:
            if peer.id not in holders and len(holders) >= HOLDERS_MOST:
                self.port.count("cache_holders_refused")
                return None
            self._index[peer.id] = self._log((peer,))
        self.lease(peer)
        return self._index.get(peer.id, 0)

    def lease(self, peer: Peer) -> float:
        """`peer` is being sent summaries. Returns for how many seconds it may use them."""
        if peer.id == self.port.me.id:
            return min(self.term, self.clusters.lease_left)
        self._until[peer.id] = self.port.now + self.term
        self._without.pop(peer.id, None)
        self._sweep.within(self.term * SWEEP_SHARE)
        return self.term

    def all_known(self) -> bool:
        """Whether every valid copy is in the table, or covered by its `unknown_until`."""
        return not self._unreported or self._unreported_until <= self.port.now

    def has_inherited(self, attribute: str) -> bool:
        """Whether a publisher may use a copy of the tree's summary that a former owner granted."""
        return not self.all_known() or self.table.has_inherited(attribute, self.port.now)

    # --- a new owner ---

    def on_role_changed(self, event: RoleChanged) -> None:
        """Ask the cache holders of the former primary, once under each new epoch."""
        if event.role != "primary" or event.cluster is None:
            self._epoch = 0
            self._forget()
        elif self._epoch != event.cluster.version[0]:
            self._epoch = event.cluster.version[0]
            self._forget()
            self._ask_all(event.cluster)

    def _ask_all(self, cluster: Cluster) -> None:
        state = self.owner.state
        self._ask(cluster, state.cache_holders)
        if state.has_unknown_holders:
            self._wait_out_unknown()

    def _forget(self) -> None:
        self._index.clear()
        self._until.clear()
        self._unreported.clear()
        self._unasked.clear()
        self._without.clear()
        self._sweep.cancel()

    def _ask(self, cluster: Cluster, holders: Mapping[NodeId, Peer]) -> None:
        self._unreported |= holders
        self._unreported_until = self.port.now + self.term
        for peer in holders.values():
            self.port.send(peer, AskCached(cluster))
        if self._unreported:
            self._sweep.within(self.term)

    def on_elected(self, event: Elected) -> None:
        """Under a fork's epoch: its log may lack the cache holders of the other branch."""
        if event.forked:
            self._wait_out_unknown()

    def on_replanted(self, event: Replanted) -> None:
        """Ask the cache holders of a lost cluster whose arc this node now leads, if they are
        known."""
        found, cluster = self.restoration.former_holders, self.clusters.cluster
        known = len(self.owner.state.cache_holders)
        if found is None or cluster is None or known + len(found) > HOLDERS_MOST:
            self._wait_out_unknown()
            return
        for first in range(0, len(found), HOLDERS_PER_ENTRY):
            self._log(found[first : first + HOLDERS_PER_ENTRY])
        self._ask(cluster, {peer.id: peer for peer in found})

    def _wait_out_unknown(self) -> None:
        self.table.expect_unknown(self.port.now + self.term)
        if not self.owner.state.has_unknown_holders:
            self._log((), has_unknown=True)
        self._sweep.within(self.term)

    def on_cache_report(self, sender: Peer, message: CacheReport) -> None:
        """A cache holder reports valid copies that a former primary granted."""
        cluster, left = self.clusters.cluster, self._unreported_until - self.port.now
        if cluster is None or sender.id not in self._unreported or left <= 0.0:
            return
        if (message.key, message.epoch) != (cluster.key, self._epoch):
            return
        if len(message.copies) > MAX_BATCH:
            raise ProtocolError("too many cached summaries in one message")
        for attribute, digest in message.copies:
            self.table.inherit(attribute, sender, self.port.now, left, digest)
        if message.copies:
            self._until[sender.id] = max(self._until.get(sender.id, 0.0), self._unreported_until)
            self.port.emit(CopiesReported(tuple(name for name, _ in message.copies)))
        if message.last:
            if sender.id not in self._until:
                self._without[sender.id] = None
                self._sweep.within(REPORTS_TOGETHER)
            self._reported(sender.id)

    def on_link_up(self, event: LinkUp) -> None:
        """Ask again a cache holder that may not have got the question."""
        cluster = self.clusters.cluster
        if event.peer.id in self._unasked and cluster is not None:
            del self._unasked[event.peer.id]
            self.port.send(event.peer, AskCached(cluster))

    def on_link_down(self, event: LinkDown) -> None:
        """Wait no longer for the report of a node that has left: it has no cache. One that is only
        silent may have; it is asked when it is back."""
        if event.left:
            self._reported(event.peer.id)
        elif event.peer.id in self._unreported:
            self._unasked[event.peer.id] = None

    def _reported(self, node: NodeId) -> None:
        """Note that all copies of this holder are known."""
        self._unasked.pop(node, None)
        if self._unreported.pop(node, None) is not None and not self._unreported:
            self._emit_all_known()

    def _emit_all_known(self) -> None:
        """SUBACKs that waited for reports may be due."""
        for attribute, owned in self.trees.items():
            if owned.pending:
                self.port.emit(CopyInvalidated(attribute))

    # --- expiry ---

    def on_holder_sweep(self, timer: HolderSweep) -> None:
        """Take out of the log whose copies have expired, granted by former primaries or here."""
        self._sweep.rang()
        now, owner = self.port.now, self.owner
        if self._unreported and self._unreported_until <= now:
            self.port.count("cache_holders_waited_out", len(self._unreported))
            self._unreported.clear()
            self._unasked.clear()
            self._emit_all_known()
        holders = owner.state.cache_holders
        removed = tuple(node for node in holders if self._is_over(node, now))
        unknown = owner.state.has_unknown_holders and self.table.unknown_until > now
        if (removed or unknown != owner.state.has_unknown_holders) and not owner.is_handing_over:
            for node in removed:
                self._without.pop(node, None)
                self._until.pop(node, None)
                self._index.pop(node, None)
            self._log((), removed, unknown)
        if holders or unknown:
            self._sweep.within(self.term * SWEEP_SHARE)
        if self._unreported:
            self._sweep.within(self._unreported_until - now)

    def _is_over(self, node: NodeId, now: float) -> bool:
        if node in self._without:  # lost later, it would be asked without need, and waited for
            return True
        until = self._until.get(node, self._unreported_until)
        gone = not self.hosts.is_reachable(node) or node == self.port.me.id
        return until <= now if gone else until + KEEP_FOR <= now

    def _log(
        self,
        added: tuple[Peer, ...],
        removed: tuple[NodeId, ...] = (),
        has_unknown: bool | None = None,
    ) -> int:
        known = self.owner.state.has_unknown_holders if has_unknown is None else has_unknown
        return self.owner.append(CacheHoldersChanged(added, removed, known))
