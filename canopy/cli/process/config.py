"""`canopy config`: the configuration that a node would run with, and what each key means."""

from __future__ import annotations

import os
from typing import Any

import click
import msgspec

from canopy.cli.connect import NodeOptions, json_option, node_options
from canopy.cli.hints import HintingGroup
from canopy.cli.output import plain, show
from overlay.phrases import counted


@click.group(cls=HintingGroup)
def config() -> None:
    """Check a node's configuration, and show what each key means."""


@config.command()
@click.argument("file", required=False, type=click.Path())
@json_option
def check(file: str | None, as_json: bool) -> None:
    """Check FILE (YAML) together with the CANOPY_… environment, and show the result: what an
    operator sets first, then tuning.

    Exit code 2 if something is wrong; the message names the source, the key and what is expected.

    \b
    canopy config check node.yaml
    CANOPY_TREE__ROUTING=counting canopy config check --json
    """
    import yaml

    from canopy.wire.config import load_config, unknown_variables

    found = in_order(msgspec.to_builtins(load_config(file, os.environ, None)))
    found["join"] = shown_token(found["join"])
    for warning in unknown_variables(os.environ):
        click.echo(f"! {warning}", err=True)
    head = f"# {file or 'the environment'} is valid; together with the defaults:"
    text = yaml.safe_dump(found, sort_keys=False, allow_unicode=True).rstrip("\n")
    show(found, as_json, head, text, indent=2)


@config.command()
@click.argument("names", nargs=-1)
@json_option
def keys(names: tuple[str, ...], as_json: bool) -> None:
    """Show the keys of a configuration: default, when a change holds (now, by `canopy reload`, or
    from the next start) and meaning. NAMES are keys or groups; without any, all are shown.

    \b
    canopy config keys tree.lease
    canopy config keys listen clients
    """
    from canopy.wire.process.config_keys import groups, plain

    every = [key for group in groups() for key in group.keys]
    unknown = [n for n in names if not any(is_named(key.name, n) for key in every)]
    if unknown:
        raise click.UsageError(
            f"no key or group is called {unknown[0]}; `canopy config keys` shows all"
        )
    shown = [key for key in every if not names or any(is_named(key.name, n) for n in names)]
    texts = (
        f"{key.name}: {key.default}  ({key.effect})\n"
        + click.wrap_text(plain(key.meaning), 96, "    ", "    ")
        + "\n"
        for key in shown
    )
    told = [{**key._asdict(), "meaning": plain(key.meaning)} for key in shown]
    show(told, as_json, *texts, indent=2)


def is_named(key: str, name: str) -> bool:
    """Whether `name` is that of a key or of its group."""
    return key == name or key.startswith(f"{name}.")


def shown_token(join: str) -> str:
    """Return a join token as it is shown: the name of its file, or a note that there is one. A
    token is a password."""
    return join if join.startswith("@") or not join else "(a token, not shown)"


def in_order(values: dict[str, Any]) -> dict[str, Any]:
    """A configuration in the order of `canopy config keys`: the node's own keys, then `GROUPS`."""
    from canopy.wire.process.config_keys import GROUPS

    own = {name: value for name, value in values.items() if name not in GROUPS}
    return own | {name: values[name] for name in GROUPS}


# --- `canopy reload`: a running node reads its configuration again ---


@click.command()
@node_options
def reload(node: NodeOptions) -> None:
    """Have a node read its configuration file and its keys again, as SIGHUP does.

    Shows what has changed, and for each key whether it holds now or needs a restart. Where the
    configuration is invalid nothing changes: exit code 2, with the reason. Options and environment
    variables with which the node was started still override the file.

    \b
    canopy reload
    canopy reload --connect /tmp/b --json | jq '.changed[] | select(.effective == "restart")'
    """
    from overlay.operator_commands import Reload, Reloaded

    found = node.ask(Reload(0), Reloaded)
    said = [f"read: {', '.join(found.read) or 'nothing: this node was started without a file'}"]
    for each in found.changed:
        note = "" if each.effective == "now" else "  (needs a restart)"
        said.append(f"  {each.key}: {each.before} → {each.after}{note}")
    waiting = sum(each.effective != "now" for each in found.changed)
    if not found.changed:
        said.append("nothing has changed")
    elif waiting:
        said.append(f"{counted(waiting, 'change')} of {len(found.changed)} need a restart")
    show(plain(found), node.as_json, *said)
