"""`canopy trace export`: trace records as spans of OpenTelemetry."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import IO

import click

from canopy.cli.connect import json_option
from canopy.cli.errors import FAILURE, OK
from canopy.cli.output import print_json
from overlay.phrases import counted


@click.command("export")
@click.argument("folder", metavar="DIR")
@click.option(
    "--otlp",
    "target",
    metavar="FILE|URL",
    required=True,
    help="A file (- for standard output), or a collector's http://HOST:4318/v1/traces.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Also events without a trace context, each as a trace of its own, and unsampled ones.",
)
@json_option
def export(folder: str, target: str, every: bool, as_json: bool) -> int:
    """Export the paths of events under DIR as spans of OpenTelemetry (OTLP in JSON).

    An event belongs to a distributed trace if it was published with the attribute `traceparent`
    (W3C Trace Context): its publication, each match at a host and each delivery become spans below
    the publisher's own. DIR has the trace files of all nodes, as for `canopy trace analyze`. If
    nodes keep a share of the events (`trace.sample`), only those are exported.

    \b
    canopy pub mag=5.1 traceparent=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
    canopy trace export traces --otlp http://127.0.0.1:4318/v1/traces
    canopy trace export traces --otlp spans.jsonl --all
    """
    from canopy.traces.analysis import named
    from canopy.traces.otlp import export as export_traces
    from canopy.traces.otlp import post
    from canopy.wire.process.supervision import package_version

    with ExitStack() as stack:
        if target.startswith(("http://", "https://")):

            def send(body: bytes) -> None:
                post(target, body)

        else:
            out: IO[bytes] = stack.enter_context(click.open_file(target, "wb"))

            def send(body: bytes) -> None:
                out.write(body + b"\n")

        found = export_traces(Path(named(folder)), send, package_version(), every)
    if as_json and target != "-":
        print_json(asdict(found))
    else:
        click.echo(
            f"exported {counted(found.spans, 'span')} of {counted(found.events, 'event')}", err=True
        )
    for name in found.damaged:
        click.echo(f"! {name} is damaged: what could be read of it was exported", err=True)
    if found.invalid:
        number = counted(found.invalid, "event")
        click.echo(f"! the traceparent of {number} is not valid, and was ignored", err=True)
    if found.unsampled:
        number = counted(found.unsampled, "event")
        click.echo(f"{number} left out: their tracer does not record them (--all)", err=True)
    if not found.events:
        click.echo("no event has the attribute traceparent; --all exports all others", err=True)
    return OK if found.events and not found.damaged else FAILURE
