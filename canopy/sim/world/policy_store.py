"""A node's policy in a simulated world: signed by whoever knows how to write one down."""

from __future__ import annotations

import msgspec

from overlay.tenants.policy import Policy

_GENUINE = b"signed "


def sealed(policy: Policy) -> bytes:
    """A policy as it travels."""
    return _GENUINE + msgspec.msgpack.encode(policy)


class SimulatedPolicyStore:
    """Keeps the highest version: an `overlay.lower_random.policies.PolicyStore`."""

    def __init__(self) -> None:
        self.policy: Policy | None = None

    def current(self) -> tuple[int, bytes]:
        """The version, and the policy as it travels."""
        return (0, b"") if self.policy is None else (self.policy.version, sealed(self.policy))

    def accept(self, data: bytes) -> int:
        """Keep what is newer, if it is genuine. Returns the version that holds now."""
        if data.startswith(_GENUINE):
            found = msgspec.msgpack.decode(data[len(_GENUINE) :], type=Policy)
            if found.version > self.current()[0]:
                self.policy = found
        return self.current()[0]
