"""The steps of a demo in order, from the empty folder to the verdict."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canopy.cli.constants import QUIET_PAUSE, QUIET_ROUNDS, STALL_TIMEOUT, TOUR_BOUNDS
from canopy.cli.demo import summary
from canopy.cli.demo.overlay import Overlay
from canopy.cli.demo.plan import DemoError, DemoPlan, to_json
from canopy.cli.demo.publisher import PublishedFeed, publish
from canopy.cli.demo.subscribers import Subscribers
from canopy.cli.demo.tour import Scene, Tour, region_of
from canopy.cli.display import Display
from overlay.client import GetStatus, Status
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.traces.analysis import AnalysisSummary


# --- the output folder of a demo, which replaces nothing but the output of an earlier demo ---
#
# - ``demo.json`` marks the folder as a demo's;
# - ``nodes/NN/`` the data folder of each node process, ``logs/NN.log`` its log;
# - ``traces/`` the trace records of all nodes;
# - ``deliveries.jsonl`` one object per delivery, ``summary.json`` the verdict, ``report/`` the
#   analysis.

MARK: Final = "demo.json"
FORMAT: Final = "canopy-demo"


def prepare(out: Path, mark: str) -> None:
    """Make `out` an empty folder with the marker `mark`. DemoError if it has other content."""
    try:
        if out.exists() and not out.is_dir():
            raise DemoError(f"the output {out} is a file; name a folder with --out")
        if out.is_dir() and any(out.iterdir()) and not is_demo_folder(out):
            raise DemoError(
                f"the output folder {out} exists and is not an earlier demo's: nothing was "
                f"changed; name another folder with --out, or move it away"
            )
        if out.is_dir():
            shutil.rmtree(out)
        for folder in (out, out / "nodes", out / "logs", out / "traces"):
            folder.mkdir(parents=True)
        (out / MARK).write_text(mark + "\n", encoding="utf-8")
    except OSError as error:
        raise DemoError(f"cannot use the output folder {out}: {error.strerror}") from None


def is_demo_folder(out: Path) -> bool:
    """Whether an earlier demo made this folder."""
    try:
        mark = json.loads((out / MARK).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(mark, dict) and mark.get("format") == FORMAT


def await_quiescence(
    overlay: Overlay, received: Callable[[], int], on_progress: Callable[[int, int], None]
) -> list[Status]:
    """Wait until no event is under way in any node. Calls `on_progress(pending, received)` in each
    round.

    A node's `pending` counts events that it has published or forwarded and that the receiver has
    not acknowledged. Between two requests an event may move from one node's count to another's, so
    several equal rounds are required. If something stays pending without a change for
    `STALL_TIMEOUT`, the waiting ends too, and the analysis shows what is missing. Returns the last
    status of every node. Raises DemoError if a node died or does not answer.
    """
    with overlay.clients("a node does not answer") as clients:
        last: tuple[int, ...] = ()
        changed = time.monotonic()
        equal = 0
        while True:
            overlay.check()
            found = [client.ask(GetStatus(0), Status) for client in clients]
            pending = sum(status.pending for status in found)
            delivered = sum(status.counters.get("delivered", 0) for status in found)
            now = (pending, delivered, received())
            on_progress(pending, now[2])
            if now != last:
                changed, equal, last = time.monotonic(), 0, now
            equal += 1
            if equal >= QUIET_ROUNDS and pending == 0:
                return found
            if time.monotonic() - changed > STALL_TIMEOUT:
                return found
            time.sleep(QUIET_PAUSE)


def run_demo(plan: DemoPlan, source: Path | None, display: Display) -> dict[str, Any]:
    """Run the whole demo; `source` is the feed's file, None for telemetry.

    Returns the content of summary.json. Raises DemoError; leaves no process running in any case.
    """
    prepare(plan.out, to_json(plan))
    notes: list[str] = []
    traces = ["--trace", "--trace-dir", str(plan.out / "traces")]
    arguments = ["--routing", plan.routing, *traces, "--trace-sample", "1", "--trace-rate", "0"]
    deliveries = plan.out / "deliveries.jsonl"
    scenes: list[Scene] = []
    with (
        Overlay(plan.nodes, plan.out, arguments, plan.seed, bounds_of(plan)) as overlay,
        Subscribers(overlay, deliveries) as subscribers,
    ):
        outcome = _live(plan, source, overlay, subscribers, display)
        if plan.tour:
            tour = Tour(overlay, subscribers, plan.out / "traces", display)
            scenes = tour.run()
            outcome.published += tour.published if outcome.published else 0
            _await_rest(overlay, subscribers, display)
        display.step("Stopping the nodes", plan.nodes)
        killed = overlay.stop(lambda left: display.update(left, plan.nodes))
        display.done("all have left")
        notes += [f"node {node.number} did not leave in time and was killed" for node in killed]
    analysis = _analyse(plan, scenes, display)
    # Where a node was killed, programs hear of gaps that there may be; the traces say if any is.
    unconfirmed = len(subscribers.notices) if plan.tour and analysis.exact else 0
    notes += [] if unconfirmed else subscribers.notices
    found = summary.summarise_demo(
        plan, analysis, outcome, subscribers.delivered, notes, subscribers.dropped
    )
    found["tour"] = [asdict(scene) for scene in scenes]
    found["possible_gaps"] = unconfirmed
    summary.write(plan.out, found)
    shutil.rmtree(plan.out / "nodes", ignore_errors=True)  # identities of nodes that are gone
    return found


def _live(
    plan: DemoPlan,
    source: Path | None,
    overlay: Overlay,
    subscribers: Subscribers,
    display: Display,
) -> PublishedFeed:
    """The steps of the running overlay: start, join, subscribe, publish, await quiescence."""
    nodes = plan.nodes
    display.step("Starting the nodes", nodes)
    overlay.start(lambda n: display.update(n, nodes, f"{n} of {nodes} listen"))
    display.done(f"{nodes} processes")
    display.step("Waiting until all have joined", nodes)
    overlay.await_ready(lambda n: display.update(n, nodes, f"{n} of {nodes} ready"))
    display.done(f"{nodes} ready")
    wanted = plan.subscriptions
    display.step("Subscribing", len(wanted))
    subscribers.subscribe(wanted, lambda n: display.update(n, len(wanted)))
    display.done(f"{len(wanted)} acknowledged")
    display.step("Publishing the machine's telemetry" if source is None else "Publishing", 1.0)

    def published(share: float, text: str) -> None:
        display.update(share, 1.0, f"{text}, {deliveries(subscribers.total)}")

    outcome = publish(plan, overlay, source, published)
    display.done(counted(outcome.published, "event") if source else "")
    _await_rest(overlay, subscribers, display)
    return outcome


def _await_rest(overlay: Overlay, subscribers: Subscribers, display: Display) -> None:
    display.step("Waiting until nothing is under way")
    last = await_quiescence(
        overlay,
        lambda: subscribers.total,
        lambda pending, got: display.update(0, None, f"{pending} under way, {deliveries(got)}"),
    )
    pending = sum(status.pending for status in last)
    if pending:
        left = counted(pending, "event")
        display.note(f"the overlay did not come to rest: {left} still under way")
    display.done(deliveries(subscribers.total))


def bounds_of(plan: DemoPlan) -> Callable[[int], Mapping[str, str]]:
    """Return the function that gives each node's settings by its number, for the plan's tour."""
    if not plan.tour:
        return lambda number: {}
    return lambda number: {**TOUR_BOUNDS, "CANOPY_REGION": region_of(number)}


def deliveries(number: int) -> str:
    """Return a number of deliveries in words."""
    return counted(number, "delivery", "deliveries")


def _analyse(plan: DemoPlan, scenes: Sequence[Scene], display: Display) -> AnalysisSummary:
    from canopy.traces.analysis import STAGES, analyze

    display.step("Spark reads the traces", len(STAGES))
    found = analyze(
        plan.out / "traces",
        plan.out / "report",
        progress=lambda stage, done, total: display.update(done, total, stage),
        story=[(scene.title, scene.said) for scene in scenes],
    )
    display.done("report drawn")
    return found
