"""Pages of the site that are made from the code.

    python -m bench.site.pages help          # every command with its help
    python -m bench.site.pages messages      # all that a program and nodes say to each other
    python -m bench.site.pages reasons       # why streams refuse programs
    python -m bench.site.pages settings      # the keys of a node's configuration
    python -m bench.site.pages traces        # the kinds and fields of trace records
    python -m bench.site.pages hearing       # who hears each message, command and event, in order
    python -m bench.site.pages counters      # the counters of a node, as /metrics explains them
    python -m bench.site.pages attacks       # the attacks that are tried, each with its test
    python -m bench.site.pages standards     # what is done with each rule of the formats' standards
    python -m bench.site.pages statements    # … and with each statement of MQTT 5

`make docs` puts them into build/pages, from where `bench/site/hook.py` takes them.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, get_args

import click
import msgspec

from bench.lab import hearing
from bench.lab.record import ROOT
from canopy.cli.main import canopy
from canopy.traces.schema import COMMON, KINDS, MEANINGS
from canopy.wire.process import config_keys
from canopy.wire.transport.codec import MESSAGES
from overlay import info
from overlay.client import NO_MAJORITY
from overlay.client_types import COMMANDS, REPLIES
from overlay.links.messages import Frame
from streams.access import reasons as streams_reasons

BESIDE: Final = {
    "attacks": "tests/attacks/attacks.md",
    "counters": "canopy/wire/admin/counters.md",
    "standards": "tests/canopy/feeds/standards.md",
    "statements": "tests/canopy/gateway/statements.md",
}
"""Pages that lie beside the code or the tests that read them."""

WIDTH: Final = 100
"""Characters of a line of help."""


def commands() -> str:
    """Every command of `canopy` with its help."""
    context = click.Context(canopy, info_name="canopy", max_content_width=WIDTH)
    parts = (f"## {name}\n\n```text\n{text}\n```\n" for name, text in helps(context))
    return "\n".join(["# All commands\n", "What `canopy COMMAND --help` says.\n", *parts])


def helps(context: click.Context) -> Iterator[tuple[str, str]]:
    """The path and help of a command and of all below it."""
    yield context.command_path, context.get_help().rstrip()
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                inner = click.Context(command, context, name, max_content_width=WIDTH)
                yield from helps(inner)


def messages() -> str:
    """The frames, commands, replies and messages of the wire, with their fields."""
    parts = {
        "Frames between nodes": Frame.__subclasses__(),
        "Commands of programs": get_args(COMMANDS),
        "Replies to programs": get_args(REPLIES),
        "Parts of replies": [each for _, each in inspect.getmembers(info, _is_struct)],
        "Messages between nodes": tuple(MESSAGES.values()),
    }
    lines = ["# Messages", "Structs of the [wire](wire.md), fields in their order."]
    for title, types in parts.items():
        lines += [f"## {title}", *(_struct(each) for each in types)]
    return "\n\n".join(lines) + "\n"


def _is_struct(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, msgspec.Struct)


def _struct(type_: type[msgspec.Struct]) -> str:
    fields = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(type_))
    said = " ".join((inspect.getdoc(type_) or "").split())
    return f"**`{type_.__name__}`** ({fields or 'no fields'}): {said}"


def reasons() -> str:
    """The codes with which streams refuse programs, and the texts below them."""
    lines = [f"| `{NO_MAJORITY}` | Fewer replicas than a majority answer. Nothing was done. |"]
    told = inspect.getsource(streams_reasons).partition("NOT_HERE: ")[2]
    for code, text in re.findall(r'^[A-Z_]+: Final = "([a-z-]+)"\n"""(.*?)"""', told, re.M | re.S):
        lines.append(f"| `{code}` | {' '.join(text.split())} |")
    return "\n".join(
        [
            "# Why streams refuse\n",
            "Codes of the errors of streams. Each error's text says more.\n",
            "| code | meaning |\n|---|---|",
            *lines,
            "",
        ]
    )


def settings() -> str:
    """Every key of a node's configuration. Links lead from the repository's root."""
    lines = [
        "# All keys\n",
        "What `canopy config keys` says ([configuration](configuration.md)).\n",
    ]
    for group in config_keys.groups():
        lines += [f"## `{group.name}`\n\n{group.about}\n" if group.name else "## The node\n"]
        lines += ["| key | default | takes effect | meaning |", "|---|---|---|---|"]
        for key in group.keys:
            name = key.name.rpartition(".")[2]
            lines.append(f"| `{name}` | `{key.default}` | {key.effect} | {key.meaning} |")
        lines.append("")
    return "\n".join(lines).replace("](docs/", "](../")


def traces() -> str:
    """The kinds of trace records with their fields, and what each field means."""
    kinds = (f"| `{kind}` | {_names(fields) or 'none'} |" for kind, fields in KINDS.items())
    fields = (f"| `{name}` | {kind} | {text} |" for name, (kind, text) in MEANINGS.items())
    return "\n".join(
        [
            "# Trace records\n",
            f"Each has {_names(COMMON)}, and the fields of its kind; "
            "[formats](formats.md#trace-records) says where they are.\n",
            "| kind | fields |\n|---|---|",
            *kinds,
            "\n| field | Spark type | meaning |\n|---|---|---|",
            *fields,
            "",
        ]
    )


def beside(path: str) -> str:
    """A page of `BESIDE` with the site's links."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.sub(r"\]\((\.\./)+docs/", "](../", text)


def _names(fields: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in fields)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "help": commands,
    "messages": messages,
    "reasons": reasons,
    "settings": settings,
    "traces": traces,
    "hearing": hearing.page,
    **{name: partial(beside, path) for name, path in BESIDE.items()},
}
"""What makes each page, `reference/NAME.md` of the site."""


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PAGES:
        sys.exit(f"usage: python -m bench.site.pages {'|'.join(PAGES)}")
    sys.stdout.write(PAGES[sys.argv[1]]())
