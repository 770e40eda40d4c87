"""Groups of commands that know other systems' names of theirs, and say what a person may mean who
names a command that is not there."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final

import click
from click.core import ParameterSource

SYNONYMS: Final = {
    **dict.fromkeys(("subscribe", "consume", "listen", "read", "tail", "follow"), ("sub", "get")),
    **dict.fromkeys(("publish", "send", "produce", "emit", "append"), ("pub",)),
    **dict.fromkeys(("create", "new", "make", "define", "init"), ("add", "new", "init")),
    **dict.fromkeys(("delete", "remove", "del", "drop", "destroy"), ("rm", "revoke", "forget")),
    **dict.fromkeys(("list", "show", "describe"), ("ls", "show", "info")),
    **dict.fromkeys(("update", "set", "change", "alter", "modify"), ("edit",)),
    **dict.fromkeys(("start", "run", "serve", "server", "daemon"), ("run", "node")),
    **dict.fromkeys(("shutdown", "kill", "drain", "quit", "leave"), ("stop",)),
    **dict.fromkeys(("explain", "trace"), ("why",)),
    **dict.fromkeys(("streams", "topic", "topics", "queue"), ("stream",)),
    **dict.fromkeys(("subscriptions",), ("subs",)),
    **dict.fromkeys(("transaction", "transactions"), ("tx",)),
    **dict.fromkeys(("state", "info", "ping", "health"), ("status", "info")),
    **dict.fromkeys(("nodes", "members", "neighbours", "neighbors"), ("peers",)),
    **dict.fromkeys(("contexts",), ("context",)),
    **dict.fromkeys(("http", "mqtt", "websocket", "rest"), ("gateway",)),
    **dict.fromkeys(("perf", "benchmark"), ("bench",)),
    **dict.fromkeys(("check", "verify"), ("check", "verify", "doctor")),
}
"""Other systems' names of commands, and ours in the order in which they are looked for."""

WHOLE: Final = 1_000
"""Characters of a command's first sentence that a list of commands shows: all."""

ALIASES: Final = frozenset(
    (
        *("subscribe", "publish", "create", "delete", "remove", "list", "update"),
        *("streams", "subscriptions", "transactions", "contexts"),
    )
)
"""Those that are run as the first of ours if the group has it. Any other may be something else
there, and gets a hint."""


def given(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Callback of options that may be left out: an empty value, as of a shell's variable that is
    not set, is not the same as none. A token without its bound would be one for everything."""
    source = ctx.get_parameter_source(parameter.name or "")
    if value == "" and source is not ParameterSource.DEFAULT:
        raise click.BadParameter("the value is empty; leave the option out if none is meant")
    return value


def strict(command: click.Command) -> click.Command:
    """The command, with `given` at the options that are for it."""
    for one in command.params:
        if isinstance(one, click.Option) and one.default == "" and one.callback is not given:
            one.callback = given if one.callback is None else _both(one.callback)
    return command


def _both(callback: Callable[..., Any]) -> Callable[..., Any]:
    """`given`, and then another callback."""
    if getattr(callback, "is_strict", False):
        return callback

    def both(ctx: click.Context, parameter: click.Parameter, value: str) -> Any:
        return callback(ctx, parameter, given(ctx, parameter, value))

    both.is_strict = True  # type: ignore[attr-defined]
    return both


class HintingGroup(click.Group):
    """A group that runs one of its commands for an alias of it, suggests one for another name or a
    misspelt one, and whose commands take no empty value for an option that may be left out
    (`given`)."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """As `click.Group`."""
        found = super().get_command(ctx, cmd_name)
        return None if found is None else strict(found)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As `click.Group`; `help COMMAND` is `COMMAND --help`."""
        if args[:1] == ["help"] and "help" not in self.list_commands(ctx):
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As `click.Group`, but with whole sentences: what does not fit goes on below."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(WHOLE))
            for name, command in named
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As `click.Group`."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = self.meant(ctx, args[0])
            if not meant:
                raise
            if args[0] in ALIASES and meant == SYNONYMS[args[0]][0]:
                return super().resolve_command(ctx, [meant, *args[1:]])
            text = f"{error.message.rstrip('.')}. Did you mean {meant!r}?"
            raise click.UsageError(text, ctx) from None

    def meant(self, ctx: click.Context, name: str) -> str:
        """Which of the commands is meant by a name that none has; "": nobody knows."""
        there = self.list_commands(ctx)
        known = (one for one in SYNONYMS.get(name.lower(), ()) if one in there)
        return next(known, "") or next(iter(get_close_matches(name, there, 1)), "")
