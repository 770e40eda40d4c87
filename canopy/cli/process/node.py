"""`canopy node`, which is also `python node.py`."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from canopy.cli.arguments import hide_secrets
from canopy.wire.keys.tokens import PREFIX

if TYPE_CHECKING:
    from canopy.wire.config import NodeConfig


GROUPED: Final = {
    "routing": ("tree", "routing"),
    "trace": ("trace", "enabled"),
    "trace_dir": ("trace", "dir"),
    "trace_sample": ("trace", "sample"),
    "trace_rate": ("trace", "rate"),
    "log": ("log", "level"),
    "log_format": ("log", "format"),
    "metrics": ("metrics", "listen"),
}
"""Group and key of the options that are not keys of the node itself (canopy/wire/config.py)."""

TOKEN: Final = re.compile(re.escape(PREFIX.encode()) + rb"[^\0]+")


@click.command()
@click.option(
    "--listen", metavar="HOST:PORT", help="The address to listen on; port 0: any free port."
)
@click.option(
    "--advertise", metavar="HOST:PORT", help="The address that others dial, if it differs."
)
@click.option(
    "--peer", "peers", multiple=True, metavar="HOST:PORT", help="A node to join at (repeatable)."
)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(),
    help="A YAML file with the configuration.",
)
@click.option("--data", metavar="DIR", type=click.Path(), help="The node's data folder.")
@click.option("--name", help="A name for people; the node's id is drawn at random.")
@click.option("--region", help="Where the node is, for delivery by region.")
@click.option("--tier", type=int, help="Level of the node, for delivery by region.")
@click.option("--overlay", help="The overlay's name; only nodes of the same one connect.")
@click.option("--routing", type=click.Choice(["pivot", "counting"]), help="How events are routed.")
@click.option("--seed", type=int, help="Seed of the node's random numbers.")
@click.option(
    "--directory/--no-directory",
    default=None,
    help="Use the Kademlia directory: with keys on any address, else on loopback.",
)
@click.option(
    "--mdns/--no-mdns",
    default=None,
    help="Find nodes of the local network by multicast DNS; needs keys.",
)
@click.option("--trace/--no-trace", default=None, help="Write trace records.")
@click.option("--trace-dir", metavar="DIR", type=click.Path(), help="Folder of the trace records.")
@click.option("--trace-sample", type=float, metavar="SHARE", help="Share of events traced, 0 to 1.")
@click.option(
    "--trace-rate", type=float, metavar="N", help="Own events traced per second at most; 0: all."
)
@click.option("--log", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--json", "as_json", is_flag=True, help="Same as --log-format json.")
@click.option(
    "--log-format",
    type=click.Choice(["logfmt", "json"]),
    help="Format of the log lines.",
)
@click.option(
    "--metrics",
    metavar="HOST:PORT",
    help='Serve /metrics (Prometheus), /livez and /readyz there; port 0: any free port; "": not.',
)
@click.option(
    "--join",
    metavar="TOKEN",
    help="Join with a token of `canopy keys invite`: @FILE, a private file that has it.",
)
@click.option(
    "--insecure", is_flag=True, default=None, help="Listen beyond loopback without a key."
)
def node(file: str | None, as_json: bool, peers: tuple[str, ...], **flags: Any) -> int:
    """Run a node until SIGTERM or Ctrl-C, which drain it; a second one ends it at once.

    Options override CANOPY_… environment variables, these the file, the file the defaults. The
    first node of an overlay has no peers; it founds the ring.

    \b
    canopy node                                            # alone, on 127.0.0.1:4470
    canopy node --listen 127.0.0.1:0 --data /tmp/b --peer 127.0.0.1:4470
    canopy node --config node.yaml
    """
    from canopy.wire.config import load_config, unknown_variables
    from canopy.wire.process.node_process import run_node
    from canopy.wire.process.reload import ConfigSource

    if is_shown(flags.get("join")):
        hide_secrets(TOKEN, "--join TOKEN", "use --join @FILE, or CANOPY_JOIN")
    for warning in unknown_variables(os.environ):
        click.echo(f"! {warning}", err=True)
    flags["log_format"] = "json" if as_json else flags["log_format"]
    given: dict[str, Any] = {"peers": list(peers) or None}
    for name, value in flags.items():
        if name not in GROUPED:
            given[name] = value
        elif value is not None:
            group, key = GROUPED[name]
            given.setdefault(group, {})[key] = value
    environment = dict(os.environ)

    def read() -> NodeConfig:
        return load_config(file, environment, given)

    return run_node(read(), source=ConfigSource(file or "", read))


def is_shown(join: str | None) -> bool:
    """Return whether `--join` has the token itself, and not the name of a file."""
    return join is not None and join != "" and not join.startswith("@")


def main() -> NoReturn:
    """Run `canopy node …` for `python node.py …`."""
    from canopy.cli.main import main as run

    sys.exit(run(["node", *sys.argv[1:]]))
