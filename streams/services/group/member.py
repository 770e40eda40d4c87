"""What a shard's leader knows of one member of a group."""

from __future__ import annotations

from overlay.machine import NodeId, Peer
from streams.groups.messages import Attachment

MemberKey = tuple[NodeId, int]
"""A member's node and number."""

BYTES_MOST = 1024 * 1024
"""Bytes of rows that a member is sent before it has settled some, unless one row has more."""


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
        """Which program it is."""
        self.attachment = attachment
        self.credit = credit
        """Rows that it may have at once."""
        self.place = attachment[1]
        """The leader's own number of this member."""
        self.leases: dict[int, int] = {}
        """What it has: offset of the row by lease."""
        self.bytes = 0
        self.at = 0.0
        """The newest time that it has named, by its clock."""
        self.kept_at = 0.0
        """When its node was heard of it last."""

    @property
    def key(self) -> MemberKey:
        """Its name at this shard."""
        return self.peer.id, self.number

    @property
    def has_room(self) -> bool:
        """Whether it may be sent another row."""
        return len(self.leases) < self.credit and (not self.leases or self.bytes < BYTES_MOST)
