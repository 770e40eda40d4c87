"""Nodes on one machine, whose processors they share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from canopy.sim.world.disk import Disk
from canopy.sim.world.driver import SimDriver
from canopy.sim.world.world import World
from overlay.links.events import Codec
from overlay.links.messages import Frame


class SharedProcessors:
    """The processors of one machine, shared by several processes: each turn needs one, and waiting
    processes get them in the order of their requests."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = count
        self._waiting: deque[Callable[[], None]] = deque()

    def ask(self, granted: Callable[[], None]) -> None:
        """Call `granted` when a processor is free, perhaps at once; `release` must follow."""
        if self._free:
            self._free -= 1
            granted()
        else:
            self._waiting.append(granted)

    def release(self) -> None:
        """End a turn: the next waiting process gets the processor."""
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._free += 1


class SharingDriver(SimDriver):
    """A process that needs one of its machine's processors for each turn, if turns take time."""

    def __init__(self, world: SharingWorld, name: str, disk: Disk, clock: float) -> None:
        super().__init__(world, name, disk, clock)
        self._shared = world.shared
        self.processors = self._shared.count
        self._is_waiting = False  # for a processor …
        self._has_processor = False  # … and has one

    def arrived(self, connection: int, frame: Frame) -> None:
        self._input("on_frames", connection, (frame,))

    @property
    def _stands(self) -> bool:
        return super()._stands or self._is_waiting

    def _ask_for_processor(self) -> bool:
        """Whether the process has to wait for a processor. It may have got one, and have used it,
        when this returns."""
        if self.processor is None or self._has_processor:
            return False
        self._is_waiting = True
        self._shared.ask(self._got_processor)
        return True

    def _got_processor(self) -> None:
        """Run one turn: the first waiting input, or a tick."""
        self._is_waiting = False
        self._has_processor = True
        if self.alive and not self._paused:
            if self._inputs:
                name, arguments = self._inputs.popleft()
                self._input(name, *arguments)
            else:
                self._due()
        if not self._syncing:
            self._give_processor_back()

    def _give_processor_back(self) -> None:
        if self._has_processor:
            self._has_processor = False
            self._shared.release()

    def _input(self, name: str, *arguments: Any) -> None:
        if self._stands or self.processor is None or self._has_processor:
            super()._input(name, *arguments)
        else:
            self._inputs.append((name, arguments))
            self._ask_for_processor()

    def _catch_up(self) -> None:
        while self._inputs and self.alive and not self._stands:
            if self._ask_for_processor():
                return
            name, arguments = self._inputs.popleft()
            self._input(name, *arguments)
        self._after()

    def _synced(self) -> None:
        self._syncing = False
        self._give_processor_back()
        super()._synced()

    def _tick(self, at: float) -> None:
        if not self.alive or at != self._tick_at or self._stands:
            super()._tick(at)
            return
        self._tick_at = -1.0
        if not self._ask_for_processor():
            self._due()


class SharingWorld(World):
    """A world of one machine."""

    driver_type = SharingDriver

    def __init__(self, seed: int | str, codec: Codec, processors: int) -> None:
        super().__init__(seed, codec)
        self.shared = SharedProcessors(processors)

    def _address(self, number: int) -> str:
        return f"11.0.0.1:{7000 + number}"
