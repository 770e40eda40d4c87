"""`canopy pub --dry-run`: who would receive events, without publishing them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from canopy.cli.constants import DRY_RUN_NODES
from canopy.cli.errors import FAILURE, OK, TIME_OUT
from canopy.cli.output import console, label, print_json
from overlay.phrases import counted

if TYPE_CHECKING:
    from rich.console import Console

    from canopy.client.client import Client
    from canopy.feeds import FeedEvent
    from overlay.client import Draft
    from overlay.info import EventRecipients, RecipientInfo


@dataclass
class DryRunTotals:
    """The numbers of events that were asked about, that would be delivered, and that are in doubt.
    `names`: the subscriptions' names at the asked node, by id."""

    events: int = 0
    wanted: int = 0  # by some node
    doubtful: int = 0  # some tree did not answer
    nodes: dict[str, None] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def add(self, found: EventRecipients) -> None:
        """Count one event that could be published."""
        self.events += 1
        self.wanted += bool(found.nodes)
        self.doubtful += bool(found.unanswered)
        self.nodes.update(dict.fromkeys(one.node for one in found.listed))

    @property
    def code(self) -> int:
        """The exit code: 1 if there was no event, 5 if a host did not answer, else 0."""
        if not self.events:
            return FAILURE
        return TIME_OUT if self.doubtful else OK


def ask(client: Client, batch: list[FeedEvent], timeout: float) -> list[EventRecipients]:
    """Ask who would receive each of these events, at most `DRY_RUN_MOST`. Events with many
    attributes are asked about in several requests."""
    from overlay.client import DRY_RUN_ATTRIBUTES, DryRun, Recipients

    parts: list[list[Draft]] = [[]]
    names: set[str] = set()
    for entry in batch:
        names |= entry.draft.attributes.keys()
        if parts[-1] and len(names) > DRY_RUN_ATTRIBUTES:
            parts.append([])
            names = set(entry.draft.attributes)
        parts[-1].append(entry.draft)
    asked = (client.ask(DryRun(0, tuple(part)), Recipients, timeout) for part in parts)
    return [found for answer in asked for found in answer.events]


def names_at(client: Client, timeout: float) -> dict[str, str]:
    """Return the names of the node's own subscriptions, by id."""
    from overlay.client import GetSubscriptions, Subscriptions

    found = client.ask(GetSubscriptions(0), Subscriptions, timeout)
    return {one.subscription: one.name for one in found.subscriptions if one.name}


def show(entry: FeedEvent, found: EventRecipients, totals: DryRunTotals, as_json: bool) -> None:
    """Print who would receive one event."""
    if as_json:
        print_json(as_object(entry, found))
    else:
        _show(console(), entry, found, totals)


def as_object(entry: FeedEvent, found: EventRecipients) -> dict[str, Any]:
    """Return the object that `--json` prints for an event."""
    from canopy.feeds import id_text

    return {
        "line": entry.number,
        "id": id_text(entry.draft.attributes.get("id")),
        "nodes": found.nodes,
        "subscriptions": _subscriptions(found),
        "complete": _is_complete(found),
        "recipients": [
            {
                "node": one.node,
                "address": one.address,
                "subscriptions": one.subscriptions,
                "ids": list(one.ids),
            }
            for one in found.listed
        ],
        "unanswered": dict(found.unanswered),
    }


def _subscriptions(found: EventRecipients) -> int:
    """Return the number of subscriptions at the listed nodes: a lower bound if the answer is
    incomplete."""
    return sum(one.subscriptions for one in found.listed)


def _is_complete(found: EventRecipients) -> bool:
    """Return whether all matching nodes and subscriptions are listed."""
    listed = all(one.subscriptions == len(one.ids) for one in found.listed)
    return listed and found.nodes == len(found.listed) and not found.unanswered


def _show(out: Console, entry: FeedEvent, found: EventRecipients, totals: DryRunTotals) -> None:
    from canopy.feeds import id_text

    id_ = label(id_text(entry.draft.attributes.get("id")) or f"event {entry.number}")
    if found.nodes:
        least = "" if _is_complete(found) else "at least "
        matching = counted(_subscriptions(found), "subscription")
        out.print(
            f"[bold]{id_}[/]  {least}{matching} at {counted(found.nodes, 'node')}", soft_wrap=True
        )
    else:
        none = (
            "no subscription is known to match" if found.unanswered else "no subscription matches"
        )
        out.print(f"[bold]{id_}[/]  {none}", soft_wrap=True)
    for one in found.listed[:DRY_RUN_NODES]:
        out.print(f"  {one.node} [dim]{label(one.address)}[/]  {_ids(one, totals)}", soft_wrap=True)
    if found.nodes > DRY_RUN_NODES:
        out.print(f"  … {counted(found.nodes - DRY_RUN_NODES, 'more node')}")
    for attribute, why in found.unanswered:
        name = "events without a pivot" if attribute == "$event" else f"attribute {attribute}"
        out.print(f"  [yellow]![/] {label(name)}: {why}; others may get it", soft_wrap=True)


def _ids(one: RecipientInfo, totals: DryRunTotals) -> str:
    """Return the node's subscriptions as text: their names where known, else their ids."""
    shown = [totals.names.get(id_, id_) for id_ in one.ids[:DRY_RUN_NODES]]
    more = one.subscriptions - len(shown)
    return ", ".join([*map(label, shown), *([f"{more:,} more"] if more > 0 else [])])


def print_totals(totals: DryRunTotals) -> None:
    """Print the totals on standard error."""
    nodes = counted(len(totals.nodes), "node")
    text = f"{totals.wanted:,} of {counted(totals.events, 'event')} would be delivered, to {nodes}"
    click.echo(f"{text}; nothing was published", err=True)
