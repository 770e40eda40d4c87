"""Gives hosts the registrations of virtual nodes that they gain, some in each turn (C6).

A host that takes a virtual node over, and after an election every host, is given all of its
registrations. In one turn that may be 100,000, a second in which the owner does nothing else. So a
turn sends a part; hosts that gain the same are sent the very same messages, which are encoded once.

What a host is sent is what is registered when it is sent: a registration that has ended since the
transfer began is left out, and one that has come since was sent to the host by itself
(registry.py). The order to serve follows the last part, so no host serves before it has everything.
A change of the map that is given up, or is overtaken by another, ends its transfer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from matching import Interval
from overlay.machine import Alarm, Machine, NodeId, Peer, Port, Timer
from overlay.upper_tree.batches import in_batches, weigh_registration
from overlay.upper_tree.messages import Install, Registration
from overlay.upper_tree.owner.constants import TRANSFERRED_AT_ONCE
from overlay.upper_tree.owner.owned_tree import OwnedTree
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.partition import PartitionMap
from overlay.upper_tree.shards import lies_in


class TransferDue(Timer, frozen=True):
    """Send hosts more of the registrations that they gain."""


class Transfer(msgspec.Struct):
    """The state of the transfer of registrations for one change of a tree's map."""

    owned: OwnedTree
    map: PartitionMap
    groups: Sequence[tuple[tuple[Interval, ...], Sequence[Peer]]]
    """Hosts that gain the same intervals."""
    left: deque[str]  # registrations that were not sent yet

    @property
    def is_wanted(self) -> bool:
        """Whether the change is still under way."""
        return self.owned.next_map is self.map

    def awaits(self, host: NodeId) -> bool:
        """Whether it is sent to this host."""
        return any(host == peer.id for _, hosts in self.groups for peer in hosts)


class RegistrationTransfers(Machine):
    """Sends registrations to hosts that gain virtual nodes; the order to serve them behind."""

    def __init__(self, port: Port, owner: Owner) -> None:
        super().__init__(port)
        self._owner = owner
        self._trees = owner.trees
        self._under_way: dict[str, Transfer] = {}
        self._more = Alarm(port, TransferDue())
        self._done: tuple[float, int] = (0.0, 0)  # in the turn of that time so many registrations

    def begin(
        self, owned: OwnedTree, new: PartitionMap, gained: Mapping[Peer, tuple[Interval, ...]]
    ) -> None:
        """Begin to prepare `new`: send each host the registrations in the intervals that it gains,
        then its part of the map. A turn sends as much as it may, and the next turns the rest."""
        groups: dict[tuple[Interval, ...], list[Peer]] = {}
        for host, intervals in gained.items():
            groups.setdefault(intervals, []).append(host)
        ids = deque(owned.tree.registrations)
        self._under_way[owned.attribute] = Transfer(owned, new, tuple(groups.items()), ids)
        self._send_some()

    def is_under_way(self, owned: OwnedTree, host: NodeId) -> bool:
        """Whether the host was not sent everything yet, and so not the order to serve: an answer
        of its is to an earlier one."""
        transfer = self._under_way.get(owned.attribute)
        if transfer is None or transfer.owned is not owned or not transfer.is_wanted:
            return False
        return transfer.awaits(host)

    def on_transfer_due(self, timer: TransferDue) -> None:
        """Send the next registrations of the transfers under way, `TRANSFERRED_AT_ONCE` at most."""
        self._more.rang()
        self._done = (self.port.now, 0)
        self._send_some()

    def _send_some(self) -> None:
        done = self._done[1] if self._done[0] == self.port.now else 0
        while self._under_way and done < TRANSFERRED_AT_ONCE:
            attribute, transfer = next(iter(self._under_way.items()))
            is_owned = self._trees.get(attribute) is transfer.owned
            if not is_owned or not transfer.is_wanted:
                del self._under_way[attribute]
                continue
            count = min(len(transfer.left), TRANSFERRED_AT_ONCE - done)
            self._send_part(transfer, [transfer.left.popleft() for _ in range(count)])
            done += count
            if not transfer.left:
                del self._under_way[attribute]
                for _, hosts in transfer.groups:
                    for host in hosts:
                        assigned = self._owner.assignment(transfer.map, attribute, host.id)
                        self.port.send(host, assigned)
        self._done = (self.port.now, done)
        if self._under_way:
            self._more.within(0.0)

    def _send_part(self, transfer: Transfer, ids: Sequence[str]) -> None:
        get = transfer.owned.tree.registrations.get
        part = [registration for id_ in ids if (registration := get(id_)) is not None]
        for gained, hosts in transfer.groups:
            wanted = [one for one in part if lies_in_any(one, gained)]
            for some in in_batches(wanted, weigh_registration):
                message = Install(transfer.owned.attribute, self._owner.epoch, some)
                for host in hosts:
                    self.port.send(host, message)


def lies_in_any(registration: Registration, intervals: Sequence[Interval]) -> bool:
    """Whether a registration belongs to one of the virtual nodes with these intervals."""
    return any(lies_in(registration, interval) for interval in intervals)
