"""Finds another way to a peer whose link is silent, and the way back (P3; Phoenix section 2).

Before a silent peer counts as dead, other nodes are asked whether it answers them: the indirect
probes of SWIM (Das et al. 2002, section 3.1). Each probe is a connection by way of another node
(`Detours`), on which the ordinary handshake asks who is there. On the first of them that the peer
answers while its own link is still silent, the session resumes: from then on everything goes that
way, in order and once, as after any lost connection. A peer that answers on none counts as dead
after ``links.dead_after``, as before.

As long as a session takes a detour its peer is dialled directly, with back-off. That connection,
too, first asks who is there, so that the session moves only to one that carries both directions.
"""

from __future__ import annotations

from dataclasses import dataclass

from overlay.links.dialler import LinkParts
from overlay.links.handshake import Handshake
from overlay.links.session import LinkSession


@dataclass(eq=False)
class Detouring(LinkParts):
    """Opens connections that may take over from the one that a session has."""

    _handshake: Handshake

    def on_deadline(self, session: LinkSession, now: float) -> None:
        """Look for another way, or for the way back, if that is due."""
        if now >= session.look_due():
            session.looks(now)
            for connection in self._connections.detours(session.peer):
                self._node.count("indirect_probes", 1)
                connection.ask_for(session)
                self._handshake.on_opened(connection.id)
        if now >= session.look_back_due():
            session.looks_back(now, self._node.rng)
            self._connections.dial(session.peer.address).ask_for(session)
