"""Traces and reports in other file systems that Hadoop has a connector for: `hdfs:`, `s3a:` …

The analysis reads and writes folders of this machine. Of another place the trace files are copied
to the temporary folder first, those of other days left out, and the report is copied there at the
end, both by the Hadoop client of Spark's JVM, with the settings of the user (`spark.hadoop.…`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canopy.traces.analysis import output
from canopy.traces.analysis.constants import ONE_COMPILER_BYTES, AnalysisError
from canopy.traces.analysis.days.analysis import analyze_days
from canopy.traces.analysis.read import SUFFIXES
from canopy.traces.analysis.run import analyze
from canopy.traces.analysis.spark.paths import for_writing, is_remote, named, scratch_folder
from canopy.traces.analysis.spark.session import EMPTY, OnTasks, first_line, spark_session
from canopy.traces.analysis.summary import AnalysisSummary
from canopy.traces.analysis.tasks import STAGES, OnProgress, silent
from canopy.traces.analysis.window import ALWAYS, TimeWindow, day_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_CONNECTOR: Final = ("No FileSystem for scheme", "ClassNotFoundException", "NoClassDefFound")
"""What Hadoop says if the connector's jar is not there, or one that it needs."""


def analyze_places(
    traces: str,
    out: str,
    *,
    state: str | None = None,
    master: str | None = None,
    progress: OnProgress = silent,
    overwrite: bool = False,
    settings: Mapping[str, str] = EMPTY,
    window: TimeWindow = ALWAYS,
    on_tasks: OnTasks | None = None,
) -> AnalysisSummary:
    """What `analyze` does, or with a `state` `analyze_days`, for places as people name them: paths,
    `file:` URIs, and URIs of other file systems. The state is in a folder of this machine.

    Raises AnalysisError, also if the file system has no connector here or cannot be read, and for
    another file system with a cluster (`master`), whose machines do not see the copies.
    """
    options: dict[str, Any] = {"progress": progress, "settings": settings, "window": window}
    options["on_tasks"] = on_tasks
    if state is not None:
        options["state"] = named(state)
    begin = analyze if state is None else analyze_days
    if not is_remote(traces) and not is_remote(out):
        return begin(named(traces), named(out), master=master, overwrite=overwrite, **options)
    if master is not None:
        other = traces if is_remote(traces) else out
        raise AnalysisError(
            f"{other} is copied to and from this machine, which the machines of {master} do not "
            "see: leave --master out, or mount it here and there under one path"
        )
    progress(STAGES[0], 0, len(STAGES))
    with (
        scratch_folder() as scratch,
        spark_session(None, ONE_COMPILER_BYTES, settings) as spark,
    ):
        target = HadoopFolder(spark, out) if is_remote(out) else None
        if target is not None:
            target.check_output(overwrite)
        here = scratch / "traces"
        if is_remote(traces):
            HadoopFolder(spark, traces).fetch(here, window, progress)
        else:
            here = named(traces)
        if target is None:
            return begin(here, named(out), session=spark, overwrite=overwrite, **options)
        local = scratch / "report"
        found = begin(here, local, session=spark, **options)
        found = replace(found, report=f"{out.rstrip('/')}/report.html")
        output.write_summary(local, found.to_dict())
        target.replace_report(local)
        return found


class HadoopFolder:
    """A folder in a file system that Hadoop has a connector for."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        self._error = Py4JError
        self._uri = uri
        context: Any = spark.sparkContext
        self._hadoop = context._jvm.org.apache.hadoop
        self._settings = context._jsc.hadoopConfiguration()
        self._root = self._hadoop.fs.Path(uri)
        try:
            self._system = self._root.getFileSystem(self._settings)
            self._local = self._here(Path("/")).getFileSystem(self._settings)
            self._whole = str(self._system.makeQualified(self._root).toString()).rstrip("/")
        except Py4JError as error:
            raise self._failed("reached", error) from error

    def fetch(self, into: Path, window: TimeWindow, progress: OnProgress = silent) -> None:
        """Copy the trace files that may have records of the `window` into the new folder `into`,
        under the same names. Raises AnalysisError."""
        try:
            files = [
                (place, name)
                for place, name in self._files()
                if name.name.endswith(SUFFIXES)
                and not any(part.startswith((".", "_")) for part in name.parts)
                and window.meets(day_of(name))
            ]
            for number, (place, name) in enumerate(files):
                if number % 100 == 0:
                    text = f"copying from {self._uri}: {number} of {len(files)} files"
                    progress(text, 0, len(STAGES))
                target = into / name
                target.parent.mkdir(parents=True, exist_ok=True)
                self._copy_here(place, target)
        except self._error as error:
            raise self._failed("read", error) from error
        if not files:
            raise AnalysisError(
                f"{self._uri} has no trace records of that time (*.jsonl below date=…/node=…/)"
            )

    def check_output(self, overwrite: bool) -> None:
        """Raise AnalysisError if the folder has other content than an earlier report, unless
        `overwrite`."""
        try:
            if overwrite or not self._system.exists(self._root):
                return
            present = [
                str(each.getPath().getName()) for each in self._system.listStatus(self._root)
            ]
        except self._error as error:
            raise self._failed("read", error) from error
        strange = [name for name in present if name not in output.OURS]
        if strange or (present and "summary.json" not in present):
            raise AnalysisError(
                f"the output folder {self._uri} exists and has other content than an earlier "
                f"report ({(strange or present)[0]}): nothing was changed; name a new folder, or "
                "allow overwriting"
            )

    def replace_report(self, report: Path) -> None:
        """Put the files of `report` in the place of those of an earlier one. `summary.json`, which
        marks a report as complete, comes last. Raises AnalysisError."""
        try:
            for name in output.OURS:
                self._system.delete(self._hadoop.fs.Path(self._root, name), True)
            self._system.mkdirs(self._root)
            names = sorted((path.name for path in report.iterdir()), key="summary.json".__eq__)
            for name in names:
                target = self._hadoop.fs.Path(self._root, name)
                self._copy(self._local, self._here(report / name), self._system, target)
        except self._error as error:
            raise self._failed("written", error) from error

    def _files(self) -> Iterator[tuple[Any, Path]]:
        """All files below the folder, with their names relative to it."""
        listed = self._system.listFiles(self._root, True)
        while listed.hasNext():
            place = listed.next().getPath()
            yield place, Path(str(place.toString())[len(self._whole) :].lstrip("/"))

    def _copy_here(self, place: Any, target: Path) -> None:
        draft = target.with_name(f".{target.name}.new")
        self._copy(self._system, place, self._local, self._here(draft))
        draft.replace(target)

    def _here(self, path: Path) -> Any:
        """A path of this machine as Hadoop takes it."""
        return self._hadoop.fs.Path(for_writing(path))

    def _copy(self, source: Any, place: Any, target: Any, to: Any) -> None:
        """Copy a file or folder from one file system to another, in the place of a file there."""
        self._hadoop.fs.FileUtil.copy(source, place, target, to, False, True, self._settings)

    def _failed(self, what: str, error: BaseException) -> AnalysisError:
        reason = first_line(error)
        if any(each in str(error) for each in NO_CONNECTOR):
            version = self._hadoop.util.VersionInfo.getVersion()
            return AnalysisError(
                f"{self._uri} cannot be {what}: Hadoop has no connector for it here ({reason}); "
                "name its package, for s3a: with --conf spark.jars.packages="
                f"org.apache.hadoop:hadoop-aws:{version}, or its jars with --conf spark.jars=…"
            )
        return AnalysisError(f"{self._uri} cannot be {what}: {reason}")
