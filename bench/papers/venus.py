"""VENUS's measurements: capture, transmission, and consistency when a broker loses its power."""

from __future__ import annotations

from typing import Final

from bench.papers.experiment import Drawing, Experiment, Ours, Paper, Picture, Reported
from bench.papers.minos import PRODUCERS, TRANSMISSION


def _captured(operation: str) -> Ours:
    """With three replicas, from the database that the paper's destination is."""
    where = {"way": "capture", "source": "postgresql", "replicas": 3, "operation": operation}
    return Ours("capture_s", where, ".2f")


_CAPTURE: Final = Experiment(
    "venus-capture",
    "VENUS",
    "table 5, figure 6",
    "capture of inserts, updates and deletes",
    "100,000 rows of the table `student` are inserted, then updated, then deleted; from the first "
    "change that is detected to the last.",
    (
        Reported("insert, 100,000 changes", "4.2", 18.161, "s", ours=_captured("insert")),
        Reported("update, 100,000 changes", "4.2", 18.084, "s", ours=_captured("update")),
        Reported("delete, 100,000 changes", "4.2", 18.358, "s", ours=_captured("delete")),
        Reported("shape", "4.2", None, words="the three operations are alike"),
    ),
    "papers-venus-capture",
    ("python -m bench.papers.capture --changes 100000 --json",),
    (),
    70,
    (
        "papers-venus-capture.json | way=capture | source: from | from: by | replicas: replicas | "
        "operation: operation | changes ,: changes | written_s .2f: written in, s | "
        "capture_s .2f: captured in, s",
    ),
    """\
*Here* in the first table is PostgreSQL's own log, with three replicas. The paper's source is
Oracle 10g with triggers; of ours SQLite is captured by triggers and a log table as in the paper,
PostgreSQL and MariaDB by their own logs, which cost the source nothing. *Detected* is a row that
a majority of the replicas has on disk, which is later than the paper's. All of it runs on one
machine. Where `captured in` is about `written in`, the source was the slower side. MariaDB has no
rows where no server is installed (`apt install mariadb-server`). Oracle is not measured: it may
not be passed on.""",
    Picture(
        "bars",
        "operation",
        "capture_s",
        {"source": "", "replicas": " replicas"},
        "",
        "s until the last is captured",
        where={"way": "capture", "changes": 100_000},
        paper=(("insert", 18.161), ("update", 18.084), ("delete", 18.358)),
    ),
)

_COPY: Final = Experiment(
    "venus-copy",
    "VENUS",
    "figure 7 (with databases)",
    "from the source database to the destination database",
    "From the first statement at the source until the destination has committed the last "
    "change, and "
    "whether both tables are the same, row by row. The command is that of the capture.",
    (Reported("shape", "4.3", None, words="inserts, updates and deletes take the same time"),),
    "papers-venus-capture",
    _CAPTURE.fast,
    _CAPTURE.full,
    0,
    (
        "papers-venus-capture.json | way=copy | source: from | to: to | replicas: replicas | "
        "operation: operation | changes ,: changes | written_s .2f: written in, s | "
        "through_s .2f: there after, s | same: the same",
    ),
    """\
The paper's figure has no numbers in its text; its source is Oracle and its destination
PostgreSQL. Here the source is written in transactions of 100 rows while both sides run; where
`there after` is about `written in`, they kept up with it.""",
)

_TRANSMISSION: Final = Experiment(
    "venus-transmission",
    "VENUS",
    "figure 7 (without databases)",
    "from the first row sent to the last row received, one producer",
    "The databases left out, beside what can be installed here.",
    (
        Reported("VENUS over Kafka and RocketMQ", "4.3", 2, "times as fast, nearly"),
        Reported("shape", "4.3", None, words="VENUS first, Kafka and RocketMQ alike"),
    ),
    TRANSMISSION,
    PRODUCERS.fast,
    PRODUCERS.full,
    0,
    (
        "papers-minos-transmission.json | way=together | producers=1 | contestant: system | "
        "durable: on disk | rows ,: rows | seconds .2f: seconds | rows_per_second ,: rows/s | "
        "absent: not installed",
    ),
    """\
Measured by [minos-producers](#minos-producers) with one producer. Kafka and RocketMQ are not
here: no package for Debian or PyPI carries their servers (`kafka` as a tarball of apache.org,
`rocketmq` likewise; both need Java). Their place is taken by JetStream, RabbitMQ and Redis. The
paper's three run one replica each and Kafka and RocketMQ flush asynchronously; here all have
three replicas, and *on disk* says what an acknowledgement means: compare *majority* with
*majority*.""",
)

_POWER: Final = Experiment(
    "venus-power",
    "VENUS",
    "section 4.4",
    "consistency when the leader's machine loses its power",
    "100,000 rows are inserted, updated and deleted at the source, while the power of the "
    "machine of "
    "the stream's leader goes three times in each; then both tables are compared, row by row.",
    (
        Reported("changes lost, VENUS", "4.4", 0, "", ours=Ours("lost", {}, ",")),
        Reported("changes repeated, VENUS", "4.4", 0, "", ours=Ours("repeated", {}, ",")),
        Reported("Kafka, RocketMQ", "4.4", None, words="lost some and repeated some"),
    ),
    "papers-venus-power",
    ("python -m bench.papers.power --copy --json",),
    (),
    35,
    (
        "papers-venus-power.json | replicas: replicas | changes ,: changes of each kind | "
        "losses_of_power: losses of power | lost: lost | repeated: repeated | same: tables "
        "the same | "
        "virtual_s ,: virtual s | cpu_s: CPU s",
    ),
    """\
In the simulator, with product nodes, both sides of the sync and real SQLite files; its disks lose
what was not synced, the last write torn. A process that is killed loses nothing of that kind,
since its system keeps what it wrote; killed processes with real databases are `make soak-sync`.""",
)

VENUS: Final = Paper(
    "VENUS",
    "The paper's middleware, Kafka and RocketMQ run on one machine with one replica each; "
    "here a stream has three "
    "replicas, at three nodes that share a machine of two cores, unless a table says otherwise.",
    (_CAPTURE, _COPY, _TRANSMISSION, _POWER),
    (
        Drawing("tables 1, 2", "the log table and the record format", "[sync](../design/sync.md)"),
        Drawing(
            "table 3, figure 5",
            "full data from increments",
            "[V5](../design/streams.md#newest-rows)",
        ),
        Drawing("table 4", "the test machine", "above"),
        Drawing("figures 1, 2", "architecture and modules", "[design](../design/overview.md)"),
        Drawing("figure 3", "capture by triggers and log tables", "[V1](../design/sync.md)"),
        Drawing(
            "figure 4",
            "half messages and review",
            "[V4](../design/streams.md#half-messages)",
        ),
    ),
)
