"""`canopy trace`: the check and the Spark analyses of the traces of all nodes."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from canopy.cli.completion import stream_names
from canopy.cli.connect import connect_option, json_option
from canopy.cli.errors import OK, UNDECIDED, WRONG, CommandError
from canopy.cli.extras import require
from canopy.cli.hints import HintingGroup
from canopy.cli.output import TextTable, plain, print_json, show
from canopy.cli.parameters import Number
from canopy.cli.traces.check import check, time_text, window_of
from canopy.cli.traces.export import export
from canopy.cli.traces.from_stream import streams
from canopy.cli.traces.prune import prune
from overlay.phrases import counted, visible

if TYPE_CHECKING:
    from canopy.traces.analysis import AnalysisSummary, Thresholds
    from canopy.traces.health_file import HealthFile
from canopy.cli.display import Display


class Stages(Display):
    """Shows one stage after another: each has a bar on a terminal, else a line, and further lines
    every few seconds. A context manager."""

    def __init__(self) -> None:
        super().__init__()
        self._began = 0.0
        self._before = self._done = 0  # tasks

    def stage(self, text: str, done: int, total: int) -> None:
        """Show how far a stage of the analysis is (`canopy.traces.analysis.OnProgress`)."""
        if self.fancy:
            self.fill(" ")  # not the tasks of the last look, which are fewer than there were
        if done == total:
            self.done()
            return
        self._began, self._before = time.monotonic(), self._done
        self.step(f"{done + 1} of {total}: {text}", 1)

    def tasks(self, done: int, total: int) -> None:
        """`canopy.traces.analysis.OnTasks`; called in another thread."""
        self._done = done
        done, total = done - self._before, total - self._before
        seconds = time.monotonic() - self._began
        self.update(done, total, f"{done:,} of {total:,} tasks done, {seconds:.0f} s")


LEVELS = ("none", "relatively high", "high", "extremely high")
"""Tensor's names of the threat levels."""

GROUPS_PRINTED: Final = 3  # groups of wrong deliveries of each kind that are printed


@click.group(cls=HintingGroup)
def trace() -> None:
    """Check the traces of all nodes, analyse them with Spark, and remove old ones."""


trace.add_command(check)
trace.add_command(export)
trace.add_command(prune)
trace.add_command(streams)


@trace.command()
@click.argument("folder", metavar="DIR", required=False)
@click.option(
    "--stream",
    metavar="NAME",
    shell_complete=stream_names,
    help="Read the records from a stream instead of DIR.",
)
@click.option("--records", metavar="DIR", help="Folder in which --stream stores the records.")
@connect_option
@click.option("--out", metavar="DIR", required=True, help="Folder of the report.")
@click.option("--master", metavar="URL", help="A Spark cluster; by default this machine.")
@click.option(
    "--driver-memory", metavar="SIZE", help="Heap of this machine's Spark.  [default: 2g]"
)
@click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.")
@click.option("--overwrite", is_flag=True, help="Write to a folder that has other files, too.")
@click.option("--state", metavar="DIR", help="Folder of earlier results: only new files are read.")
@click.option("--since", metavar="TIME", help="Only records from then on: a day or a time (UTC).")
@click.option("--until", metavar="TIME", help="Only records before it; of a day: with all of it.")
@json_option
def analyze(
    folder: str | None,
    stream: str | None,
    records: str | None,
    connect: str | None,
    wait: float,
    out: str,
    master: str | None,
    driver_memory: str | None,
    conf: tuple[str, ...],
    overwrite: bool,
    state: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
) -> int:
    """Read the trace records under DIR and write report.html, summary.json and Parquet tables.

    Spark computes which deliveries were expected from the subscriptions and publications alone, so
    that the report checks the overlay independently. The exit code is 0 only if the run was exact:
    each expected delivery was made once, and no others were made; 9 if it was not exact, and 5 if
    the traces prove neither, since too many records are absent or nothing was expected. It is 1 if
    there is no verdict: no records, no Java, a job that failed. Needs Java 17 or newer, or the one
    of the installation. A folder is a path, a file: URI, or without --master a URI of S3 (s3:,
    s3a:) or of a file system that Hadoop has a connector for (hdfs:), from and to which files are
    copied.

    With --since and --until only the date= folders of that time are opened. Deliveries to
    subscriptions that were made before are not judged then, unless --state names a folder with the
    state of the days before: a run then reads only new files, judges what they change, and reports
    all days together, as one run over all files would.

    \b
    canopy trace analyze ~/.local/share/canopy/default/traces --out report
    canopy trace analyze traces --out report --driver-memory 8g --conf spark.ui.enabled=true
    canopy trace analyze /shared/traces --out /shared/report --master spark://host:7077
    canopy trace analyze hdfs://name/traces --out hdfs://name/report --until 2026-09-22
    canopy trace analyze traces --out report --since 2026-09-21 --until 2026-09-22T12:00
    canopy trace analyze traces --out report --state state --overwrite --until 2026-09-22
    canopy trace analyze --stream traces --out report
    """
    require("analysis")
    if (folder is None) == (stream is None):
        raise click.UsageError("give the folder of the traces, or --stream NAME")
    from canopy.traces.analysis import EXACT, NOT_JUDGED, analyze_places

    with _records(folder, stream, records, connect, wait) as traces, Stages() as stages:
        found = analyze_places(
            traces,
            out,
            state=state,
            master=master,
            progress=stages.stage,
            on_tasks=stages.tasks,
            overwrite=overwrite,
            settings=_settings(driver_memory, conf),
            window=window_of(since, until),
        )
    show(found.to_dict(), as_json, *_views(found), indent=2)
    if found.corrupt_lines and not as_json:
        lines = counted(found.corrupt_lines, "line")
        click.echo(f"! {lines} could not be read; the report shows some", err=True)
    return {EXACT: OK, NOT_JUDGED: UNDECIDED}.get(found.result, WRONG)


@contextlib.contextmanager
def _records(
    folder: str | None, stream: str | None, records: str | None, connect: str | None, wait: float
) -> Iterator[str]:
    """Give the folder of the trace files. The files of a stream are written to a folder first,
    which is removed afterwards unless `records` names it."""
    from canopy.traces.analysis import named

    with contextlib.ExitStack() as stack:
        if folder is not None:
            yield folder
            return
        from canopy.cli.traces.from_stream import fetch

        if records is None:
            records = stack.enter_context(tempfile.TemporaryDirectory(prefix="canopy-traces-"))
        elif named(records).is_dir() and any(named(records).iterdir()):
            raise CommandError(f"{records} has files already: name a new folder")
        assert stream is not None
        fetch(stream, named(records), connect, wait)
        yield records


def _settings(driver_memory: str | None, conf: tuple[str, ...]) -> dict[str, str]:
    """Return Spark's settings by name. Raises BadParameter."""
    settings = {} if driver_memory is None else {"spark.driver.memory": driver_memory}
    for text in conf:
        name, separator, value = text.partition("=")
        if not separator or not name.startswith("spark."):
            raise click.BadParameter(
                f"{text!r}: a setting of Spark is spark.NAME=VALUE", param_hint="--conf"
            )
        settings[name] = value
    return settings


@trace.command()
@click.argument("folder", metavar="DIR")
@click.option("--out", metavar="FILE", required=True, help="The health file, which is replaced.")
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="Another threshold: disk=90."
)
@click.option("--paper", is_flag=True, help="The thresholds of the Tensor paper.")
@click.option("--learnt", is_flag=True, help="Threat levels by the learnt tree, not the paper's.")
@click.option("--follow", is_flag=True, help="Continue with new records until Ctrl-C.")
@click.option(
    "--every",
    type=Number(min=1.0),
    default=60.0,
    metavar="SECONDS",
    help="Seconds between two rounds of --follow.  [default: 60]",
)
@click.option("--master", metavar="URL", help="A Spark cluster; by default this machine.")
@json_option
def health(
    folder: str,
    out: str,
    changes: tuple[str, ...],
    paper: bool,
    learnt: bool,
    follow: bool,
    every: float,
    master: str | None,
    as_json: bool,
) -> int:
    """Find sub-healthy nodes in the trace records under DIR and write a health file.

    Spark computes eight signals per node and two minutes (crashes, log volume, heartbeats, latency,
    memory, processor, disk, programs); a node that showed one within half an hour is sub-healthy.
    Nodes whose `health.file` names the file prefer the healthy as primaries, standbys and hosts.

    \b
    canopy trace health /shared/traces --out /shared/health.json --follow
    canopy trace health traces --out health.json --set disk=90 --set clients=20 --json
    """
    require("analysis")
    from canopy.cli.parameters import changed
    from canopy.traces.analysis import PAPER, Thresholds, find_health, named

    traces, file = named(folder), named(out)
    limits = changed(PAPER if paper else Thresholds(), changes)
    if follow:
        return _follow(traces, file, limits, every, master, learnt, as_json)
    with Stages() as stages:
        found = find_health(
            traces,
            file,
            limits,
            master,
            stages.stage,
            on_tasks=stages.tasks,
            by_learnt=learnt,
        )
    sick = {node: each for node, each in found.nodes.items() if each.severity}
    rows = TextTable("=node", "name", "threat level", "signal").of(
        (node, each.name, LEVELS[each.severity], each.reason)
        for node, each in sorted(sick.items(), key=lambda item: (-item[1].severity, item[0]))
    )
    head = f"{len(sick)} of {counted(len(found.nodes), 'node')} sub-healthy"
    views = [head, *([rows] if rows else []), f"health file: {file}"]
    show(plain(found), as_json, *views, indent=2)
    return OK


def _follow(
    folder: Path,
    out: Path,
    limits: Thresholds,
    every: float,
    master: str | None,
    learnt: bool,
    as_json: bool,
) -> int:
    """Run rounds for ever: each reads new records, writes the file and prints a line."""
    from canopy.traces.analysis import following

    with following(folder, out, limits, master, by_learnt=learnt) as follower:
        while True:
            began = time.monotonic()
            found, new = follower.round()
            if as_json and found is not None:
                print_json(plain(found))
            elif not as_json:
                click.echo(_round_line(found, new))
            time.sleep(max(0.0, every - (time.monotonic() - began)))


def _round_line(found: HealthFile | None, new: int) -> str:
    at = time.strftime("%H:%M:%S", time.gmtime())
    if found is None:
        return f"{at}  nothing new in the traces: the health file stays as it is"
    sick = [node for node, each in found.nodes.items() if each.severity]
    named = f": {' '.join(sick)}" if sick else ""
    nodes = counted(len(found.nodes), "node")
    return f"{at}  {new:,} bytes; {len(sick)} of {nodes} sub-healthy{named}"


def _views(found: AnalysisSummary) -> Iterator[object]:
    """Yield the verdict; faults by kind, node, cause and time; and how complete the records are."""
    from canopy.traces.analysis.report.wording import circumstances, sentence, verdict_line
    from canopy.traces.analysis.verdict.outcome import NOT_EXACT

    read = f"{counted(found.published, 'event')} from {counted(found.nodes, 'node')}"
    yield f"{read}; {verdict_line(found)}"
    if found.wrong:
        yield _wrong_table(found)
    reasons = [sentence(each) for each in found.reasons] if found.result == NOT_EXACT else []
    yield from (f"- {visible(text)}" for text in reasons + circumstances(found))
    yield f"report: {found.report}"


def _wrong_table(found: AnalysisSummary) -> TextTable:
    """Return the table of the largest groups of each kind of fault, with the number of further
    groups."""
    from canopy.traces.analysis.report.wording import WRONG_KINDS

    names = {row["node"]: row["name"] for row in found.load if row["name"]}
    rows = TextTable("=what", ">deliveries", "of node", "cause", "=published")
    for kind, word in WRONG_KINDS.items():
        groups = [row for row in found.wrong if row["kind"] == kind]
        for row in groups[:GROUPS_PRINTED]:
            cause = row["cause"] or ""
            if row["by"]:
                cause = f"given up by {names.get(row['by'], row['by'])}: {cause}"
            when = time_text(row["first"])
            if row["last"] is not None and int(row["last"]) != int(row["first"]):
                when += f" to {time_text(row['last'], day=False)}"
            node = names.get(row["node"], row["node"] or "?")
            rows.add(word, row["count"], node, cause, when)
        if groups and groups[0]["groups"] > GROUPS_PRINTED:
            more = groups[0]["groups"] - GROUPS_PRINTED
            rows.add(word, "…", "", f"{counted(more, 'more group')}: see the report", "")
    return rows
