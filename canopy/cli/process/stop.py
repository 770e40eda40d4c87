"""`canopy stop`: drain a node and wait until its process has ended."""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING

import click

from canopy.cli.connect import NodeOptions, node_options_within
from canopy.cli.constants import POLL, STOP_WAIT
from canopy.cli.errors import TIME_OUT, CommandError
from canopy.cli.output import print_json

if TYPE_CHECKING:
    from canopy.client.client import Client


@click.command()
@node_options_within(
    STOP_WAIT, "Seconds to wait for the end of the process; exit code 5 if it goes on."
)
def stop(node: NodeOptions) -> None:
    """Stop a node as SIGTERM does: it drains, leaves the overlay in order, and its process ends.

    The node refuses further events and subscriptions of programs, hands over what it serves, and
    ends after its `drain_timeout` (10 s) at the latest. After exit code 0 the data folder can be
    used for a new start; its state stays. Other nodes are not stopped.

    \b
    canopy stop
    canopy stop --connect /tmp/b && canopy node --data /tmp/b
    """
    from overlay.client import Done, Drain, GetStatus, Status

    began = time.monotonic()
    until = began + node.timeout
    with node.open() as client:
        status = client.ask(GetStatus(0), Status, node.timeout)
        process = _process(status.pid)
        try:
            client.ask(Drain(0), Done, max(POLL, until - time.monotonic()))
            ended = _await_silence(client, until) and _await_end(process, status.pid, until)
        finally:
            if process is not None:
                os.close(process)
    seconds = time.monotonic() - began
    if node.as_json:
        print_json(
            {"node": status.node, "pid": status.pid, "stopped": ended, "seconds": round(seconds, 3)}
        )
    if not ended:
        raise CommandError(
            f"node {status.node} has not ended within {node.timeout:g} s and goes on draining; "
            f"kill -9 {status.pid} ends it at once, which costs the overlay a recovery",
            TIME_OUT,
        )
    if not node.as_json:
        click.echo(f"stopped node {status.node} (process {status.pid}) in {seconds:.1f} s")


def _process(pid: int) -> int | None:
    """Return a file descriptor of the process, to wait for its end (its number may be reused); None
    if the system has none."""
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return None


def _await_silence(client: Client, until: float) -> bool:
    """Wait until the node no longer answers. Return False after a time-out."""
    from canopy.client.errors import CommandTimeoutError, UnreachableError
    from overlay.client import GetStatus, Status

    while (left := until - time.monotonic()) > 0:
        try:
            client.ask(GetStatus(0), Status, left)
        except UnreachableError:
            return True
        except CommandTimeoutError:
            return False
        time.sleep(POLL)
    return False


def _await_end(process: int | None, pid: int, until: float) -> bool:
    """Wait for the end of the process, which closes its socket somewhat earlier. Returns False
    after a time-out."""
    if process is not None:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))
    while _is_alive(pid):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL)
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
