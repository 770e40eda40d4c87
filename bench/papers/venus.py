"""VENUS's measurements: capture, transmission, and consistency when a broker loses its power."""

from __future__ import annotations

from typing import Final

from bench.experiments.pictures import Picture
from bench.papers.experiment import Drawing, Experiment, Ours, Paper, Reported
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
        "papers-venus-capture.json | way=capture | by=source,from,replicas | across=operation | "
        "source: from | from: by | replicas: replicas | "
        "{insert.written_s:.2f}, {insert.capture_s:.2f}: insert: written, captured, s | "
        "{update.written_s:.2f}, {update.capture_s:.2f}: update | "
        "{delete.written_s:.2f}, {delete.capture_s:.2f}: delete",
    ),
    """\
The number in brackets is of PostgreSQL's own log with three replicas. The paper's source is Oracle
10g with triggers; here SQLite is captured by triggers and a log table as in the paper, PostgreSQL
and MariaDB by their own logs. A row counts as detected when a majority of the replicas has it on
disk, which is later than in the paper. There are rows of MariaDB only if a server is installed
(`apt install mariadb-server`); Oracle may not be redistributed and is not measured.""",
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
    "From the first statement at the source until the destination has committed the last change, "
    "and whether both tables are equal row by row. Measured by the command of "
    "[venus-capture](#venus-capture).",
    (Reported("shape", "4.3", None, words="inserts, updates and deletes take the same time"),),
    "papers-venus-capture",
    _CAPTURE.fast,
    _CAPTURE.full,
    0,
    (
        "papers-venus-capture.json | way=copy | by=source,to,replicas,same | across=operation | "
        "source: from | to: to | replicas: replicas | "
        "{insert.written_s:.2f}, {insert.through_s:.2f}: insert: written, copied, s | "
        "{update.written_s:.2f}, {update.through_s:.2f}: update | "
        "{delete.written_s:.2f}, {delete.through_s:.2f}: delete | same: equal",
    ),
    """\
The paper gives no numbers for its figure; its source is Oracle and its destination PostgreSQL. Here
the source is written in transactions of 100 rows while both sides of the sync run.""",
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
    (),
    """\
The column *1 producer* of [minos-producers](#minos-producers) has our numbers. Kafka and RocketMQ
are not measured: no package for Debian or PyPI has their servers. JetStream, RabbitMQ and Redis
take their place. The paper's three systems run one replica each, and Kafka and RocketMQ flush
asynchronously; here all have three replicas, and *on disk* says what an acknowledgement means:
compare *majority* with *majority*.""",
)

_POWER: Final = Experiment(
    "venus-power",
    "VENUS",
    "section 4.4",
    "consistency when the leader's machine loses its power",
    "100,000 rows are inserted, updated and deleted at the source. In each of the three phases the "
    "machine of the stream's leader loses its power three times. Then both tables are compared row "
    "by row.",
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
        "losses_of_power: losses of power | lost: lost | repeated: repeated | same: tables equal",
    ),
    """\
In the simulator, with product nodes, both sides of the sync and real SQLite files; its disks lose
what was not synced and tear the last write. `make soak-sync` kills processes with real databases,
where the operating system keeps what was written.""",
)

VENUS: Final = Paper(
    "VENUS",
    "The paper's middleware, Kafka and RocketMQ run on one machine with one replica each; here a "
    "stream has three replicas at three nodes that share a machine of two cores, unless a table "
    "says "
    "otherwise.",
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
