"""`canopy sync add`, `ls` and `rm`: the definitions of syncs, and their progress."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import json_option
from canopy.cli.output import TextTable, plain, print_json, show
from canopy.cli.sync.options import by_table, chosen, config_option, database_option
from overlay.phrases import in_one_line, visible

# --- how far a copy was behind, as a line of bars ---

STEPS: Final = " ▁▂▃▄▅▆▇█"
SOON: Final = 10.0
"""The lag in seconds from which on it is printed in seconds, not milliseconds."""


def lag_picture(lags: Sequence[float | None], unknown: str = "?") -> str:
    """Return the largest of these lags (seconds), and a bar for each; `unknown` for None."""
    most = max((lag for lag in lags if lag is not None), default=0.0)
    steps = len(STEPS) - 1
    bars = [unknown if lag is None else STEPS[round(lag / (most or 1.0) * steps)] for lag in lags]
    shown = f"{most:.1f} s" if most >= SOON else f"{most * 1000:,.0f} ms"
    return f"{shown}: {''.join(bars)}"


@click.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--stream",
    required=True,
    metavar="STREAM",
    shell_complete=stream_names,
    help="Stream that carries the changes (one shard).",
)
@database_option("--from", "source", "Capture from this database.")
@database_option("--to", "target", "Apply to this database.")
@click.option(
    "--tables", default="", metavar="A,B", help="Capture these tables only; patterns: log_*, day_?."
)
@click.option(
    "--where",
    multiple=True,
    callback=by_table,
    metavar="'TABLE: SELECTOR'",
    help="Only rows of TABLE that SELECTOR matches; may be repeated.",
)
@click.option(
    "--no-snapshot", is_flag=True, help="Begin with the next change, without the rows of now."
)
@click.option(
    "--forward",
    is_flag=True,
    help="Capture what other syncs apply to the source, too (A to B to C).",
)
@click.option(
    "--conflict",
    multiple=True,
    callback=by_table,
    metavar="'TABLE: RULE'",
    help="Resolve rows that also changed at the destination: incoming, own, park, or newest "
    "COLUMN; an empty TABLE stands for all others.",
)
@json_option
@config_option
def add(
    name: str,
    stream: str,
    source: str,
    target: str,
    tables: str,
    where: dict[str, str],
    no_snapshot: bool,
    forward: bool,
    conflict: dict[str, str],
    as_json: bool,
    config: Path,
) -> None:
    """Define the sync NAME: its source (--from), its destination (--to), or both. The two sides may
    be on different machines, under the same or another name. Nothing runs yet, and no database is
    changed: `canopy sync run` does that.

    Databases: sqlite:FILE, postgresql://… and mariadb://…/DATABASE; duckdb:FILE only as a
    destination.

    \b
    canopy sync add shop --stream shop --from sqlite:shop.db --where 'orders: total > 100'
    canopy sync add shop --stream shop --to postgresql://reports@db.example/shop
    """
    from canopy.sync.conflicts import parse_rule
    from canopy.sync.databases import absolute, check_destination, check_source, shown
    from canopy.sync.definitions import (
        Definition,
        joined,
        read_definitions,
        write_definitions,
    )
    from canopy.sync.row_filter import RowFilter

    if (tables or where or forward or no_snapshot) and not source:
        raise click.UsageError("--tables, --where, --forward and --no-snapshot need --from URL")
    if conflict and not target:
        raise click.UsageError("--conflict needs --to URL")
    for rule in conflict.values():
        parse_rule(rule)
    RowFilter(where)
    if source:
        check_source(source)
    if target:
        check_destination(target)
    if source and absolute(source) == absolute(target):
        raise click.UsageError("--from and --to are the same database")
    wanted = tuple(part.strip() for part in tables.split(",") if part.strip())
    known = read_definitions(config)
    known[name] = joined(
        known.get(name),
        Definition(
            name,
            stream,
            absolute(source),
            absolute(target),
            wanted,
            where,
            not no_snapshot,
            forward,
            conflict,
        ),
    )
    write_definitions(config, known)
    if as_json:
        one = known[name]
        urls = {"from": shown(one.source), "to": shown(one.target)}
        print_json({"name": name, "stream": one.stream, **urls, "file": str(config)})
        return
    click.echo(f"{name} is defined in {config}; canopy sync run {name} keeps it", err=True)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@config_option
def ls(names: tuple[str, ...], as_json: bool, config: Path) -> None:
    """List the syncs of this machine: progress, rate, and errors. Positions come from the
    databases; rates, and a picture of the lag in each of the last sixty seconds, from a running
    `canopy sync run`.

    \b
    canopy sync ls
    canopy sync ls --json | jq '.[] | {name, lag}'
    """
    from canopy.sync.databases import shown

    rows: list[dict[str, Any]] = []
    for one in chosen(config, names):
        statuses = _running(config, one.name)
        for side, url in (("source", one.source), ("destination", one.target)):
            if url:
                found: dict[str, Any] = {"name": one.name, "side": side, "database": shown(url)}
                found |= {"stream": one.stream, **_place(one.name, side, url)}
                rows.append(found | statuses.get(side, {"state": "not running"}))
    listed = TextTable(
        "=name", "=side", "=state", ">position", ">lag", ">changes/s", ">conflicts"
    ).of(
        (
            *(row["name"], row["side"], row["state"], row.get("position") or None),
            None if row.get("lag") is None else f"{row['lag'] * 1000:,.0f} ms",
            f"{row['rate']:,.0f}" if "rate" in row else None,
            row.get("conflicts") or None,
        )
        for row in rows
    )
    said = []
    for row in rows:  # too wide for columns
        name, place = row["name"], "from" if row["side"] == "source" else "to"
        said.append(f"{name}, {place} {row['database']} over the stream {row['stream']}")
        if row.get("error"):
            said.append(f"{name}, {row['side']}: {row['error']}")
        if row.get("partial"):
            partial = ", ".join(row["partial"])
            said.append(f"{name}, to: altered, rows are being sent again: {partial}")
        if any(lag is not None for lag in row.get("lags", ())):
            picture = lag_picture(row["lags"], unknown=" ")
            said.append(f"{name}, lag in the last minute, at most {picture}")
    show(rows, as_json, listed or "there are no syncs", *map(visible, said))


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--keep", is_flag=True, help="Leave triggers, slot and position in the databases.")
@json_option
@config_option
def rm(name: str, keep: bool, as_json: bool, config: Path) -> None:
    """Remove the sync NAME: its definition, and what it has put into its databases (triggers and
    log, publication and replication slot, position). The rows and the stream stay. A database that
    cannot be reached, or was never valid, is named, and the sync is removed nevertheless.

    \b
    canopy sync rm shop
    """
    from canopy.sync.databases import remove_from_destination, remove_from_source, shown
    from canopy.sync.definitions import read_definitions, write_definitions

    (one,) = chosen(config, (name,))
    unreached: list[str] = []
    for remove, url, left in (
        (remove_from_source, one.source, "its triggers and log, or slot and publication"),
        (remove_from_destination, one.target, "its position"),
    ):
        if url and not keep:
            try:
                remove(one.name, url)
            except Exception as error:  # of any driver, or of a URL that is none
                said = in_one_line(error)
                unreached.append(shown(url))
                click.echo(
                    f"{shown(url)} still has {left} of the sync, if it had: {said}. To take them "
                    f"out add {name} once more when it is there, and remove it",
                    err=True,
                )
    known = read_definitions(config)
    del known[name]
    write_definitions(config, known)
    status_file(config, name).unlink(missing_ok=True)
    if as_json:
        print_json({"removed": name, "unreached": unreached})
    else:
        click.echo(f"{name} is removed", err=True)


def status_file(config: Path, name: str) -> Path:
    """Return the file into which a running command writes the status of a sync."""
    return config.with_name(f".{config.stem}-{name}.status")


def _running(config: Path, name: str) -> dict[str, dict[str, Any]]:
    """Return, by side, the status that a running command has written, or why the last command
    ended; {} if there is none."""
    import json

    try:
        found = json.loads(status_file(config, name).read_bytes())
        sides = found["sides"]
        if time.time() - found["time"] > 60 or not _is_running(found["pid"]):
            sides = [each for each in sides if each["state"] == "failed"]
    except (OSError, ValueError, KeyError):
        return {}
    return {each.pop("side"): {k: v for k, v in each.items() if k != "name"} for each in sides}


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True


def _place(name: str, side: str, url: str) -> dict[str, Any]:
    """Return the position that the database itself has; {} if it cannot be asked."""
    from canopy.sync.databases import is_missing, open_destination

    if side == "source":
        return {}
    try:
        if is_missing(url):  # to open it would make it
            return {}
        with closing(open_destination(name, url)) as target:
            progress = target.progress()
    except Exception as error:  # of any driver
        return {"error": in_one_line(error)}
    found = {"offset": progress.offset, "tables": sorted(progress.tables)}
    if partial := sorted(table.name for table in progress.tables.values() if table.is_partial):
        found["partial"] = partial
    if progress.commit is not None:
        found |= plain({"position": progress.commit.position})
        if progress.commit.time:
            found["lag"] = max(0.0, progress.applied - progress.commit.time)
    return found
