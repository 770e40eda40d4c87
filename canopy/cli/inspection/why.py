"""`canopy why`: why an event reached a subscription, or did not."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import NodeOptions, node_options
from canopy.cli.output import TextTable, console, label, plain, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from overlay.client import Explained
    from overlay.info import Reason
    from overlay.stream_client import RowExplained


# --- `canopy why --stream`: what became of a row of a stream ---

CAPTURED: Final = "@>"
COPIED: Final = "@<"
"""The prefix of the producers of captured and copied rows (`streams.log.origins`)."""

FORKED: Final = "~"
"""The suffix of the name of a node that began to append in a fork
(`streams.programs.producer.messages`)."""

WORDS: Final = {
    "read": "it matched, and was read",
    "passed over": "its selector is not true for it",
    "waits": "it matches, and has not been read yet",
    "will pass over": "its selector is not true for it; it has not come so far",
    "unread": "it had not come so far when the row was removed",
    "passed": "it was past the row before that was removed",
}


def why_row(stream: str, shard: int, offset: str, consumer: str, node: NodeOptions) -> None:
    """Print what became of a row. Raises UsageError if `offset` is not a number."""
    from overlay.stream_client import RowExplained, WhyRow

    if not (offset.isascii() and offset.isdigit()):
        raise click.UsageError(f"with --stream an offset is explained, not {offset}")
    found = node.ask(WhyRow(0, stream, shard, int(offset)), RowExplained)
    readers = [one for one in found.readers if consumer in ("", one.name)]
    if node.as_json:
        print_json({**plain(found), "readers": plain(readers)})
        return
    out = console()
    out.print(f"[bold]{label(stream)}[/] shard {shard}, offset {offset}: {_state(found)}")
    if found.attributes or found.time:
        attributes = ", ".join(f"{name}={value}" for name, value in found.attributes.items())
        out.print(f"  {label(attributes)}", soft_wrap=True)
        when = datetime.fromtimestamp(found.time).isoformat(" ", "milliseconds")
        said = f"  appended {when} in chunk {found.chunk}, epoch {found.epoch}, {_by(found)}"
        out.print(said, soft_wrap=True)
    if not readers:
        out.print("there are no durable consumers" if not consumer else "there is no such consumer")
        return
    out.print(
        TextTable("consumer", "selector", ">position", "").of(
            (one.name, one.selector or "all", one.position, WORDS.get(one.what, one.what))
            for one in readers
        )
    )


def _state(found: RowExplained) -> str:
    there = f"the shard has {found.first:,} to {found.next - 1:,}"
    if found.state == "removed":
        return f"not kept any more ({there})"
    if found.state == "not yet":
        return f"not there yet ({there})" if found.next > found.first else "the shard is empty"
    return found.state


def _by(found: RowExplained) -> str:
    """Return who appended the row: its producer, or the fork from which it was copied."""
    if found.fork:
        return f"{_by_whom(found)}, copied from the fork {found.fork}, where it had {found.at}"
    return _by_whom(found)


def _by_whom(found: RowExplained) -> str:
    if not found.producer and found.fork:
        return "without its producer's number, which another row has"
    if found.producer.startswith(CAPTURED):
        return f"captured from node {found.producer[len(CAPTURED) :]}, event number {found.number}"
    if found.producer.startswith(COPIED):
        return f"copied from offset {found.number} of shard {found.producer[len(COPIED) :]}"
    if found.producer.startswith("@"):
        return f"by programs of node {found.producer[1:].partition(FORKED)[0]}"
    return f"by the producer {label(found.producer)}, its number {found.number}"


MARKS: Final = {"true": "[green]✓[/]", "false": "[red]✗[/]", "unknown": "[yellow]?[/]"}


@click.command()
@click.argument("event")
@click.argument("subscription", default="")
@click.option(
    "--stream", default="", shell_complete=stream_names, help="EVENT is an offset of this stream."
)
@click.option("--shard", default=0, help="With --stream: the shard, of one that has several (0).")
@node_options
def why(event: str, subscription: str, stream: str, shard: int, node: NodeOptions) -> None:
    """Explain why EVENT (its id, or its identity) reached SUBSCRIPTION, or why not.

    Ask the node where the subscription was made; the publisher's node knows where the event was
    shown. Without SUBSCRIPTION all subscriptions of the node are explained. The explanation has the
    result of each part of the selector with the value that it saw (✓ true, ✗ false, ? unknown), and
    the path of the event. If several events have the id, the newest is explained, and the
    identities of the others are listed.

    With --stream it explains a row: whether it is kept, who appended it, and which durable
    consumers have read it, have skipped it, or will read it. SUBSCRIPTION then names one consumer.

    \b
    canopy why ci37868143
    canopy why --stream alarms 1200
    canopy why ci37868143 --json | jq '.reasons[].summary'
    """
    from overlay.client import Explained, Why

    if stream:
        why_row(stream, shard, event, subscription, node)
        return
    found = node.ask(Why(0, event, subscription), Explained)
    if node.as_json:
        print_json(plain(found))
    else:
        _show(console(), found)


def _show(out: Console, found: Explained) -> None:
    out.print(f"[bold]{label(found.id)}[/]  [dim]{found.event}[/]", soft_wrap=True)
    if found.alike > 1:
        others = ", ".join(map(label, found.others))
        others += " …" if found.alike - 1 > len(found.others) else ""
        out.print(
            f"[yellow]{found.alike} events have this id; this is the newest of them.[/] Others: "
            f"{others}",
            soft_wrap=True,
        )
    for step in found.path:
        out.print(f"  → {label(step)}", soft_wrap=True)
    if not found.reasons:
        out.print(f"this node has no subscription to explain: {_where(found)}", soft_wrap=True)
    for reason in found.reasons:
        out.print()
        _show_reason(out, reason)


def _where(found: Explained) -> str:
    """Return the advice where to ask for the explanation."""
    nodes = [f"{node} ({address})" for node, address in found.shown_at]
    if not nodes:
        return "ask at the node where it was made (--connect)"
    return f"the event was shown at {label(', '.join(nodes))}, ask there (--connect)"


def _show_reason(out: Console, reason: Reason) -> None:
    mark = MARKS["true"] if reason.delivered else MARKS["false"]
    name = label(reason.name or reason.subscription)
    out.print(f"{mark} [bold]{name}[/]  {label(reason.summary)}", soft_wrap=True)
    for verdict in reason.verdicts:
        seen = f"  [dim]saw {label(verdict.seen)}[/]" if verdict.seen else ""
        shown = label(verdict.text)
        indent = "  " * (verdict.depth + 1)
        out.print(f"{indent}{MARKS.get(verdict.verdict, ' ')} {shown}{seen}", soft_wrap=True)
