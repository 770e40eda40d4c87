"""`canopy doctor`: run the checks in order, and show their findings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from canopy.cli.connect import connect_option, json_option, open_client
from canopy.cli.doctor import live_node, machine
from canopy.cli.doctor.machine import SIGNS, Check, Finding, Level, carry_out
from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import print_json
from overlay.phrases import counted

if TYPE_CHECKING:
    from canopy.wire.config import NodeConfig

ANSWER = 10.0  # seconds for a node to answer


@click.command()
@click.option(
    "--config", "file", metavar="FILE", type=click.Path(), help="The node's configuration file."
)
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings, too.")
@json_option
@connect_option
def doctor(file: str | None, strict: bool, as_json: bool, connect: str | None, wait: float) -> int:
    """Look for what is wrong with a node, and say what to do about it.

    Looks at the program, limits, the data folder, its disk (room, and the time of a durable write),
    keys and certificate, ports and peers. A running node is asked whether it is ready, which losses
    it has counted, which links are silent, how far its clock is from its neighbours', and whether
    the streams of its replicas can be written. Changes nothing, but writes a small file in the data
    folder and removes it.

    Exit code 0: no fault; 1: an error (with --strict also a warning); 2: the configuration is
    invalid.

    \b
    canopy doctor
    canopy doctor --config /etc/canopy/node.yaml --connect /var/lib/canopy
    canopy doctor --json | jq '.findings[] | select(.level != "ok")'
    """
    from canopy.wire.config import load_config

    flags = {"data": connect} if connect and Path(connect).is_dir() else None
    config = load_config(file, os.environ, flags)
    findings: list[Finding] = []
    for name, check in checks_of(config, connect):
        findings += carry_out(name, check)
    counts = {level: sum(each.level == level for each in findings) for level in SIGNS}
    if as_json:
        print_json({"findings": [msgspec.structs.asdict(each) for each in findings], **counts})
    else:
        show(findings, counts)
    return FAILURE if counts["error"] or (strict and counts["warning"]) else OK


def checks_of(config: NodeConfig, connect: str | None) -> Iterator[tuple[str, Check]]:
    """Yield the checks by name; the checks of a running node only if one runs."""
    folder = config.folder
    yield "program", machine.look_at_program
    yield "limits", machine.look_at_limits
    yield "folder", partial(machine.look_at_folder, folder)
    yield "disk", partial(machine.look_at_disk, folder)
    yield "keys", partial(machine.look_at_keys, config)
    yield from running_checks(config, connect)


def running_checks(config: NodeConfig, connect: str | None) -> Iterator[tuple[str, Check]]:
    """Yield the checks that ask the running node; if none runs, the check whether one could
    listen."""
    from canopy.cli.doctor.live_node import look_at_streams, streams_of
    from canopy.client.errors import ControlError, UnreachableError
    from overlay.client import GetPeers, GetStatus, Peers, Status
    from overlay.operator_commands import Clocks, GetClocks

    try:
        with open_client(connect or str(config.folder), 0.0) as client:
            status = client.ask(GetStatus(0), Status, ANSWER)
            peers = client.ask(GetPeers(0), Peers, ANSWER).peers
            clocks = client.ask(GetClocks(0), Clocks, ANSWER).clocks
            streams = streams_of(client, status, ANSWER)
    except UnreachableError as error:
        reason = str(error)
        yield "node", lambda: iter([Finding("note", reason)])
        yield "ports", partial(machine.look_at_port, config)
        yield "peers", partial(machine.look_at_peers, config)
        return
    except ControlError as error:
        reason = str(error)
        todo = "its log says what it does; faulthandler: kill -ABRT ends it with a traceback"
        yield "node", lambda: iter([Finding("error", reason, todo)])
        return
    yield "node", partial(live_node.look_at_status, status)
    yield "losses", partial(live_node.look_at_losses, status)
    yield "peers", partial(live_node.look_at_seeds, status)
    yield "links", partial(live_node.look_at_links, peers)
    yield "clock", partial(live_node.look_at_clocks, clocks)
    yield "streams", partial(look_at_streams, streams)


def show(findings: list[Finding], counts: dict[Level, int]) -> None:
    """Print one line for each finding, and the advice below it."""
    for each in findings:
        sign, colour = SIGNS[each.level]
        click.echo(f"{click.style(sign, fg=colour)} {each.check:8} {each.what}")
        if each.do:
            click.echo(f"  {'':8} → {each.do}")
    levels: tuple[Level, ...] = ("error", "warning")
    wrong = [counted(counts[level], level) for level in levels if counts[level]]
    click.echo(f"\n{' and '.join(wrong)}" if wrong else "\nnothing is wrong")
