"""Groups of commands that accept other systems' names for their commands, and suggest a command for
an unknown name."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial
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
"""Other systems' names of commands, with our commands in the order in which they are tried."""

WHOLE: Final = 1_000
"""The most characters of a command's first sentence in a list of commands: enough for all of
them."""

ALIASES: Final = frozenset(
    (
        *("subscribe", "publish", "create", "delete", "remove", "list", "update"),
        *("streams", "subscriptions", "transactions", "contexts"),
    )
)
"""Synonyms that run the first of our commands that the group has. Any other synonym may mean
something else there, and gets a hint."""


EMPTY: Final = '"": '
"""What the help of an option has whose value may be empty, before the meaning of that."""


def strict(command: click.Command) -> click.Command:
    """Have a command refuse empty values of its options, but where their help says what these mean,
    and return it. An unset variable of a shell gives "", which does not mean that the option was
    left out: a token without its bound would allow everything, and another node be stopped."""
    for one in command.params:
        may_be_empty = EMPTY in str(getattr(one, "help", "")) and one.default != ""
        if isinstance(one, click.Option) and not may_be_empty:
            one.process_value = partial(_given, one)  # type: ignore[method-assign]
    return command


def _given(option: click.Option, ctx: click.Context, value: Any) -> Any:
    source = ctx.get_parameter_source(option.name or "")
    if source is ParameterSource.COMMANDLINE and (value == "" or (option.multiple and "" in value)):
        text = "the value is empty; leave the option out if none is meant"
        raise click.BadParameter(text, ctx, option)
    return type(option).process_value(option, ctx, value)


class HintingGroup(click.Group):
    """A group that runs a command by its alias, and suggests one for a wrong name. Its commands
    refuse empty values of options (`strict`)."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with strict options. See `click.Group`."""
        found = super().get_command(ctx, cmd_name)
        return None if found is None else strict(found)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `help COMMAND` as `COMMAND --help`. See `click.Group`."""
        if args[:1] == ["help"] and "help" not in self.list_commands(ctx):
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands with whole sentences, wrapped. See `click.Group`."""
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
        """Run an alias, or suggest a command for an unknown name. See `click.Group`."""
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
        """Return the command that an unknown name probably means; "" if there is none."""
        there = self.list_commands(ctx)
        known = (one for one in SYNONYMS.get(name.lower(), ()) if one in there)
        return next(known, "") or next(iter(get_close_matches(name, there, 1)), "")
