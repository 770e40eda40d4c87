"""Ends the serving of all trees of an arc, before it goes to another owner (C6).

Every host is ordered to drop its virtual nodes, and every publisher its summaries. Both is done
when each has said so, or its serving lease, or the term of its summary, is over for certain. From
then on no event is matched by what this owner has installed, and none passes its trees by; events
that are published wait where they are published.
"""

from __future__ import annotations

from overlay.machine import Port
from overlay.upper_tree.messages import Assign
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registrations.registry import Summaries


class TreeStop:
    """At the primary: how far the trees that it owns have stopped."""

    def __init__(self, port: Port, owner: Owner, summaries: Summaries) -> None:
        self.port = port
        self._owner = owner
        self._trees = owner.trees
        self._hosts = owner.hosts
        self._summaries = summaries
        self._stopping = False  # hosts were sent the order to stop

    def step(self) -> bool:
        """Give the orders, once no map is being changed. Whether everything has stopped."""
        if not self._stopping:
            if any(owned.is_changing for owned in self._trees.values()):
                return False  # which host serves what is just being changed
            self._stopping = True
            for attribute, owned in self._trees.items():
                version = self._owner.next_version()
                owned.begin_stop(version)
                for host in self._hosts.reachable(owned).values():
                    self.port.send(host, Assign(attribute, version))
        self._summaries.invalidate_all()
        return self._is_stopped()

    def _is_stopped(self) -> bool:
        may_serve = self._owner.leases.may_serve
        return self._summaries.none_cached() and not any(
            may_serve(host) for owned in self._trees.values() for host in owned.stopping_hosts
        )

    def forget(self) -> None:
        """This node owns these trees no more."""
        self._stopping = False

    def cancel(self) -> None:
        """The trees stay: hosts, which may have dropped everything, are given it anew."""
        stopped, self._stopping = self._stopping, False
        if stopped:
            for owned in self._trees.values():
                owned.cancel_stop()
        self._hosts.watch()
        self._owner.rebalance_soon()
