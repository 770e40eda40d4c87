"""What experiments share while they run: their progress, and an overlay that is ready to begin."""

from __future__ import annotations

from collections.abc import Callable

from canopy.sim.world.world import World

Progress = Callable[[str, float], None]
"""Called with what is measured and the share that is done."""

READY_WITHIN = 120.0
"""Virtual seconds within which all nodes are ready, and all subscriptions acknowledged."""


class NotReadyError(RuntimeError):
    """The overlay did not come to where the experiment begins."""


class PlanError(ValueError):
    """Parameters of an experiment do not go together; says which."""


def no_progress(stage: str, share: float) -> None:
    """A `Progress` that says nothing."""


def run_until_ready(world: World, condition: Callable[[], bool]) -> None:
    """Run `world` until the condition holds. Raises NotReadyError after `READY_WITHIN`."""
    if not world.run_until(condition, READY_WITHIN):
        raise NotReadyError(f"the overlay is not ready after {READY_WITHIN:g} virtual seconds")
