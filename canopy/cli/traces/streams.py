"""`canopy trace streams`: were the rows of streams consumed once?"""

from __future__ import annotations

import click

from canopy.cli.connect import json_option
from canopy.cli.errors import OK, UNDECIDED, WRONG
from canopy.cli.extras import require
from canopy.cli.output import console, plain, print_json, table


@click.command()
@click.argument("folder", metavar="DIR")
@click.option("--master", metavar="URL", help="A Spark cluster; by default this machine.")
@json_option
def streams(folder: str, master: str | None, as_json: bool) -> int:
    """Have Spark prove from the trace records under DIR that each committed row of a stream was
    consumed once by each durable consumer whose selector is true for it.

    The exit code is 0 if that is so for all that were confirmed; 9 if some were not taken by who
    has confirmed them, or twice, or confirmed twice; 5 if there is nothing to judge.

    \b
    canopy trace streams traces
    canopy trace streams traces --json | jq .consumed
    """
    require("analysis")
    from canopy.traces.analysis import named
    from canopy.traces.analysis.streams import judge_streams

    found = judge_streams(named(folder), master)
    if as_json:
        print_json(plain(found), indent=2)
    else:
        rows = table("", ">")
        rows.show_header = False
        for name in found.__struct_fields__[1:-1]:
            rows.add_row(name, f"{getattr(found, name):,}")
        console().print(rows)
        for example in found.examples:
            console().print(f"  {example}")
        console().print(f"consumption: [bold]{found.result}[/]")
    return {"exact": OK, "wrong": WRONG}.get(found.result, UNDECIDED)
