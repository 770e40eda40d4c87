"""A node that lies on purpose: the product's own, but for what an attack changes.

It joins, shuffles, publishes and keeps its links as any other node does; once its band has begun
to lie, the attack sees each message before it leaves and each before it is handled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Protocol

from canopy.sim.world.world import MeteredNode
from overlay.links.events import Codec
from overlay.lower_random.messages import Neighbour
from overlay.machine import Message, NodeId, Peer


class Band:
    """The liars of an overlay, and what they all know."""

    def __init__(self, rng: Random, world: str = "") -> None:
        """`world`: by which keys are made in it."""
        self.rng = rng
        self.world = world
        self.lies = False
        """Whether they have begun."""
        self.liars: list[Peer] = []
        self.victims: list[Peer] = []
        """All honest nodes."""
        self.entries: dict[NodeId, Neighbour] = {}
        """How those of them that have begun to lie name themselves."""
        self.newcomers: list[Peer] = []
        """Those of them that came after the liars had begun."""
        self.attributes: tuple[str, ...] = ()
        """Of all trees."""


class Attack(Protocol):
    """What the nodes of a band do to others."""

    band: Band

    def says(self, node: Any, to: Peer, message: Message) -> Iterable[Message]:
        """What `node` sends instead of this message."""

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """What `node` handles instead of this message; None: nothing, it has been dealt with."""

    def pushes(self, node: Any) -> Iterable[tuple[Peer, Message]]:
        """What `node` sends unasked, each time it is asked."""


class LyingNode(MeteredNode):
    """`MeteredNode` with an attack."""

    def __init__(self, attack: Attack, *arguments: Any, **options: Any) -> None:
        self.attack = attack
        super().__init__(*arguments, **options)

    @property
    def _lies(self) -> bool:
        band = self.attack.band
        return band.lies and self.me in band.liars

    def _build(self, codec: Codec, *arguments: Any, **options: Any) -> None:
        self.guard.dispatch = self._listening(self.guard.dispatch)
        super()._build(codec, *arguments, **options)

    def _listening(
        self, dispatch: Callable[[Peer, Message], None]
    ) -> Callable[[Peer, Message], None]:
        def listen(sender: Peer, message: Message) -> None:
            heard: Message | None = message
            if self._lies:
                heard = self.attack.hears(self, sender, message)
            if heard is not None:
                dispatch(sender, heard)

        return listen

    def send(self, peer: Peer, message: Message) -> None:
        """Send what the attack makes of it."""
        if peer.id == self.me.id or not self._lies:
            super().send(peer, message)
            return
        for said in self.attack.says(self, peer, message):
            super().send(peer, said)

    def answer(self, peer: Peer, message: Message) -> None:
        """Send a lie as it is."""
        super().send(peer, message)

    def push(self) -> None:
        """Send what the attack has to say unasked, as a turn of its own."""
        self.now = self.turns.begin()
        for peer, message in self.attack.pushes(self) if self._lies else ():
            super().send(peer, message)
        self._finish_turn()
