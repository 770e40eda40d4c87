"""Points that share what comes before the stage in which they differ.

With one load, all points have one graph and the first of the same subscriptions. Then nodes that
are started once get more and more subscriptions, and for each point the process is copied (fork),
and the copy goes on with gossip and events. What one point publishes no other one sees, so that
each has the row that it has when it is measured alone. ``cpu_s`` is what the copy took,
``shared_cpu_s`` what the world took until then.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bench.experiments.figures.curves import row_of
from bench.experiments.figures.full_nodes import NodeOverlay
from bench.experiments.figures.plan import FigurePlan, Point, keep
from bench.experiments.figures.sharing import SharingCodec
from canopy.sim.world.cost import collector_at_rest, peak


class SharedWorld:
    """Measures points that share nodes: in stages, from each of which this process goes on in
    copies of itself. Rows are kept as they come."""

    def __init__(self, points: Sequence[Point], kept: Path) -> None:
        """All of them with the same nodes and settings (`nodes_of`), and the same seed."""
        self._points = points
        self._kept = kept
        self._before = 0.0
        """Processor seconds of the processes of which this one is a copy."""
        self._overlay = NodeOverlay(points[0].plan, points[0].load, SharingCodec())

    def measure(self) -> None:
        """Start the nodes, then go through the loads. RuntimeError where a point is not
        measured."""
        with collector_at_rest():
            self._overlay.grow()
            self._in_copies(self._points, lambda plan: plan.load, self._measure_load)

    def _measure_load(self, points: Sequence[Point]) -> None:
        """Subscribe more and more to what one load has."""
        self._overlay.draw(points[0].plan)
        found = grouped(points, lambda plan: plan.subscriptions)
        *others, last = sorted(found)
        for count in others:
            self._overlay.subscribe(count)
            self._in_copy(self._measure_count, found[count])
        self._overlay.subscribe(last)
        self._measure_count(found[last])

    def _measure_count(self, points: Sequence[Point]) -> None:
        """Wait for gossip, and publish under each hop limit."""
        before = self._spent()
        self._overlay.gossip()

        def published(some: Sequence[Point]) -> None:
            plan = some[0].plan
            cost = self._overlay.publish(plan.events, plan.hops)
            for point in some:
                row = row_of(point, lambda *_: cost)
                row["cpu_s"] = round(self._spent() - before, 1)
                row["shared_cpu_s"] = round(before, 1)
                row["peak_bytes"] = peak()
                keep(self._kept, row)

        self._in_copies(points, lambda plan: plan.hops, published)

    def _spent(self) -> float:
        return self._before + time.process_time()

    def _in_copies(
        self,
        points: Sequence[Point],
        key: Callable[[FigurePlan], Any],
        work: Callable[[Sequence[Point]], None],
    ) -> None:
        """Do the work for each group of points in a copy of this process, for the last in this
        one."""
        *others, last = grouped(points, key).values()
        for group in others:
            self._in_copy(work, group)
        work(last)

    def _in_copy(self, work: Callable[[Sequence[Point]], None], points: Sequence[Point]) -> None:
        before, child = self._spent(), os.fork()
        if child:
            if os.waitpid(child, 0)[1]:
                raise RuntimeError(f"not measured: {', '.join(str(each.row) for each in points)}")
            return
        code = 1
        try:
            self._before = before
            work(points)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def grouped(points: Sequence[Point], key: Callable[[FigurePlan], Any]) -> dict[Any, list[Point]]:
    """The points by what this says of their plans."""
    found: dict[Any, list[Point]] = {}
    for point in points:
        found.setdefault(key(point.plan), []).append(point)
    return found


def nodes_of(plan: FigurePlan) -> FigurePlan:
    """What the nodes of a plan depend on, before the first subscription."""
    none = FigurePlan()
    return replace(plan, load=none.load, subscriptions=0, hops=1, events=0, forwardings=0)
