"""What a subscriber knows of the leases of its registrations: per tree, when they last ran for
certain (P1).

A renewal that the owner answers proves that it had the tree's registrations when it came, so their
leases run for `tree.lease` from the time when the renewal was sent, or longer. A node that was
paused or cut off for longer cannot know whether they ran on: the tree is *in doubt*, and its
subscriptions do not count as acknowledged, until a renewal is answered again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from overlay.bounded import BoundedDict
from overlay.upper_tree.subscriber.constants import DOUBT_SHARE, RENEWALS_KEPT


class Renewal:
    """A renewal that was sent to one owner."""

    __slots__ = ("claimed", "sent_at", "unsure")

    def __init__(self, claimed: Iterable[str], unsure: Iterable[str], sent_at: float) -> None:
        self.claimed = tuple(claimed)
        self.unsure = tuple(unsure)
        self.sent_at = sent_at


class Confirmations:
    """When the leases of this node's registrations were confirmed last. Times are the Port's
    seconds."""

    def __init__(self, lease: float) -> None:
        self._term = DOUBT_SHARE * lease
        self._confirmed_at: dict[str, float] = {}
        self._unanswered: dict[str, None] = {}  # trees of the last round
        self._sent: BoundedDict[int, Renewal] = BoundedDict(RENEWALS_KEPT)
        self._number = 0

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Trees for which the last round of renewals has no answer."""
        return tuple(self._unanswered)

    def unconfirmed_for(self, attribute: str, now: float) -> float:
        """Seconds since the tree's leases ran for certain; 0 where nothing was acknowledged yet."""
        return now - self._confirmed_at.get(attribute, now)

    def is_doubtful(self, attribute: str, now: float) -> bool:
        """Whether the tree's leases may have ended."""
        return self.unconfirmed_for(attribute, now) > self._term

    def doubtful_since(self, now: float) -> float | None:
        """When the leases of a doubtful tree ran for certain last; None: no tree is doubtful."""
        earliest = min(self._confirmed_at.values(), default=now)
        return earliest if now - earliest > self._term else None

    def begin_round(self, attributes: Collection[str]) -> None:
        """Note that renewals are sent for these trees, which are all that have registrations."""
        for attribute in [name for name in self._confirmed_at if name not in attributes]:
            self.forget(attribute)
        self._unanswered = dict.fromkeys(self._confirmed_at)

    def sent(self, claimed: Iterable[str], unsure: Iterable[str], now: float) -> int:
        """A renewal leaves for one owner. Returns the number that its answer names."""
        self._number += 1
        self._sent[self._number] = Renewal(claimed, unsure, now)
        return self._number

    def answered(self, number: int, unconfirmed: Collection[str]) -> Renewal | None:
        """An owner has answered a renewal: all that it claimed is there, except in the trees
        `unconfirmed`. Where nothing was claimed, leases that ran go on. Returns the renewal, None
        if it is not known (any more)."""
        renewal = self._sent.pop(number, None)
        if renewal is None:
            return None
        at = renewal.sent_at
        ran_on = [name for name in renewal.unsure if not self.is_doubtful(name, at)]
        for attribute in (*renewal.claimed, *ran_on):
            if attribute in self._confirmed_at and attribute not in unconfirmed:
                self._confirmed_at[attribute] = max(at, self._confirmed_at[attribute])
                self._unanswered.pop(attribute, None)
        return renewal

    def registered(self, attribute: str, now: float) -> None:
        """The owner has acknowledged a registration in this tree."""
        self._confirmed_at.setdefault(attribute, now)

    def forget(self, attribute: str) -> None:
        """The tree has no registrations, or all are made again."""
        self._confirmed_at.pop(attribute, None)
        self._unanswered.pop(attribute, None)
