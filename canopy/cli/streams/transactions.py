"""`canopy tx ls` and `resolve`: undecided transactions of streams."""

from __future__ import annotations

import time

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import NodeOptions, node_options
from canopy.cli.errors import CommandError
from canopy.cli.hints import HintingGroup
from canopy.cli.output import Markup, TextTable, console, label, plain, print_json, show
from overlay.phrases import counted, duration


@click.group(cls=HintingGroup)
def tx() -> None:
    """List undecided transactions of streams, and decide them by hand.

    \b
    canopy tx ls
    canopy tx resolve orders till-4.5f21c0 commit
    """


@tx.command()
@click.argument("stream", required=False, default="", shell_complete=stream_names)
@node_options
def ls(stream: str, node: NodeOptions) -> None:
    """List the undecided transactions of STREAM, or of all streams.

    The stream asks their producers for the decision. A transaction is *parked* if no producer could
    tell: it stays undecided until somebody decides it.

    \b
    canopy tx ls orders
    canopy tx ls --json | jq '.[] | select(.parked)'
    """
    from overlay.client import GetStreams, Streams
    from overlay.stream_client import GetTransactions, Transactions

    with node.open() as client:
        names = [stream] if stream else []
        if not stream:
            names = [one.name for one in client.ask(GetStreams(0), Streams, node.timeout).streams]
        found = [
            (name, one)
            for name in names
            for one in client.ask(GetTransactions(0, name), Transactions, node.timeout).transactions
        ]
    columns = ("stream", ">shard", "=transaction", "producer", "state", ">events", ">age", "=node")
    rows = TextTable(*columns).of(
        (
            *(name, one.shard, one.transaction, one.producer),
            *("parked" if one.parked else "waits", one.count),
            *(duration(max(0.0, time.time() - one.time)), one.node),
        )
        for name, one in found
    )
    views: list[object] = [rows or "every transaction is decided"]
    if parked := sum(one.parked for _, one in found):
        what = f"{counted(parked, 'transaction')} nobody could say anything of: look at what their"
        views += [Markup(f"[yellow]{what} producers have done, then `canopy tx resolve`[/]")]
    show([{"stream": name, **plain(one)} for name, one in found], node.as_json, *views)


@tx.command()
@click.argument("stream", shell_complete=stream_names)
@click.argument("transaction")
@click.argument("decision", type=click.Choice(["commit", "rollback"]))
@node_options
def resolve(stream: str, transaction: str, decision: str, node: NodeOptions) -> None:
    """Commit TRANSACTION of STREAM, or roll it back, in the place of its producer.

    The first decision is final. If it was the other one, the command says so (exit code 1).

    \b
    canopy tx resolve orders till-4.5f21c0 rollback
    """
    from overlay.stream_client import DecideTransaction, TransactionState

    command = DecideTransaction(0, stream, transaction, decision == "commit")
    found = node.ask(command, TransactionState)
    if node.as_json:
        print_json(plain(found))
    wanted = "committed" if decision == "commit" else "rolled-back"
    if found.outcome != wanted:
        raise CommandError(f"{transaction} was {found.outcome} before, and stays so")
    if not node.as_json:
        places = ", ".join(f"shard {r.shard} from offset {r.first}" for r in found.receipts)
        where = f": {places}" if places else ""
        console().print(f"{label(transaction)} is {found.outcome}{where}")
