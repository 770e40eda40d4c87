"""Signatures and certificates in a simulated world, in which no node uses another's secret and
verifying is cheap."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from math import inf
from typing import Any, NamedTuple

import msgspec

from overlay.links.statements import Chain, Signature
from overlay.machine import NodeId
from overlay.rights import Role
from overlay.tenants.policy import Policy


class Held(NamedTuple):
    """A node's certificate holds between these; seconds since 1970."""

    begins: float
    ends: float


class SimulatedCertificates:
    """The certificates of all nodes of a world, by their names.

    They follow the rules of a process (canopy/wire/process/security.py): who starts without a
    certificate that holds gets one first; who runs asks an issuer for the next one long before the
    end, again and again while none is reached; nobody takes a connection whose certificate has
    ended, by its own wall clock. A connection keeps the certificate that it was opened with, so it
    is cut off when that ends, and opened again with the next one.
    """

    def __init__(
        self,
        life: float = inf,
        renewals: Callable[[], Any] = lambda: None,
        is_issuing: Callable[[str], bool] = lambda name: True,
        stretch: float = 1.0,
    ) -> None:
        """`life`: seconds that one holds; `renewals`: makes the `RenewalTimes` of one process
        (canopy/wire/keys/rotation.py); `is_issuing`: whether the node of this name reaches an
        issuer now; `stretch`: how many times as old a certificate counts as it is, for
        renewals."""
        self.life = life
        self.renewed = 0
        self.failed = 0
        """Number of a node's requests without an answer."""
        self.cut_off = 0
        """Connections whose certificate has ended, at each of their ends that noticed."""
        self._make = renewals
        self._is_issuing = is_issuing
        self._stretch = stretch
        self._held: dict[str, Held] = {}
        self._times: dict[str, Any] = {}

    def begin(self, name: str, now: float) -> None:
        """A process of this node starts. One whose certificate has ended joins again, which is
        taken to succeed."""
        self._times[name] = self._make()
        if self.ends(name) < now or name not in self._held:
            self._held[name] = Held(now, now + self.life)

    def look(self, name: str, now: float) -> None:
        """Ask for the node's next certificate, if it is time."""
        times, begins = self._times[name], self._held[name].begins
        if times.is_time(begins + (now - begins) * self._stretch, begins) and times.may_ask(now):
            times.asks(now)
            if self._is_issuing(name):
                times.granted()
                self.renewed += 1
                self._held[name] = Held(now, now + self.life)
            else:
                self.failed += 1

    def ends(self, name: str) -> float:
        """When the certificate ends with which the node opens connections."""
        return self._held[name].ends if name in self._held else inf


AUTHORITY = "authority"


class SimulatedSigner:
    """Signs as one node, with a secret that follows from the world's: a `Signer`. Only nodes of the
    world have valid chains; a liar may make a signer, but its chain is not accepted."""

    def __init__(
        self,
        node: NodeId,
        world: str,
        role: Role = Role.VOTER,
        wall: Callable[[], float] = lambda: 0.0,
        ends: Callable[[], float] = lambda: inf,
    ) -> None:
        """`role`: that in the node's certificate, which `ends` at that time of the clock that
        `wall` reads."""
        self._wall = wall
        self._ends = ends
        self._role = role
        self._node = node
        self._world = world.encode()[:64]

    def sign(self, statement: bytes) -> Signature:
        """Sign a statement as this node."""
        return Signature(self._node, b"", 0, self._seal(self._node, statement))

    def holds(self, signature: Signature, statement: bytes) -> bool:
        """Return whether the named node has signed this statement."""
        return signature.seal == self._seal(signature.signer, statement)

    def chain(self) -> Chain:
        """The world's seal of this node, for its certificate, and when that ends."""
        ends = b"" if self._ends() == inf else str(self._ends()).encode()
        seal = self._certificate(self._node, self._role, ends)
        return (seal, ends) if ends else (seal,)

    def vouches(self, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        """Whether the world has certified this node, as one that may do what is asked, and that
        holds still."""
        seal, ends = (*chain, b"", b"")[:2]
        least = Role.VOTER if votes else Role.MEMBER
        roles = [role for role in Role if role >= least]
        if seal not in [self._certificate(node, one, ends) for one in roles]:
            return False
        return not ends or float(ends) >= self._wall()

    def _certificate(self, node: NodeId, role: Role, ends: bytes) -> bytes:
        return self._seal(AUTHORITY, f"{node} {role.name}".encode() + ends)

    def _seal(self, node: NodeId, said: bytes) -> bytes:
        return blake2b(node.encode() + said, digest_size=16, key=self._world).digest()


# --- a node's policy in a simulated world: signed by whoever knows how to write one down ---

_GENUINE = b"signed "


def sealed(policy: Policy) -> bytes:
    """Encode a policy as it is sent."""
    return _GENUINE + msgspec.msgpack.encode(policy)


class SimulatedPolicyStore:
    """Keeps the highest version: an `overlay.lower_random.policies.PolicyStore`."""

    def __init__(self) -> None:
        self.policy: Policy | None = None

    def current(self) -> tuple[int, bytes]:
        """Return the version, and the encoded policy."""
        return (0, b"") if self.policy is None else (self.policy.version, sealed(self.policy))

    def accept(self, data: bytes) -> int:
        """Keep a newer policy, if it is genuine. Returns the version in force."""
        if data.startswith(_GENUINE):
            found = msgspec.msgpack.decode(data[len(_GENUINE) :], type=Policy)
            if found.version > self.current()[0]:
                self.policy = found
        return self.current()[0]


# A node's list of revoked nodes in a simulated world, signed by whoever knows how to write one
# down.

_GENUINE_LIST = b"revoked "


class _List(msgspec.Struct, array_like=True):
    version: int
    ids: tuple[NodeId, ...]


def revoked(version: int, ids: Iterable[NodeId]) -> bytes:
    """Encode a list of revocations as it is sent."""
    return _GENUINE_LIST + msgspec.msgpack.encode(_List(version, tuple(ids)))


class SimulatedRevocations:
    """Keeps the highest version: an `overlay.lower_random.documents.DocumentStore`."""

    def __init__(self) -> None:
        self.version = 0
        self.ids: frozenset[NodeId] = frozenset()
        self.taken: Callable[[], object] = lambda: None
        """Called when another node has sent a newer list."""
        self._data = b""

    def current(self) -> tuple[int, bytes]:
        """Return the version, 0 for none, and the encoded list."""
        return self.version, self._data

    def accept(self, data: bytes) -> int:
        """Keep a newer list, if it is genuine. Returns the version in force."""
        if self.write(data):
            self.taken()
        return self.version

    def write(self, data: bytes) -> bool:
        """Keep a newer list, as an operator's command does. Returns whether it was newer."""
        if not data.startswith(_GENUINE_LIST):
            return False
        found = msgspec.msgpack.decode(data[len(_GENUINE_LIST) :], type=_List)
        if found.version <= self.version:
            return False
        self.version, self.ids, self._data = found.version, frozenset(found.ids), data
        return True
