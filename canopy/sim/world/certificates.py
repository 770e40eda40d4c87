"""Certificates of simulated nodes, which end and are renewed in time.

They follow the rules of a process (canopy/wire/process/security.py): who starts without a
certificate that holds gets one first; who runs asks an issuer for the next one long before the end,
again and again while none is reached; nobody takes a connection whose certificate has ended, by its
own wall clock. A connection keeps the certificate that it was opened with, so it is cut off when
that ends, and opened again with the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple


class Held(NamedTuple):
    """A node's certificate holds between these; seconds since 1970."""

    begins: float
    ends: float


class SimulatedCertificates:
    """The certificates of all nodes of a world, by their names."""

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
        self.are_asked_for = True
        """Whether nodes look at certificates in what others say of who there is."""
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
