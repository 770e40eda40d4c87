"""One member of a group at a shard's leader."""

from __future__ import annotations

from overlay.machine import NodeId, Peer
from streams.programs.group.messages import Attachment

MemberKey = tuple[NodeId, int]
"""A member's node and number."""

BYTES_MOST = 1024 * 1024
"""The limit of the bytes of a member's leased rows, unless one row has more."""


class Member:
    """One program at one shard."""

    def __init__(
        self,
        peer: Peer,
        number: int,
        name: str,
        token: str,
        attachment: Attachment,
        credit: int,
    ) -> None:
        self.peer = peer
        self.number = number
        self.name = name
        self.token = token
        """The token of its program."""
        self.attachment = attachment
        self.credit = credit
        """Rows that it may have at once."""
        self.place = attachment[1]
        """The leader's own number of this member."""
        self.leases: dict[int, int] = {}
        """The offsets of its rows, by lease."""
        self.bytes = 0
        self.at = 0.0
        """The newest time in its messages, by its clock."""
        self.kept_at = 0.0
        """When its node last kept it alive."""

    @property
    def key(self) -> MemberKey:
        """Its identity at this shard."""
        return self.peer.id, self.number

    @property
    def has_room(self) -> bool:
        """Whether it may be sent another row."""
        return len(self.leases) < self.credit and (not self.leases or self.bytes < BYTES_MOST)
