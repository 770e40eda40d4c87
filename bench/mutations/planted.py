"""The faults that `bench/mutations/check.py` plants: what a tired programmer might have written.

Each is a text that occurs exactly once in one file, and what stands there instead. A test keeps the
list in step with the code. What each breaks is a promise of DESIGN.md, section 5, or a mechanism.
"""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """Replace `old`, which occurs once in `path`, by `new`."""

    path: str
    old: str
    new: str


class Planted(NamedTuple):
    """A fault."""

    name: str
    breaks: str
    edits: tuple[Edit, ...]


def one(name: str, breaks: str, path: str, old: str, new: str) -> Planted:
    """A fault of one edit."""
    return Planted(name, breaks, (Edit(path, old, new),))


TREE = "overlay/upper_tree/"
LOW = "overlay/lower_random/"
CHORD = "overlay/chord/"

PLANTED = (
    one(
        "a counter instead of a set in counting match", "C8",
        TREE + "receiver.py",
        "        attributes[attribute] = None\n",
        "        attributes[attribute + '+' * len(attributes)] = None\n",
    ),
    one(
        "no fallback to the ring", "C5",
        TREE + "finder.py",
        "                lost.append(attribute)\n        self.ask_ring(lost)\n",
        "                lost.append(attribute)\n        for attribute in lost:\n"
        "            del self.searches[attribute]\n"
        "            self.port.emit(TreeAbsent(attribute, self.port.now + 1.0))\n",
    ),
    one(
        "a stale map kept: a host ignores every map after its first", "C6",
        TREE + "hosting.py",
        "if message.version >= tree.version:",
        "if tree.version == (0, 0) or not message.intervals:",
    ),
    one(
        "a trace list that is ignored", "C3",
        LOW + "crawl.py",
        "visited = {peer.id for peer in trace}",
        "visited = {me.id}",
    ),
    one(
        "a walk that does not count its hops", "C3",
        LOW + "crawl.py",
        "names, left = walk.attributes, walk.left - 1",
        "names, left = walk.attributes, walk.left",
    ),
    one(
        "a recovery with the whole hop limit", "C4",
        LOW + "crawl.py",
        "limit = walk.limit // 2\n",
        "limit = walk.limit\n",
    ),
    one(
        "the original Chord's list: a new first, and the rest as it was", "P2",
        CHORD + "pointers.py",
        "self.successors = self._list((cluster, *followers))",
        "self.successors = self._list((cluster, *self.successors))",
    ),
    one(
        "registrations that are not handed over on a split", "C6",
        TREE + "balance.py",
        "for batch in in_batches(registrations, weigh_registration):",
        "for batch in in_batches(registrations[:0], weigh_registration):",
    ),
    one(
        "an arc that splits off without its trees", "P1",
        TREE + "owner.py",
        "if mine is not None and mine.key == arc.key:  # the standby has the log",
        "if mine is not None:",
    ),
    one(
        "an arc that both halves of a split own", "P2",
        CHORD + "handover.py",
        "            start=arc.key,\n",
        "            start=own.start,\n",
    ),
    one(
        "duplicates that are not removed", "promise: a duplicate is never shown",
        TREE + "receiver.py",
        "len(dict.fromkeys(numbers)) == len(numbers) and self.seen.has_none(source, numbers)",
        "len(numbers) or self.seen.has_none(source, numbers)",
    ),
    Planted(
        "a publisher that starts again taken for its former self", "V7",
        (
            Edit(TREE + "tally.py",
                 "return {(publisher, incarnation): numbers}", "return {(publisher, 0): numbers}"),
            Edit(TREE + "tally.py",
                 "self._tallies.get((event.publisher, event.incarnation), ())",
                 "self._tallies.get((event.publisher, 0), ())"),
        ),
    ),
    one(
        "delegates that keep their share for themselves", "C11",
        TREE + "delegation.py",
        "            deliveries.spread(event, recipients_of(shares))\n",
        "            deliveries.spread(event, recipients_of(shares)[:0])\n",
    ),
    one(
        "a host that sends all copies itself", "C11",
        TREE + "deliveries.py",
        "for delegate, share in spread(remote, room, whose):",
        "for delegate, share in spread(remote, len(remote) or 1, whose):",
    ),
    one(
        "a limit of copies for each handling alone", "C11",
        TREE + "copies.py",
        "left = self.most - self._sent.of(event)",
        "left = self.most",
    ),
    one(
        "no recheck: whatever arrives is shown to everybody here", "C8, C9",
        TREE + "receiver.py",
        "keys = self.index.match(event.attributes)",
        "keys = sorted({id_.rsplit('/', 1)[0] for id_ in self.required})",
    ),
    one(
        "a SUBACK before the hosts have the registration", "C6",
        TREE + "registry.py",
        "            and owned.installed_everywhere(waiting, self.owner.leases.is_over)\n",
        "",
    ),
    one(
        "a SUBACK while somebody still believes that nobody subscribes", "C5",
        TREE + "registry.py",
        "            and self.beliefs.is_over(waiting)\n",
        "",
    ),
    one(
        "a new primary that asks nobody what the former one said", "P4",
        TREE + "believers.py",
        "self._ask(cluster, state.believers)",
        "self._ask(cluster, {})",
    ),
    one(
        "a publisher that is told before the log names it", "P1",
        TREE + "beliefs.py",
        "            if index is not None and not self._is_logged(index):\n",
        "            if False:\n",
    ),
    one(
        "summaries that are never taken back", "C9",
        TREE + "beliefs.py",
        "if unharmed and belief.digest == unharmed:",
        "if belief.digest:",
    ),
    one(
        "a SUBACK after the first of several registrations", "C6",
        TREE + "registrar.py",
        "        return all(\n            self.placed[key].acknowledged\n",
        "        return any(\n            self.placed[key].acknowledged\n",
    ),
    one(
        "leases that are not renewed", "C6",
        TREE + "registrar.py",
        "            self.port.send(peer, Renew(self.incarnation, tuple(claims), tuple(doubtful)))",
        "            del peer, claims, doubtful",
    ),
    one(
        "registrations of the dead that never end", "promise: bounded state",
        TREE + "registry.py",
        "                if lapsed:\n",
        "                if False:\n",
    ),
    one(
        "hosts that keep what was unsubscribed", "C6",
        TREE + "hosting.py",
        "                tree.uninstall(id_)\n",
        "                del id_\n",
    ),
    one(
        "a host that accepts events for a tree that it does not serve", "C6",
        TREE + "visiting.py",
        "self.port.send(self.visit.origin, moved)",
        "self.port.send(self.visit.origin, "
        "Accepted(incarnation, (((attribute,), tuple(sequences)),), ()))",
    ),
    one(
        "an interval without its lower end", "C6",
        TREE + "hosted.py",
        "number = bisect_right(self._starts, spot) - 1",
        "number = bisect_right(self._starts, spot) - 1 - (spot in self._starts)",
    ),
    one(
        "a midpoint tree with a wrong right child", "C7",
        TREE + "partition.py",
        "        yield (index + 1 + high) // 2\n",
        "        yield min(index + 1, high - 1)\n",
    ),
    one(
        "visits on a broken link taken for accepted", "promise: nothing lost in the quiet",
        TREE + "publisher.py",
        "            if host == lost\n        ]\n        self._route(again, stale=True)",
        "            if host == lost\n        ]\n        self._end(again)",
    ),
    one(
        "a host that serves without a lease", "C6",
        TREE + "hosting.py",
        "return self.leases.covers(tree.key, self._highest(tree), self.port.now)",
        "return self.leases.covers(tree.key, self._highest(tree), self.port.now) or bool(tree)",
    ),
    one(
        "a SUBACK that waits for no host's lease to end", "C6",
        TREE + "owner.py",
        "return any(n not in self.dead or self.leases.may_serve(n) for n in owned.strays)",
        "return any(n not in self.dead for n in owned.strays)",
    ),
    one(
        "virtual nodes that stay with the dead", "P4",
        TREE + "balance.py",
        "            found.append(entry.hosts if same else hosts)\n",
        "            same = same or any(host.id in self.owner.dead for host in entry.hosts)\n"
        "            found.append(entry.hosts if same else hosts)\n",
    ),
    one(
        "a gap in a link's numbers overlooked", "M3",
        "overlay/links/receive_buffer.py",
        "        if batch.number == self.expected:\n",
        "        self.expected = max(self.expected, batch.number)\n"
        "        if batch.number == self.expected:\n",
    ),
    one(
        "a wrong digest overlooked", "V3",
        "overlay/links/receive_buffer.py",
        "        if zlib.crc32(batch.body) != batch.digest:\n",
        "        if False:\n",
    ),
    one(
        "a table of access points without a bound", "C2",
        LOW + "access_points.py",
        "BoundedDict(settings.access_points)",
        "BoundedDict(10 * settings.access_points)",
    ),
    one(
        "a primary that ignores its epoch", "P4",
        CHORD + "pulse.py",
        "return not self.log.fenced and self.lease_left() >= 0.0",
        "return bool(self.log.voters)",
    ),
    one(
        "a candidate that goes on though it heard the primary again", "P4",
        CHORD + "election.py",
        "if campaign.trial and self.pulse.heard_at >= campaign.since:",
        "if False:",
    ),
    one(
        "a bully without a majority", "P4",
        CHORD + "election.py",
        "if len(campaign.granted) < self.log.majority():",
        "if not campaign.granted:",
    ),
    one(
        "a voter that acknowledges what it has not taken", "P1",
        CHORD + "following.py",
        "        for item in message.items:\n",
        "        following = message.after[1] + len(message.items)\n"
        "        self.port.send(sender, LogAck(message.key, message.epoch, following))\n"
        "        for item in message.items[:1]:\n",
    ),
    one(
        "a voter that acknowledges before it stores", "P1",
        CHORD + "following.py",
        "        self.journal.append(message.items)\n",
        "",
    ),
    one(
        "a primary that leads on after it was started again", "P1",
        CHORD + "seat.py",
        "        self.resting = cluster.primary.id == self.port.me.id\n",
        "        self.resting = False\n",
    ),
    one(
        "an heir that serves before that is decided", "P1",
        CHORD + "taking_over.py",
        "        self.port.set_timer(ASK_ARC, AskArcDue())\n\n    # -- an arc",
        "        self.port.set_timer(ASK_ARC, AskArcDue())\n"
        "        self.on_arc_given(sender, ArcGiven(arc, True))\n\n    # -- an arc",
    ),
    one(
        "a lost cluster that nobody takes the place of", "P5",
        CHORD + "recovery.py",
        "        if self.seat.cluster is not None:\n            self.on_inherit(asking.epoch)\n",
        "        if self.seat.cluster is not None:\n",
    ),
    one(
        "a fork under the next epoch", "P5",
        CHORD + "forks.py",
        "return (epoch // FORK + 1) * FORK + first",
        "return epoch + 1 + 0 * first",
    ),
    one(
        "publishers told of trees that are not there again yet", "P5",
        TREE + "replanting.py",
        "self._arc, self._until, self._end = arc, now + LEAST, now + MOST",
        "self._arc, self._until, self._end = arc, now, now",
    ),
    one(
        "a lost cluster's trees planted with one registration each", "P5",
        TREE + "adopting.py",
        "for id_, registration in tree.registrations.items():",
        "for id_, registration in list(tree.registrations.items())[:1]:",
    ),
    one(
        "trees of a copy told of before their hosts serve", "P5",
        TREE + "adopting.py",
        "            owner.replanting.plant(tree.attribute, partial(self._is_served, owned))\n",
        "",
    ),
    one(
        "a SUBACK that waits for no copy outside of the cluster", "P5",
        CHORD + "observers.py",
        "return all(o.matched > index for o in self.observers.values() if o.awaited)",
        "return index >= 0",
    ),
    one(
        "a compaction that forgets the promises", "P4",
        CHORD + "journal.py",
        "records = (*self.promises.values(), *told, *log)",
        "records = (*told, *log)",
    ),
    one(
        "a ring that ends before its registrations are adopted", "P2",
        TREE + "uniting.py",
        "        if not missing:\n",
        "        if missing:\n            self.clusters.united(UNITED)\n        if not missing:\n",
    ),
    one(
        "a ring that ends while its hosts serve", "P2",
        TREE + "uniting.py",
        "        if self._is_stopped():\n",
        "        if self._is_stopped() or self._stopping:\n",
    ),
    one(
        "a cluster that ends with its ring before the others are united", "P2",
        CHORD + "merging.py",
        "            self._leading, self._since = min(self._leading + 1, ENDED), self.port.now\n",
        "            self._leading, self._since = ENDED, self.port.now\n",
    ),
    one(
        "ways into another ring's trees taken for ours", "C2",
        LOW + "access_points.py",
        "        if point.ring != self.ring:\n",
        "        if point.ring == -1:\n",
    ),
    one(
        "two that outlive the same fork take the same epoch", "P5",
        CHORD + "forks.py",
        " + (rng.getrandbits(OUTLIVING) << ELECTIONS)",
        "",
    ),
)  # fmt: skip
