"""Registrations follow the policy: the owner registers again what another policy changes.

A registration is kept with what its subscriber asked for (`Registration.confined`), so that no
subscriber has to be asked. It goes the way of every registration: into the log, to the hosts, and
past the publishers whose summaries do not admit it; a policy that permits less reaches the hosts as
quickly as a new subscription. What came from another owner, which may have known another policy, is
looked at likewise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from overlay.chord.events import ArcTaken, Replanted, RoleChanged
from overlay.lower_random.policies import Policies, PolicyChanged
from overlay.machine import Alarm, Machine, Port, Timer
from overlay.upper_tree.confined_registrations import narrowed_again
from overlay.upper_tree.messages import Registration
from overlay.upper_tree.owner.constants import LOOKED_AT_ONCE, NARROWED_AT_ONCE
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.registrations.registry import Registry


class NarrowDue(Timer, frozen=True):
    """Look at more registrations of tenants."""


class PolicyChanges(Machine):
    """Brings the registrations of this node's trees up to the policy that holds."""

    def __init__(self, port: Port, policies: Policies, owner: Owner, registry: Registry) -> None:
        super().__init__(port)
        self._policies = policies
        self._owner = owner
        self._registry = registry
        self._trees: deque[str] = deque()
        """Attributes of those that are still to be looked at."""
        self._ids: Iterator[str] = iter(())
        self._more = Alarm(port, NarrowDue())

    @property
    def is_behind(self) -> bool:
        """Whether registrations are still to be looked at, or to be given to hosts."""
        trees = self._owner.trees.values()
        return bool(self._trees) or any(
            pending.registration.confined for owned in trees for pending in owned.pending.values()
        )

    def on_policy_changed(self, event: PolicyChanged) -> None:
        """Look at all registrations of this node's trees."""
        self._begin()

    def on_trees_came(self, event: RoleChanged | Replanted | ArcTaken) -> None:
        """Trees come from an owner that may have known another policy."""
        self._begin()

    def _begin(self) -> None:
        self._trees = deque(["", *self._owner.trees])  # "": before the first
        self._ids = iter(())
        if len(self._trees) > 1:
            self._more.within(0.0)

    def on_narrow_due(self, timer: NarrowDue) -> None:
        """Look at as many as a turn may."""
        self._more.rang()
        looked = count = 0
        changed: dict[str, list[Registration]] = {}
        while self._trees and looked < LOOKED_AT_ONCE and count < NARROWED_AT_ONCE:
            owned = self._owner.trees.get(self._trees[0])
            id_ = None if owned is None else next(self._ids, None)
            if owned is None or id_ is None:
                self._trees.popleft()
                following = self._owner.trees.get(self._trees[0]) if self._trees else None
                self._ids = iter([] if following is None else list(following.tree.registrations))
                continue
            looked += 1
            registration = owned.tree.registrations.get(id_)
            if registration is None or registration.confined is None:
                continue
            new = narrowed_again(self._policies.confinement, registration)
            if new != registration and self._owner.accepts_registrations(owned.attribute):
                count += 1
                changed.setdefault(owned.attribute, []).append(new)
        for attribute, some in changed.items():
            self._registry.replace(self._owner.trees[attribute], some)
        if count:
            self.port.count("registrations_narrowed", count)
        if self._trees:
            self._more.within(0.0)
