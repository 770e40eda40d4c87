"""Tensor's measurements: distribution over three tiers, load, and reliability."""

from __future__ import annotations

from typing import Final

from bench.papers.experiment import Drawing, Experiment, Ours, Paper, Picture, Reported

_SIMULATED: Final = """\
In the simulator: virtual time, in which links have the paper's latencies and a gigabit a second,
and the work of a node the time that it takes a real one ([costs](simulator.md))."""


def _columns(file: str) -> str:
    return (
        f"{file}.json | subscribers ,: subscribers | messages ,: messages | nodes: nodes | "
        "distribution_s .3f: distributed in, s | messages_per_second ,: messages/s | "
        "{delivered:,} of {expected:,}: deliveries | cpu_s: CPU s of the simulator"
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
Tensor's subscribers look for new versions now and then, and its replication goes tier by tier:
that is its flat 12 s. Here messages are pushed: a few take the longest ways alone, to a host and
from it. Up to the 20,000 messages of the fast form the time is about a second; the bend that the
paper has at 50,000 lies beyond what the simulator carries in minutes. 10,000 subscribers are the
next experiment's.""",
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
All of them run in the simulator: subscribers are programs of 24 nodes at points, each of which
gets a message once for all of its programs, so that what grows with subscribers is the work of
their own node.""",
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
there is one tree, and the publisher's node visits one host for each message, mostly the same;
division nodes pass on to their area. So the deviation is large by design where one topic is all
that there is.""",
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
        "elected_s .1f: owner again, s | elsewhere_s .1f: subscribed elsewhere, s | "
        "normal_s .1f: others normal, s | "
        "disturbed_s .1f: … again, after the return | back_s .1f: back after its return, s | "
        "told: deliveries missing elsewhere, told | lost: not told",
    ),
    """\
The owner of the messages' tree is in the area that is lost, with three of the five voters of its
cluster, so that another cluster has to take its place
([P5](../design/clusters.md#p5-a-lost-cluster)). *Normal* is for subscribers outside: until the
last message that took more than a second. The paper's subscribers connect to other brokers when
theirs is away; here a program's node is its machine's, and *subscribed elsewhere* is a new
program at another node. While they are cut off the five points found a fork of the cluster each,
and after their return the cluster outlives all five. Before it did so for the first one alone,
another fork led in its place and had 2 of 24 registrations: 202 deliveries of four seconds did not
come to programs elsewhere, which were told. *Back* is one point here, whose hosts dial it again
after 9.7 s and hold its deliveries until then; four have theirs within 1.1 s.""",
)

_BACKLOG: Final = Experiment(
    "tensor-backlog",
    "Tensor",
    "section IV.B, figure 6",
    "the replication backlog",
    "A flow of 1 MB a second over a link that is lost for so long: which size of the backlog loses "
    "messages, and how much it keeps.",
    (
        Reported("size at first, and at least", "IV.B", 10, "MB"),
        Reported("sized anew every", "IV.B", 30, "s"),
        Reported("mean disconnect taken over", "IV.B", 24, "h"),
    ),
    "backlog",
    (),
    ("python -m bench.simulator.backlog --json",),
    600,
    (
        "backlog.json | of=link | size: size | out_s .0f: out of reach for, s | lost ,: lost | "
        "named ,: named as lost | peak_bytes ,: bytes kept at most",
    ),
    """\
Here the floor is 1 MB a link (`links.queue_floor`), since a node has many links;
[T3](../design/links.md#t3-backlog).""",
)

_HEALTH: Final = Experiment(
    "tensor-health",
    "Tensor",
    "section IV.C, figure 7",
    "sick nodes are kept from leading",
    "The standby of a cluster is sick, and its primary is lost: judged by nobody, by itself (as by "
    "default) and by the health file.",
    (
        Reported("shape", "IV.C", None, words="sub-healthy nodes are removed from the candidates"),
        Reported(
            "the sick node leads, of ten trials, by default",
            "",
            None,
            ours=Ours("sick_leads", {"by": "itself"}, ""),
        ),
    ),
    "health-elections",
    (),
    ("python -m bench.health.elections",),
    1_200,
    (
        "health-elections.json | by: judged by | trials: trials | "
        "sick_named: the sick node is named | "
        "sick_leads: the sick node leads next | elected_s .2f: elected after, s | "
        "failed: that primary failed, too",
    ),
    """\
[health.md](health.md) has the trial and how well the signals of table III distinguish faults.""",
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
        Drawing("figures 11 to 13", "where the test ran", "the simulator's regions below"),
    ),
)
