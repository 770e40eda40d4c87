"""Tensor's measurements: distribution over three tiers, load, and reliability."""

from __future__ import annotations

from typing import Final

from bench.experiments.pictures import Picture
from bench.papers.experiment import Drawing, Experiment, Ours, Paper, Reported

_SIMULATED: Final = """\
In the simulator, in virtual time: links have the paper's latencies and a gigabit a second, and the
work of a node takes as long as a real node's ([costs](simulator.md))."""


def _columns(file: str) -> str:
    return (
        f"{file}.json | subscribers ,: subscribers | messages ,: messages | "
        "distribution_s .3f: distributed in, s | messages_per_second ,: messages/s | "
        "{delivered:,} of {expected:,}: deliveries"
    )


_MESSAGES: Final = Experiment(
    "tensor-messages",
    "Tensor",
    "figure 14",
    "distribution time over the number of messages",
    "From the headquarters through three tiers to all subscribers, 1 kB a message.",
    (
        Reported("latency from the headquarters to A, B, C", "V.B", None, words="25, 30, 32 ms"),
        Reported("messages", "V.B", 10_000_000, "at most"),
        Reported(
            "below 50,000 messages, about",
            "V.B",
            12,
            "s",
            ours=Ours("distribution_s", {"messages": 1_000}, ".3f"),
        ),
        Reported("shape", "V.B", None, words="flat up to 50,000 messages, then rising"),
    ),
    "papers-tensor-messages",
    ("python -m bench.papers.distribution --messages 1 10 100 1000 10000 20000 --json",),
    ("python -m bench.papers.distribution --messages 1 1000 10000 100000 1000000 --json",),
    35,
    (_columns("papers-tensor-messages"),),
    """\
The paper's flat 12 s comes from subscribers that poll for new versions and from replication tier by
tier. Here messages are pushed, and up to 20,000 messages take about a second. The rise that the
paper has at 50,000 messages is beyond what the simulator runs in minutes.""",
    Picture(
        "lines",
        "messages",
        "distribution_s",
        {"subscribers": " subscribers"},
        "messages",
        "s until all have all",
        log=True,
        paper=((1, 12.0), (50_000, 12.0)),
    ),
)

_SUBSCRIBERS: Final = Experiment(
    "tensor-subscribers",
    "Tensor",
    "figures 15 and 16",
    "distribution time over the number of subscribers",
    "1,000 messages, and many, to 20 to 10,000 subscribers.",
    (
        Reported(
            "1,000 messages, any number of subscribers, about",
            "V.C",
            12,
            "s",
            ours=Ours("distribution_s", {"messages": 1_000}, ".3f"),
        ),
        Reported("5 million messages, below 600 subscribers, about", "V.C", 50, "s"),
        Reported(
            "shape",
            "V.C",
            None,
            words="flat at 1,000 messages; at 5 million rising from 600 subscribers on",
        ),
    ),
    "papers-tensor-subscribers",
    (
        "python -m bench.papers.distribution --subscribers 20 200 2000 10000 --messages 100 --json",
        "python -m bench.papers.distribution --subscribers 20 200 2000 --messages 1000 --json",
    ),
    (
        "python -m bench.papers.distribution --subscribers 20 200 2000 10000 --messages 1000 "
        "--json",
        "python -m bench.papers.distribution --subscribers 20 200 600 2000 --messages 100000 "
        "--json",
    ),
    60,
    (_columns("papers-tensor-subscribers"),),
    """\
Subscribers are programs of 24 nodes at points. A node receives a message once for all of its
programs, so that more subscribers are more work for their own node only.""",
    Picture(
        "lines",
        "subscribers",
        "distribution_s",
        {"messages": " messages"},
        "subscribers",
        "s until all have all",
        log=True,
        paper=((20, 12.0), (10_000, 12.0)),
    ),
)

_LOAD: Final = Experiment(
    "tensor-load",
    "Tensor",
    "section V.D",
    "load over brokers",
    "The standard deviation of the messages that brokers handle, for each batch.",
    (
        Reported(
            "shape",
            "V.D",
            None,
            words="a spike for each batch, which fades away within 20 s (no figures given)",
        ),
    ),
    "papers-tensor-load",
    ("python -m bench.papers.distribution --load --messages 1000 --json",),
    ("python -m bench.papers.distribution --load --messages 100000 --json",),
    10,
    (
        "papers-tensor-load.json | batch: batch | brokers: brokers | messages ,: messages | "
        "mean ,: copies passed on by a broker, mean | deviation ,: standard deviation | "
        "deviation_after_20_s ,: in the 20 s after",
    ),
    """\
Brokers are the twelve nodes of the headquarters and of the divisions. With one kind of message
there is one tree, and the publisher's node visits one host per message, mostly the same; division
nodes forward to their area. The deviation is therefore large with a single topic.""",
)

_OUTAGES: Final = Experiment(
    "tensor-outages",
    "Tensor",
    "section V.E",
    "an area without power; five points without cables",
    "How long until there is a leader, and until messages come again.",
    (
        Reported(
            "area A without power: elected within",
            "V.E",
            30,
            "s",
            ours=Ours("elected_s", {"experiment": "area"}, ".1f"),
        ),
        Reported(
            "… service normal within",
            "V.E",
            300,
            "s",
            ours=Ours("normal_s", {"experiment": "area"}, ".1f"),
        ),
        Reported(
            "five points unplugged: subscribers elsewhere within",
            "V.E",
            30,
            "s",
            ours=Ours("elsewhere_s", {"experiment": "points"}, ".1f"),
        ),
        Reported(
            "… service normal within",
            "V.E",
            180,
            "s",
            ours=Ours("normal_s", {"experiment": "points"}, ".1f"),
        ),
    ),
    "papers-tensor-outages",
    ("python -m bench.papers.outages --points 12 --subscribers 24 --json",),
    ("python -m bench.papers.outages --seeds 20 --points 60 --subscribers 240 --json",),
    45,
    (
        "papers-tensor-outages.json | experiment: what | seed: seed | nodes: nodes | dark: lost | "
        "elected_s .1f: new owner, s | elsewhere_s .1f: subscribed elsewhere, s | "
        "normal_s .1f: others normal, s | back_s .1f: back after its return, s | "
        "told: missing deliveries, reported | lost: … not reported",
    ),
    """\
The owner of the messages' tree is in the lost area with three of the five voters of its cluster, so
that another cluster has to take its place ([P5](../design/clusters.md#p5-a-lost-cluster)). *Normal*
is for subscribers outside the area, up to the last message that took more than a second. The
paper's subscribers connect to another broker; here *subscribed elsewhere* is a new program at
another node. Each of the five points founds a fork of the cluster while it is cut off, and the
cluster absorbs all five after their return. *Back* is the last of the five points; the other four
have their deliveries within 1.1 s.""",
)

_BACKLOG: Final = Experiment(
    "tensor-backlog",
    "Tensor",
    "section IV.B, figure 6",
    "the replication backlog",
    "A flow of 1 MB a second over a link that is lost for 1, 5 and 60 s: the share of messages "
    "that "
    "each size of the backlog loses, and how much it keeps.",
    (
        Reported("size at first, and at least", "IV.B", 10, "MB"),
        Reported("recomputed every", "IV.B", 30, "s"),
        Reported("mean disconnect taken over", "IV.B", 24, "h"),
    ),
    "backlog",
    (),
    ("python -m bench.experiments backlog --json",),
    600,
    (
        "backlog.json | of=link | by=out_s | across=size | out_s .0f: out of reach, s | "
        "{fixed, 1 MB.lost:.1%}: lost, fixed 1 MB | {fixed, 4 MB.lost:.1%}: fixed 4 MB | "
        "{fixed, 64 MB.lost:.1%}: fixed 64 MB | {T3, 1 to 64 MB.lost:.1%}: T3, 1 to 64 MB | "
        "{T3, 1 to 64 MB.peak_bytes:,}: bytes kept by T3",
    ),
    """\
Here the smallest size is 1 MB a link (`links.queue_floor`), since a node has many links;
[T3](../design/links.md#t3-backlog) has the formula.""",
)

_HEALTH: Final = Experiment(
    "tensor-health",
    "Tensor",
    "section IV.C, figure 7",
    "sick nodes are kept from leading",
    "The standby of a cluster is sick when its primary is lost. Its health is judged by nobody, by "
    "itself (the default) or by the health file.",
    (
        Reported("shape", "IV.C", None, words="sub-healthy nodes are removed from the candidates"),
        Reported(
            "trials of ten in which the sick node leads by default, here",
            "IV.C",
            None,
            ours=Ours("sick_leads", {"by": "itself"}, ""),
        ),
    ),
    "health-elections",
    (),
    ("python -m bench.experiments health --json",),
    1_200,
    (
        "health-elections.json | by: judged by | trials: trials | "
        "sick_named: the sick node is recognized | sick_leads: the sick node leads next | "
        "elected_s .2f: elected after, s | failed: the new primary failed as well",
    ),
    """\
[health.md](health.md) describes the trial and how well the signals of table III distinguish
faults.""",
)

TENSOR: Final = Paper(
    "Tensor",
    _SIMULATED,
    (_MESSAGES, _SUBSCRIBERS, _LOAD, _OUTAGES, _BACKLOG, _HEALTH),
    (
        Drawing("table I", "terms", "[regions](../design/regions.md)"),
        Drawing("table II, figure 4", "versions and commands", "[T1](../design/streams.md#chunks)"),
        Drawing("table III, figure 7", "signals of health", "[T6](../design/health.md)"),
        Drawing("table IV", "the test machines", "above"),
        Drawing("figures 1 to 3", "architecture and tiers", "[M1](../design/regions.md)"),
        Drawing(
            "figures 5, 6",
            "the replication backlog and its size",
            "[T3](../design/links.md#t3-backlog)",
        ),
        Drawing(
            "figures 8 to 10",
            "failover by service discovery",
            "[T4](../design/clusters.md#p4-election)",
        ),
        Drawing("figures 11 to 13", "where the test ran", "the simulator's regions"),
    ),
)
