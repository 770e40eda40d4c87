"""Minos's measurements: timeliness, throughput, reliability, and its table of features."""

from __future__ import annotations

from typing import Final

from bench.experiments.pictures import Picture
from bench.papers.experiment import Drawing, Experiment, Ours, Paper, Reported

TRANSMISSION: Final = "papers-minos-transmission"
"""The file of what is sent by several producers, and at rising rates."""

PRODUCERS: Final = Experiment(
    "minos-producers",
    "Minos",
    "figure 7",
    "timeliness with 1, 50 and 200 producers",
    "From the first row of 100 bytes sent to the last received, for several producers at once.",
    (
        Reported("rows", "4", 4_000_000, ""),
        Reported("Minos over Kafka, one producer", "4", 2, "times as fast, nearly"),
        Reported("Minos over RocketMQ, one producer", "4", 3, "times as fast"),
        Reported(
            "shape",
            "4",
            None,
            words=(
                "with more producers Kafka and RocketMQ gain and Minos does not; RocketMQ "
                "first at 200"
            ),
        ),
    ),
    TRANSMISSION,
    ("python -m bench.papers.transmission --rows 100000 --seconds 1 --slowest 4000 --json",),
    ("python -m bench.papers.transmission --rows 4000000 --seconds 20 --json",),
    350,
    (
        "papers-minos-transmission.json | way=together | by=contestant,durable | "
        "across=producers | contestant: system | durable: on disk | 1.seconds .2f: 1 producer, s | "
        "50.seconds .2f: 50 producers, s | 200.seconds .2f: 200 producers, s | "
        "1.rows_per_second ,: rows/s with 1 | 200.rows_per_second ,: with 200",
    ),
    """\
100,000 rows. All producers share one process beside the consumer's and three servers on two cores,
so that with many producers their process is what is measured. Batches have 256 rows; 8 are under
way in all, at least one per producer. A NATS server takes 50 atomic batches of a stream at a time,
hence the empty cells. Of the systems that acknowledge a row when a majority has it on disk, this
one is first with any number of producers. It takes a sixth to a third less time with 50 producers
than with one, as the paper's Kafka and RocketMQ do and its Minos does not. The paper's 4,000,000
rows (the full form) have not been run.""",
    Picture(
        "bars",
        "contestant",
        "seconds",
        {"producers": " producers"},
        "",
        "s from first sent to last received",
        where={"way": "together"},
    ),
)

_RISING: Final = Experiment(
    "minos-throughput",
    "Minos",
    "figure 8",
    "throughput at rising load, with response time",
    "Messages of 100 bytes at a rate that rises until the consumer gets no more.",
    (
        Reported("Kafka", "4", 190_000, "messages a second"),
        Reported("shape", "4", None, words="Kafka first by far, then Minos, then RocketMQ"),
    ),
    TRANSMISSION,
    PRODUCERS.fast,
    PRODUCERS.full,
    0,
    (
        "papers-minos-transmission.json | way=rising | carried=True | last=contestant | "
        "contestant: system | durable: on disk | rate ,: rows/s, the highest carried | "
        "p50_ms .1f: p50, ms | p99_ms .1f: p99, ms",
    ),
    """\
The rate doubles until it is not carried: the producer cannot send it, or the consumer receives the
last row more than half a second late. Response time is from sending to receipt by the consumer.
Sender and consumer are Python programs for all systems and limit the fastest. In an earlier run
JetStream carried 16,000 rows a second and a quorum queue 8,000. Kafka, the paper's first, is not
measured ([venus-transmission](#venus-transmission)).""",
    Picture(
        "lines",
        "rows_per_second",
        "p99_ms",
        {"contestant": ""},
        "rows a second received",
        "response time, p99, ms",
        where={"way": "rising"},
        log=True,
    ),
)

_UNPLUGGED: Final = Experiment(
    "minos-power",
    "Minos",
    "section 4, reliability",
    "a consumer of 2 ms a message, and the broker's power, beside others",
    "One real server of each system, as in the paper. Three times the server is killed, the writes "
    "that its operating system had not flushed to disk are dropped, and it is started again.",
    (
        Reported("lost, Minos", "4", 0, "", ours=Ours("lost", {"system": "canopy"}, ",")),
        Reported("repeated, Minos", "4", 0, "", ours=Ours("repeated", {"system": "canopy"}, ",")),
        Reported("Kafka, RocketMQ (asynchronous flush)", "4", None, words="lost and repeated some"),
    ),
    "papers-minos-power",
    ("python -m bench.papers.unplugged --json",),
    ("python -m bench.papers.unplugged --rows 20000 --json",),
    60,
    (
        "papers-minos-power.json | system: system | flush: flushes | rows ,: rows | "
        "losses_of_power: losses of power | lost ,: lost | repeated ,: repeated | "
        "in_order: in order",
    ),
    """\
Each server has a file system of its own in a file (this needs root); its unwritten part is lost
with the power. Rows are lost that were acknowledged and not flushed: the paper finds this in Kafka
and RocketMQ, we find it in Redis and JetStream with their default settings, and in neither if it
flushes first. Nothing is repeated, since the consumer stores its position together with its
results. RabbitMQ is not measured.""",
)

_CONSUMER: Final = Experiment(
    "minos-reliability",
    "Minos",
    "section 4, reliability",
    "the same in the simulator, with replicas",
    "The machine of the stream's leader loses its power three times and has it back after 5 s.",
    (
        Reported(
            "lost, Minos",
            "4",
            0,
            "",
            ours=Ours("lost", {"position": "with the effect"}, ","),
        ),
        Reported(
            "repeated, Minos",
            "4",
            0,
            "",
            ours=Ours("repeated", {"position": "with the effect"}, ","),
        ),
        Reported("Kafka, RocketMQ", "4", None, words="lost some and repeated some"),
    ),
    "papers-minos-reliability",
    ("python -m bench.papers.power --consumer --rows 5000 --json",),
    ("python -m bench.papers.power --consumer --rows 100000 --json",),
    5,
    (
        "papers-minos-reliability.json | replicas: replicas | position: position | "
        "rows ,: rows | losses_of_power: losses of power | lost: lost | repeated: repeated | "
        "in_order: in order",
    ),
    """\
The simulator's disks lose what was not synced. Nothing is repeated if the consumer stores its
position together with its effect. A consumer that only commits its position to the stream every 100
rows, and is killed as well, receives the uncommitted rows again: delivery at least once, as with
any broker.""",
)

_FEATURES: Final = Experiment(
    "minos-features",
    "Minos",
    "table 3",
    "features, from tests",
    "What SQS, Kafka, RocketMQ and Minos have by the paper, and what the tests here show of "
    "this system.",
    (Reported("systems", "5", 4, ""),),
    "papers-minos-features",
    ("python -m bench.papers.features --json",),
    (),
    20,
    (
        "papers-minos-features.json | name: feature | sqs: SQS | kafka: Kafka | rocketmq: "
        "RocketMQ | "
        "minos: Minos | here: here | tests: shown by",
    ),
    """\
The columns of the others are the paper's, of 2017: Kafka has had idempotent producers and
transactions since 0.11, and SQS has FIFO queues.""",
)

MINOS: Final = Paper(
    "Minos",
    "The paper's prototype has one tier, and it, Kafka and RocketMQ one broker, one "
    "partition and one replica.",
    (PRODUCERS, _RISING, _UNPLUGGED, _CONSUMER, _FEATURES),
    (
        Drawing("tables 1, 2", "terms; the test machine", "[regions](../design/regions.md), above"),
        Drawing(
            "figures 1 to 4",
            "tiers, modules and the resource manager",
            "[M1, M2](../design/regions.md#m2-no-resource-manager)",
        ),
        Drawing(
            "figure 5",
            "batches with cumulative acknowledgement",
            "[M3](../design/links.md#m3-batches-acknowledgement-credits)",
        ),
        Drawing("figure 6", "states of a session", "[M5](../design/links.md#m5-sessions)"),
    ),
)
