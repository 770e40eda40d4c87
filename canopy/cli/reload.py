"""`canopy reload`: a running node reads its configuration again."""

from __future__ import annotations

import click

from canopy.cli.connect import node_options, open_client
from canopy.cli.output import plain, print_json
from overlay.wording import counted


@click.command()
@node_options
def reload(as_json: bool, timeout: float, connect: str | None, wait: float) -> None:
    """Have a node read its configuration file and its keys again, as SIGHUP does.

    Shows what has changed, and for each key whether it holds now or needs a restart. Where the
    configuration is invalid nothing changes: exit code 2, with the reason. Options and environment
    variables with which the node was started still override the file.

    \b
    canopy reload
    canopy reload --connect /tmp/b --json | jq '.changed[] | select(.effective == "restart")'
    """
    from overlay.operator_commands import Reload, Reloaded

    with open_client(connect, wait) as client:
        found = client.ask(Reload(0), Reloaded, timeout)
    if as_json:
        print_json(plain(found))
        return
    click.echo(f"read: {', '.join(found.read) or 'nothing: this node was started without a file'}")
    for each in found.changed:
        note = "" if each.effective == "now" else "  (needs a restart)"
        click.echo(f"  {each.key}: {each.before} → {each.after}{note}")
    waiting = sum(each.effective != "now" for each in found.changed)
    if not found.changed:
        click.echo("nothing has changed")
    elif waiting:
        click.echo(f"{counted(waiting, 'change')} of {len(found.changed)} need a restart")
