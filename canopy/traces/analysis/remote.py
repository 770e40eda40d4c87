"""Traces and reports in other file systems: S3, and those that Hadoop has a connector for.

The analysis reads and writes folders of this machine. Trace files of another place are copied to
the temporary folder first, except those of other days, and the report is copied there at the end:
from and to S3 by Arrow, else by the Hadoop client of Spark's JVM, with the user's settings
(`spark.hadoop.…`).
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from canopy.traces.analysis import output
from canopy.traces.analysis.constants import ONE_COMPILER_BYTES, AnalysisError
from canopy.traces.analysis.days.analysis import analyze_days
from canopy.traces.analysis.read import is_trace_file
from canopy.traces.analysis.run import AnalysisOptions, analyze
from canopy.traces.analysis.spark.paths import for_writing, is_remote, named, scratch_folder
from canopy.traces.analysis.spark.session import (
    EMPTY,
    first_line,
    jvm_of,
    spark_session,
)
from canopy.traces.analysis.summary import AnalysisSummary
from canopy.traces.analysis.tasks import STAGES, OnProgress, silent
from canopy.traces.analysis.window import ALWAYS, TimeWindow, day_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_CONNECTOR: Final = ("No FileSystem for scheme", "ClassNotFoundException", "NoClassDefFound")
"""Hadoop's messages if the connector's jar, or one that it depends on, is absent."""


def analyze_places(
    traces: str, out: str, *, state: str | None = None, **options: Unpack[AnalysisOptions]
) -> AnalysisSummary:
    """Run `analyze`, or with a `state` `analyze_days`, on places: paths, `file:` URIs, and URIs of
    other file systems. The state is in a folder of this machine.

    Raises AnalysisError, also if the file system has no connector here or cannot be read, and for
    another file system with a cluster (`master`), whose machines do not see the copies.
    """
    begin = analyze if state is None else partial(analyze_days, state=named(state))
    if not is_remote(traces) and not is_remote(out):
        return begin(named(traces), named(out), **options)
    if (master := options.get("master")) is not None:
        other = traces if is_remote(traces) else out
        raise AnalysisError(
            f"{other} is copied to and from this machine, which the machines of {master} do not "
            "see: leave --master out, or mount it here and there under one path"
        )
    progress, settings = options.get("progress", silent), options.get("settings", EMPTY)
    progress(STAGES[0], 0, len(STAGES))
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        if any(is_remote(uri) and not is_s3(uri) for uri in (traces, out)):
            spark = stack.enter_context(spark_session(None, ONE_COMPILER_BYTES, settings))
            options["session"] = spark

        def folder(uri: str) -> RemoteFolder:
            return S3Folder(uri, settings) if is_s3(uri) else HadoopFolder(spark, uri)

        target = folder(out) if is_remote(out) else None
        if target is not None:
            target.check_output(options.get("overwrite", False))
        here = scratch / "traces"
        if is_remote(traces):
            folder(traces).fetch(here, options.get("window", ALWAYS), progress)
        else:
            here = named(traces)
        if target is None:
            return begin(here, named(out), **options)
        local = scratch / "report"
        found = begin(here, local, **options)
        found = replace(found, report=f"{out.rstrip('/')}/report.html")
        output.write_summary(local, found.to_dict())
        target.replace_report(local)
        return found


def is_s3(uri: str) -> bool:
    """Return whether `uri` names a bucket of S3, or of a server with its protocol."""
    return uri.lower().startswith(("s3:", "s3a:", "s3n:"))


class RemoteFolder(ABC):
    """A folder in another file system. The methods raise AnalysisError."""

    def __init__(self, uri: str, *errors: type[Exception]) -> None:
        """`errors`: the exceptions of the file system."""
        self._uri = uri
        self._errors = errors

    def fetch(self, into: Path, window: TimeWindow, progress: OnProgress = silent) -> None:
        """Copy the trace files that may have records of the `window` into the new folder `into`,
        under the same names."""
        with self._translated("read"):
            files = [
                (place, name)
                for place, name in self._files()
                if is_trace_file(name) and window.meets(day_of(name))
            ]
            for number, (place, name) in enumerate(files):
                if number % 100 == 0:
                    text = f"copying from {self._uri}: {number} of {len(files)} files"
                    progress(text, 0, len(STAGES))
                target = into / name
                target.parent.mkdir(parents=True, exist_ok=True)
                draft = target.with_name(f".{target.name}.new")
                self._get(place, draft)
                draft.replace(target)
        if not files:
            raise AnalysisError(
                f"{self._uri} has no trace records of that time (*.jsonl below date=…/node=…/)"
            )

    def check_output(self, overwrite: bool) -> None:
        """Raise AnalysisError if the folder has other content than an earlier report, unless
        `overwrite`."""
        if overwrite:
            return
        with self._translated("read"):
            present = self._names()
        strange = [name for name in present if name not in output.OURS]
        if strange or (present and "summary.json" not in present):
            raise AnalysisError(
                f"the output folder {self._uri} exists and has other content than an earlier "
                f"report ({(strange or present)[0]}): nothing was changed; name a new folder, or "
                "allow overwriting"
            )

    def replace_report(self, report: Path) -> None:
        """Replace the files of an earlier report by those of `report`. `summary.json`, which marks
        a report as complete, is written last."""
        with self._translated("written"):
            for name in output.OURS:
                self._remove(name)
            for name in sorted((path.name for path in report.iterdir()), key="summary.json".__eq__):
                self._put(report / name)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            raise self._failed(what, error) from error

    def _failed(self, what: str, error: BaseException) -> AnalysisError:
        return AnalysisError(f"{self._uri} cannot be {what}: {first_line(error)}")

    @abstractmethod
    def _files(self) -> Iterator[tuple[Any, Path]]:
        """All files below the folder, each with its name relative to the folder."""

    @abstractmethod
    def _names(self) -> list[str]:
        """The names in the folder; none if it does not exist."""

    @abstractmethod
    def _get(self, place: Any, target: Path) -> None:
        """Copy a file to this machine."""

    @abstractmethod
    def _put(self, source: Path) -> None:
        """Copy a file or folder of this machine into the folder, which is made if need be."""

    @abstractmethod
    def _remove(self, name: str) -> None:
        """Remove a file or folder in the folder, if it is there."""


class S3Folder(RemoteFolder):
    """A folder of S3, by Arrow's own client, which needs no jar.

    Keys, region and endpoint are those of the settings of Hadoop's connector
    (`spark.hadoop.fs.s3a.…`), else of the environment (`AWS_…`) and the files of AWS.
    """

    def __init__(self, uri: str, settings: Mapping[str, str] = EMPTY) -> None:
        super().__init__(uri, OSError)
        with self._translated("reached"):
            from pyarrow import fs

            def said(name: str) -> str | None:
                return settings.get(f"spark.hadoop.fs.s3a.{name}")

            address = said("endpoint") or next(filter(None, map(os.environ.get, ENDPOINTS)), "")
            scheme, _, endpoint = address.rstrip("/").rpartition("://")
            plain = said("connection.ssl.enabled") == "false"
            self._system: Any = fs.S3FileSystem(
                access_key=said("access.key"),
                secret_key=said("secret.key"),
                session_token=said("session.token"),
                region=said("endpoint.region"),
                endpoint_override=endpoint or None,
                scheme=scheme or ("http" if plain else None),
                allow_bucket_creation=False,
            )
        self._fs: Any = fs
        self._root = uri.partition(":")[2].strip("/")

    def _files(self) -> Iterator[tuple[Any, Path]]:
        for each in self._system.get_file_info(self._fs.FileSelector(self._root, recursive=True)):
            if each.type == self._fs.FileType.File:
                yield each.path, Path(each.path[len(self._root) :].lstrip("/"))

    def _names(self) -> list[str]:
        selector = self._fs.FileSelector(self._root, allow_not_found=True)
        return [each.base_name for each in self._system.get_file_info(selector)]

    def _get(self, place: Any, target: Path) -> None:
        with self._system.open_input_stream(place) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, COPY_BYTES)

    def _put(self, source: Path) -> None:
        every = [source] if source.is_file() else sorted(source.rglob("*"))
        for path in every:
            if path.is_file():
                to = f"{self._root}/{path.relative_to(source.parent).as_posix()}"
                with path.open("rb") as text, self._system.open_output_stream(to) as sink:
                    shutil.copyfileobj(text, sink, COPY_BYTES)

    def _remove(self, name: str) -> None:
        place = f"{self._root}/{name}"
        found = self._system.get_file_info(place).type
        if found == self._fs.FileType.Directory:
            self._system.delete_dir(place)
        elif found == self._fs.FileType.File:
            self._system.delete_file(place)


ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # which Arrow's client leaves out
COPY_BYTES: Final = 1 << 20  # that are copied at once


class HadoopFolder(RemoteFolder):
    """A folder in a file system that Hadoop has a connector for, by the client in Spark's JVM."""

    def __init__(self, spark: SparkSession, uri: str, settings: Mapping[str, str] = EMPTY) -> None:
        """`settings`: those of the session go before theirs."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        super().__init__(uri, Py4JError)
        self._hadoop = jvm_of(spark).org.apache.hadoop
        self._settings = self._hadoop.conf.Configuration()
        for name, value in [*settings.items(), *spark.sparkContext.getConf().getAll()]:
            if name.startswith(HADOOP):
                self._settings.set(name.removeprefix(HADOOP), value)
        self._root = self._hadoop.fs.Path(uri)
        with self._translated("reached"):
            self._system = self._root.getFileSystem(self._settings)
            self._local = self._here(Path("/")).getFileSystem(self._settings)
            self._whole = str(self._system.makeQualified(self._root).toString()).rstrip("/")

    def _files(self) -> Iterator[tuple[Any, Path]]:
        listed = self._system.listFiles(self._root, True)
        while listed.hasNext():
            place = listed.next().getPath()
            yield place, Path(str(place.toString())[len(self._whole) :].lstrip("/"))

    def _names(self) -> list[str]:
        if not self._system.exists(self._root):
            return []
        return [str(each.getPath().getName()) for each in self._system.listStatus(self._root)]

    def _get(self, place: Any, target: Path) -> None:
        self._copy(self._system, place, self._local, self._here(target))

    def _put(self, source: Path) -> None:
        self._system.mkdirs(self._root)
        self._copy(self._local, self._here(source), self._system, self._in(source.name))

    def _remove(self, name: str) -> None:
        self._system.delete(self._in(name), True)

    def _in(self, name: str) -> Any:
        return self._hadoop.fs.Path(self._root, name)

    def _here(self, path: Path) -> Any:
        """A path of this machine as Hadoop takes it."""
        return self._hadoop.fs.Path(for_writing(path))

    def _copy(self, source: Any, place: Any, target: Any, to: Any) -> None:
        """Copy a file or folder from one file system to another, replacing a file there."""
        self._hadoop.fs.FileUtil.copy(source, place, target, to, False, True, self._settings)

    def _failed(self, what: str, error: BaseException) -> AnalysisError:
        if not any(each in str(error) for each in NO_CONNECTOR):
            return super()._failed(what, error)
        return AnalysisError(
            f"{self._uri} cannot be {what}: Hadoop has no connector for it here "
            f"({first_line(error)}); name its package with --conf spark.jars.packages=…, or its "
            "jars with --conf spark.jars=…"
        )


HADOOP: Final = "spark.hadoop."
"""The beginning of the names of Hadoop's settings among Spark's."""
