"""The table of commands, and `main`, which runs one.

A command's module is imported when the command is called. Exit codes (docs/reference/commands.md):
0 ok, 1 failure, 2 usage, 3 unreachable, 4 denied, 5 time-out, 130 interrupted. Tracebacks are shown
only with CANOPY_DEBUG=1.
"""

from __future__ import annotations

import codecs
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from canopy.cli.errors import OK, quiet_stdout, report
from canopy.cli.hints import HintingGroup, strict

COMMANDS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Run": {
        "node": ("process.node", "Run a node: one peer of an overlay."),
        "stop": ("process.stop", "Drain and stop a node, and wait until it has ended."),
        "doctor": (
            "doctor.command",
            "Look for what is wrong with a node, and say what to do about it.",
        ),
        "reload": ("process.config", "Have a node read its configuration and keys again."),
        "demo": ("demo.command", "Run an overlay on a feed, and check every delivery."),
        "tui": ("tui", "Subscribe, and watch events and the overlay, in the terminal."),
        "sim": ("sim.command", "Run the overlay in a simulated network."),
        "keys": ("keys.command", "Make an overlay's keys, invite nodes, revoke them."),
        "policy": ("keys.policy", "Say what tenants may publish and subscribe to."),
        "access": ("keys.access", "Let programs on other machines use a node, with tokens."),
        "audit": ("keys.audit", "Check the record of what was done with keys and policies."),
    },
    "Events": {
        "sub": ("subscribe.sub", "Subscribe with a selector and print the matching events."),
        "pub": ("publish.pub", "Publish events from a file or standard input."),
        "schema": ("publish.schema", "Hold events against JSON Schemas."),
        "sample": ("sample", "Print made-up events to try commands with."),
        "tx": (
            "streams.transactions",
            "List undecided transactions of streams, and decide them by hand.",
        ),
        "stream": ("streams.group", "Found, list and remove durable streams; check their files."),
        "sync": ("sync.group", "Keep databases consistent over streams."),
        "gateway": (
            "gateway",
            "Serve HTTP, WebSockets and MQTT for programs without Canopy's library.",
        ),
        "subs": ("inspection.subs", "List a node's subscriptions, or end one."),
        "why": ("inspection.why", "Explain why an event reached a subscription, or did not."),
    },
    "The overlay": {
        "status": ("inspection.show", "Show the state of a node."),
        "top": ("inspection.top", "Show the nodes of the overlay, again and again."),
        "bench": ("bench", "Measure publishing, delivery and latency between nodes."),
        "peers": ("inspection.show", "List the neighbours and links of a node."),
        "ring": ("inspection.show", "List the clusters of the ring."),
        "where": ("inspection.show", "Show who owns an attribute, and its tree."),
    },
    "Files": {
        "trace": ("traces.command", "Check and analyse the traces of all nodes."),
        "context": ("contexts", "Name the data folders of nodes."),
        "config": ("process.config", "Check a node's configuration."),
        "completion": ("shells", "Print the completion script of a shell."),
    },
}
"""By section, the module below `canopy.cli` that has each command, and what the command does."""


class LazyGroup(HintingGroup):
    """A group whose commands are imported when they are called, listed by section."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of `COMMANDS`."""
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command `cmd_name`; None if there is none of that name."""
        for section in COMMANDS.values():
            if cmd_name in section:
                module = importlib.import_module(f"canopy.cli.{section[cmd_name][0]}")
                command = getattr(module, cmd_name)
                assert isinstance(command, click.Command)
                return strict(command)
        return None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `version` as `--version`. See `HintingGroup`."""
        return super().parse_args(ctx, ["--version"] if args == ["version"] else args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; a closed standard output (``| head``) is no failure. See `click.Group`."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            quiet_stdout()
            ctx.exit(OK)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections of `COMMANDS`, without importing any command."""
        for title, section in COMMANDS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in section.items()])


SETTINGS: Final = {"help_option_names": ["-h", "--help"], "show_default": True}
"""Settings of click that all commands inherit."""


@click.group(cls=LazyGroup, context_settings=SETTINGS)
@click.version_option(package_name="canopy-overlay", message="canopy %(version)s")
def canopy() -> None:
    """Content-based publish/subscribe among peers: no broker, no topics.

    Every process is a node. A subscription is a selector, a condition on the attributes of events;
    the overlay delivers each event to all nodes with a matching subscription.

    \b
      canopy demo                                   # a tour, in two minutes
      canopy node --listen 127.0.0.1:4470           # a first node …
      canopy sub "mag >= 4.5 AND place LIKE '%Alaska%'"      # … subscribe through it …
      canopy pub earthquakes.geojson                # … and publish a feed

    Commands talk to the node of the default data folder; --connect FOLDER (or CANOPY_CONNECT, or
    canopy context use) names another one. `canopy COMMAND --help` has examples.
    """


def escape_what_cannot_be_shown() -> None:
    """Make standard output and error accept any text, whatever the terminal's encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            codecs.register_error("canopy", _in_ascii)
            if codecs.lookup(stream.encoding).name == "ascii":
                codecs.register(_ascii)
                stream.reconfigure(encoding="canopy_ascii")
            stream.reconfigure(errors="canopy")


def _ascii(name: str) -> codecs.CodecInfo | None:
    """Return the ASCII codec under another name. click would take the name "ascii" for a mistake
    and write UTF-8."""
    if name != "canopy_ascii":
        return None
    found = codecs.lookup("ascii")
    return codecs.CodecInfo(
        found.encode,
        found.decode,
        found.streamreader,
        found.streamwriter,
        found.incrementalencoder,
        found.incrementaldecoder,
        name,
    )


ASCII: Final = {"…": "...", "→": "->", "✓": "+", "✗": "x", "·": "-", "∞": "inf"}


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace characters that the terminal's encoding lacks: the project's own symbols by ASCII,
    others by escapes."""
    assert isinstance(error, UnicodeEncodeError)
    found = error.object[error.start : error.end]
    return "".join(
        ASCII.get(c, c.encode("ascii", "backslashreplace").decode()) for c in found
    ), error.end


STANDARD_FILES: Final = (
    ("stdin", "r", os.O_RDONLY),
    ("stdout", "w", os.O_RDONLY),  # so that writing fails
    ("stderr", "w", os.O_WRONLY),
)
"""By descriptor, the file's name in `sys`, its mode there, and how /dev/null stands in for it."""


def open_standard_files() -> None:
    """Open those of the standard files that are closed, as ``>&-`` of a shell leaves them. The next
    files to be opened would take their places, and what is written to standard error would be in a
    node's state. Writing to standard output fails as before; there is no input, and messages are
    dropped."""
    for descriptor, (name, mode, flags) in enumerate(STANDARD_FILES):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, flags), True)  # it gets the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line `args` (without the program's name). Returns the exit code."""
    open_standard_files()
    escape_what_cannot_be_shown()
    try:
        code = canopy.main(
            args=None if args is None else list(args), prog_name="canopy", standalone_mode=False
        )
        sys.stdout.flush()
    except BaseException as error:
        return report(error)
    return code if isinstance(code, int) else 0
