"""A world for tests of a few machines: nodes joined by links without loss, in virtual time.

Each node is a `FakePort` with any set of machines (`add`). For whole nodes, real links and faults
there is `canopy.sim.world.world`, whose scheduler this world uses.
"""

from __future__ import annotations

from collections.abc import Callable

from canopy.sim.world.scheduler import Scheduler
from overlay.links.events import LinkDown
from overlay.machine import LocalEvent, Message, Peer, Timer
from tests.support.fake_port import FakePort


class MachineNode(FakePort):
    """A node of a `MachineWorld`: local events are heard by its own machines."""

    def __init__(self, world: MachineWorld, name: str) -> None:
        super().__init__(name, world.seed)
        self.world = world
        self.data = 0

    def send(self, peer: Peer, message: Message) -> None:
        super().send(peer, message)
        del self.sent[:-50]  # enough to look at
        self.world.carry(self, peer, message)

    def set_timer(self, delay: float, timer: Timer) -> None:
        when = self.world.now + delay
        self.timers[timer] = when

        def fire() -> None:
            if self.timers.get(timer) == when:
                del self.timers[timer]
                self.hear(timer)

        self.world.after(delay, self.turn, fire)

    def emit(self, event: LocalEvent) -> None:
        super().emit(event)
        self.world.after(0.0, self.turn, lambda: self.hear(event))

    def turn(self, step: Callable[[], None]) -> None:
        """Do one step at this node, unless it was killed."""
        if self.world.members.get(self.me.id) is self:
            self.now = self.world.now
            step()


class MachineWorld(Scheduler):
    """Nodes by id; messages arrive after `delay`, or LinkDown where the receiver was killed."""

    def __init__(self, seed: int = 1, delay: float = 0.01) -> None:
        super().__init__(now=1_000.0)
        self.seed = seed
        self.delay = delay
        self.members: dict[str, MachineNode] = {}

    def member(self, name: str) -> MachineNode:
        """Add a node without machines."""
        member = self.members[name] = MachineNode(self, name)
        member.now = self.now
        return member

    def kill(self, name: str) -> None:
        """Remove a node; its timers and messages under way are gone."""
        del self.members[name]

    def forget(self) -> None:
        """Drop all timers that are set and messages that are under way."""
        self._heap.clear()

    def carry(self, sender: MachineNode, peer: Peer, message: Message) -> None:
        """Deliver a message, or report it lost to its sender."""

        def arrive() -> None:
            receiver = self.members.get(peer.id)
            if receiver is None:
                down = LinkDown(peer, "dead", False, (message,))
                self.after(0.0, sender.turn, lambda: sender.hear(down))
                return
            receiver.now = self.now
            receiver.hear(message, sender.me)

        self.after(self.delay, sender.turn, arrive)
