"""The plan of a demo, checked before anything starts.

A subscriptions file is a YAML list of ``{name, where, node}``: a name, a selector, and the number
(from 0) of the node at which to subscribe. Subscriptions without a node are spread round robin; the
number of a node is taken modulo the number of nodes.
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml

from canopy.cli.constants import DEMO_SUBSCRIPTIONS, FETCH_LIMIT, FETCH_TIMEOUT, TOUR_NODES
from canopy.feeds import FeedEvent, read_feed

# --- the errors of a demo; `canopy.cli.errors` has their exit codes ---


class DemoError(Exception):
    """The demo failed; the message says why and what to do."""


class PlanError(DemoError):
    """The options or the subscriptions file are invalid (usage)."""


class OfflineError(DemoError):
    """The feed could not be fetched (unreachable)."""


TELEMETRY: Final = "telemetry"
USGS: Final = "usgs"
EARTHQUAKE: Final = frozenset(("mag", "longitude", "latitude"))
DEFAULTS: Final = {TELEMETRY: "telemetry.yaml", USGS: "earthquakes.yaml"}


@dataclass(frozen=True)
class PlannedSubscription:
    """One subscription: its name, its selector, and the number (from 0) of its node."""

    name: str
    where: str
    node: int


@dataclass(frozen=True)
class DemoPlan:
    """A whole demo. `feed` is "telemetry", "usgs", or the path of a file; `rate` is in events per
    second, 0 without a limit; `duration` in seconds."""

    nodes: int
    duration: float
    feed: str
    format: str
    rate: float
    routing: str
    seed: int | None
    out: Path
    subscriptions: tuple[PlannedSubscription, ...]
    tour: bool = False
    """Whether the demo also shows how an overlay grows, and what the loss of a node does."""


def read_subscriptions(path: Path | None, feed: str, nodes: int) -> tuple[PlannedSubscription, ...]:
    """Return the subscriptions in the file `path`, or the feed's default ones. Raises PlanError."""
    if path is None:
        name = DEFAULTS.get(feed) or (DEFAULTS[USGS] if is_earthquakes(Path(feed)) else None)
        if name is None:
            raise PlanError(
                f"there are no default subscriptions for the feed {feed}; name a file with "
                f"--subscriptions: a YAML list of {{name: …, where: SELECTOR}}"
            )
        text = (files("canopy.cli.demo") / name).read_text(encoding="utf-8")
        return parse_subscriptions(text, name, nodes)
    try:
        return parse_subscriptions(path.read_text(encoding="utf-8"), str(path), nodes)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PlanError(f"{path}: not a text in UTF-8") from None


def tour_wanted(asked: bool | None, feed: str, nodes: int, *, own: bool) -> bool:
    """Return whether the demo has a tour: `asked`, or if that is None, whether the feed and the
    subscriptions are the default ones and there are enough nodes. `own`: the user gave the
    subscriptions. Raises PlanError."""
    if asked and nodes < TOUR_NODES:
        raise PlanError(f"--tour needs {TOUR_NODES} nodes or more, not {nodes}")
    return feed == TELEMETRY and nodes >= TOUR_NODES and not own if asked is None else asked


def is_earthquakes(path: Path) -> bool:
    """Return whether the first event of a file looks like one of the USGS: it has a magnitude and a
    place."""
    try:
        with path.open("rb") as source:
            first = next(read_feed(source, name=path.name), None)
    except OSError:
        return False
    return isinstance(first, FeedEvent) and first.draft.attributes.keys() >= EARTHQUAKE


def parse_subscriptions(text: str, source: str, nodes: int) -> tuple[PlannedSubscription, ...]:
    """Return the subscriptions in a YAML text, after compiling their selectors. Raises
    PlanError."""
    try:
        entries = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or error
        raise PlanError(f"{source}{place}: invalid YAML: {problem}") from None
    if not isinstance(entries, list) or not entries:
        raise PlanError(f"{source}: expected a list of {{name: …, where: SELECTOR}}")
    if len(entries) > DEMO_SUBSCRIPTIONS:
        raise PlanError(f"{source}: more than {DEMO_SUBSCRIPTIONS} subscriptions")
    found: dict[str, PlannedSubscription] = {}
    for number, entry in enumerate(entries, 1):
        wanted = _subscription(entry, number, f"{source}, entry {number}", nodes)
        if wanted.name in found:
            raise PlanError(f"{source}, entry {number}: the name {wanted.name!r} is used twice")
        found[wanted.name] = wanted
    return tuple(found.values())


def _subscription(entry: Any, number: int, place: str, nodes: int) -> PlannedSubscription:
    from matching import SelectorError, compile_selector

    if not isinstance(entry, dict):
        raise PlanError(f"{place}: expected {{name: …, where: SELECTOR}}, got {entry!r}")
    unknown = [key for key in entry if key not in ("name", "where", "node")]
    if unknown:
        raise PlanError(f"{place}: unknown key {unknown[0]!r}; known are name, where, node")
    where = entry.get("where")
    if isinstance(where, bool):  # YAML reads the selector TRUE as a boolean
        where = "TRUE" if where else "FALSE"
    if not isinstance(where, str):
        raise PlanError(f"{place}: `where` must be a selector, as text")
    name = entry.get("name", f"subscription {number}")
    if not isinstance(name, str | int | float) or name == "":
        raise PlanError(f"{place}: `name` must be a text")
    node = entry.get("node", number - 1)
    if type(node) is not int or node < 0:
        raise PlanError(f"{place}: `node` must be the number of a node, counted from 0")
    try:
        compile_selector(where)
    except SelectorError as error:
        raise PlanError(f"{place} ({name}): invalid selector\n{error.caret()}") from None
    return PlannedSubscription(str(name), where, node % nodes)


def to_json(plan: DemoPlan) -> str:
    """Return the plan as the content of demo.json, the marker of the output folder."""
    return json.dumps(
        {
            "format": "canopy-demo",
            "nodes": plan.nodes,
            "feed": plan.feed,
            "routing": plan.routing,
            "seed": plan.seed,
            "subscriptions": len(plan.subscriptions),
        },
        indent=2,
    )


# --- fetches the USGS feed of all earthquakes of the past week over HTTPS ---
#
# The CBDLO paper (section 1) motivates its overlay with ShakeCast, which distributes such events.

URL: Final = "https://earthquake.usgs.gov/earthquakes/feed/v1.0/summary/all_week.geojson"


def fetch(target: Path, url: str = URL, timeout: float = FETCH_TIMEOUT) -> Path:
    """Fetch the feed into the file `target` and return it. Raises OfflineError."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            data: bytes = answer.read(FETCH_LIMIT + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise OfflineError(
            f"cannot fetch the earthquakes ({reason}); without Internet use --feed telemetry, or "
            f"--feed FILE with a GeoJSON file of your own"
        ) from None
    if len(data) > FETCH_LIMIT or b'"FeatureCollection"' not in data[:4096]:
        raise OfflineError(f"{url} did not return a GeoJSON feed of earthquakes")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return target
