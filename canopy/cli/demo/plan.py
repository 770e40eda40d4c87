"""What a demo is to do, checked before anything is started.

A subscriptions file is a YAML list of ``{name, where, node}``: the selector and the node, counted
from 0, that it is made at. Subscriptions without a node are spread round robin; a node that a
smaller overlay does not have wraps around.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import yaml

from canopy.cli.demo.errors import PlanError
from canopy.cli.feeds import FORMATS

TELEMETRY: Final = "telemetry"
USGS: Final = "usgs"
DEFAULTS: Final = {TELEMETRY: "telemetry.yaml", USGS: "earthquakes.yaml"}
SUBSCRIPTIONS_LIMIT: Final = 20_000
"""Subscriptions of a demo: each is acknowledged singly. Wild guess."""
HEAD: Final = 64 * 1024
"""Bytes of a feed that are looked at to see whether it is one of earthquakes."""


@dataclass(frozen=True)
class Wanted:
    """One subscription of the plan. `node` is counted from 0."""

    name: str
    where: str
    node: int


@dataclass(frozen=True)
class Plan:
    """A whole demo. `feed` is "telemetry", or the path of a file; `rate` 0 means unhindered."""

    nodes: int
    duration: float
    feed: str
    format: str
    rate: float
    routing: str
    seed: int | None
    out: Path
    subscriptions: tuple[Wanted, ...]

    @property
    def live(self) -> bool:
        """Whether the feed is endless and made by the nodes themselves."""
        return self.feed == TELEMETRY


def read_subscriptions(path: Path | None, feed: str, nodes: int) -> tuple[Wanted, ...]:
    """The subscriptions of `path`, or the default ones of the feed. Raises PlanError."""
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
        raise PlanError(f"{path}: no text in UTF-8") from None


def is_earthquakes(path: Path) -> bool:
    """Whether a feed is GeoJSON whose features have magnitudes, as the USGS serves them."""
    try:
        with path.open("rb") as source:
            head = source.read(HEAD)
    except OSError:
        return False
    return b'"FeatureCollection"' in head and b'"mag"' in head


def parse_subscriptions(text: str, source: str, nodes: int) -> tuple[Wanted, ...]:
    """The subscriptions in a YAML text, each selector compiled once. Raises PlanError."""
    try:
        entries = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or error
        raise PlanError(f"{source}{place}: invalid YAML: {problem}") from None
    if not isinstance(entries, list) or not entries:
        raise PlanError(f"{source}: expected a list of {{name: …, where: SELECTOR}}")
    if len(entries) > SUBSCRIPTIONS_LIMIT:
        raise PlanError(f"{source}: more than {SUBSCRIPTIONS_LIMIT} subscriptions")
    found: dict[str, Wanted] = {}
    for number, entry in enumerate(entries, 1):
        wanted = _subscription(entry, number, f"{source}, entry {number}", nodes)
        if wanted.name in found:
            raise PlanError(f"{source}, entry {number}: the name {wanted.name!r} is used twice")
        found[wanted.name] = wanted
    return tuple(found.values())


def _subscription(entry: Any, number: int, place: str, nodes: int) -> Wanted:
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
        raise PlanError(f"{place}: `node` must be a number of a node, counted from 0")
    try:
        compile_selector(where)
    except SelectorError as error:
        raise PlanError(f"{place} ({name}): the selector does not hold\n{error.caret()}") from None
    return Wanted(str(name), where, node % nodes)


def check_format(name: str) -> str:
    """A feed's format by its name on the command line. Raises PlanError."""
    if name not in FORMATS:
        raise PlanError(f"unknown format {name!r}; expected one of {', '.join(FORMATS)}")
    return name


def to_json(plan: Plan) -> str:
    """The plan as the mark in the output folder has it."""
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
