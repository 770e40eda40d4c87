"""`canopy subs`: the subscriptions of all programs at a node, and the end of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from canopy.cli.connect import NodeOptions, node_options
from canopy.cli.hints import HintingGroup
from canopy.cli.output import TextTable, plain, show
from overlay.phrases import duration

if TYPE_CHECKING:
    from overlay.info import ClientInfo, SubscriptionInfo


@click.group(cls=HintingGroup, invoke_without_command=True)
@node_options
@click.pass_context
def subs(ctx: click.Context, node: NodeOptions) -> None:
    """List the subscriptions of all programs at a node, with the number of events delivered to
    each.

    A subscription ends with the program that made it. If the program was lost without closing the
    connection, it ends with its session (clients.resume); until then the program is shown as away.
    For a subscription that is registering, the list shows how many registrations remain, and how
    many of them their owners postpone: they take a bounded number from a leaf at a time. `canopy
    subs rm` ends a subscription for a program that cannot end it itself.

    \b
    canopy subs
    canopy subs --json | jq 'map(select(.delivered == 0)) | .[].selector'
    canopy subs rm 1a2b3c4d5e6f7a8b.1.3
    """
    if ctx.invoked_subcommand is not None:
        ctx.obj = node  # for options before the subcommand
        return
    from overlay.client import GetStatus, GetSubscriptions, Status, Subscriptions

    with node.open() as client:
        found = client.ask(GetSubscriptions(0), Subscriptions, node.timeout).subscriptions
        status = client.ask(GetStatus(0), Status, node.timeout)
    clients = {one.client: one for one in status.clients}
    rows = TextTable("=subscription", "name", "selector", "=state", ">delivered", ">process")
    for one in found:
        owner = clients.get(one.client)
        state = "acknowledged" if one.acknowledged else "registering"
        if one.unanswered:
            state += f", {one.unanswered:,} to go"
        if one.put_off:
            state += f" ({one.put_off:,} put off)"
        process = str(owner.pid or "-") if owner else "-"
        if owner and owner.parked_for >= 0:
            process += f", away for {duration(owner.parked_for)}"
        rows.add(one.subscription, one.name, one.selector, state, one.delivered, process)
    told = [_object(one, clients) for one in found]
    show(told, node.as_json, rows or "no program has a subscription at this node")


def _object(one: SubscriptionInfo, clients: dict[int, ClientInfo]) -> dict[str, Any]:
    found: dict[str, Any] = plain(one)
    client = clients.get(one.client)
    away = client.parked_for if client else -1.0
    return {**found, "pid": client.pid if client else 0, "parked_for": away}


@subs.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@node_options
@click.pass_context
def rm(ctx: click.Context, ids: tuple[str, ...], node: NodeOptions) -> None:
    """End subscriptions by their ids, as `canopy subs` lists them.

    The program of each is notified: in the client library its events end with a
    SubscriptionEndedError, and `canopy sub` ends with exit code 1. It does not subscribe again by
    itself. Exit code 1 if the node has no such subscription; the ones before it have been ended.

    \b
    canopy subs rm 1a2b3c4d5e6f7a8b.1.3
    canopy subs --json | jq -r '.[] | select(.name == "old") | .subscription' \\
      | xargs canopy subs rm
    """
    from overlay.client import Done, EndSubscription

    ended: list[str] = []
    is_own = ctx.get_parameter_source("connect") is ParameterSource.COMMANDLINE
    as_json = node.as_json or ctx.obj.as_json
    node = node if is_own else replace(node, where=ctx.obj.where)
    with node.open() as client:
        try:
            for id_ in ids:
                client.ask(EndSubscription(0, id_), Done, node.timeout)
                ended.append(id_)
        finally:
            show({"ended": ended}, as_json, *(f"ended {id_}" for id_ in ended))
