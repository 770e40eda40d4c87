"""`canopy completion SHELL`: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import click

from canopy.cli.connect import json_option
from canopy.cli.output import show

VARIABLE = "_CANOPY_COMPLETE"
"""The variable with which a shell asks this program for completions (click's name for `canopy`)."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
def completion(shell: str, as_json: bool) -> None:
    """Print a script that completes canopy's commands, options, contexts and attributes in SHELL.

    \b
    canopy completion bash > ~/.local/share/bash-completion/completions/canopy
    canopy completion zsh > "${fpath[1]}/_canopy"           # before compinit runs
    canopy completion fish > ~/.config/fish/completions/canopy.fish
    """
    from click.shell_completion import get_completion_class

    from canopy.cli.main import canopy

    kind = get_completion_class(shell)
    assert kind is not None, shell
    # click asks bash for its version when it makes the script: the shell may be elsewhere.
    kind._check_version = staticmethod(lambda: None)  # type: ignore[attr-defined]
    script = kind(canopy, {}, "canopy", VARIABLE).source()
    show({"shell": shell, "script": script}, as_json, script)
