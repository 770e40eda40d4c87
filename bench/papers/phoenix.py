"""Phoenix's recovery, priority and choice. The text at hand is a damaged scan: what of it can be
read are the axes, the modes and some numbers."""

from __future__ import annotations

from typing import Final

from bench.papers.experiment import Drawing, Experiment, Ours, Paper, Reported

TIMELINESS: Final = "timeliness.json | each=series.{series}.curves | transposed | mode: {over} | "


def _series(series: int, over: str, xs: tuple[int, ...]) -> str:
    columns = [
        f"{{points.{n}.urgency_ms:.1f}} ({{points.{n}.all.mean_ms:.1f}}): {x:,}"
        for n, x in enumerate(xs)
    ]
    return TIMELINESS.format(series=series, over=over) + " | ".join(columns)


PHOENIX: Final = Paper(
    "Phoenix",
    "The copy at hand is a damaged scan: its axes, modes and some numbers can be read, its "
    "curves cannot.",
    (
        Experiment(
            "phoenix-recovery",
            "Phoenix",
            "figure 8",
            "recovery after a loss, over the rate of events",
            "How long until what needs what was lost works again.",
            (
                Reported("rates", "4", None, words="500 to 4,000 events a second"),
                Reported("shortest at 2,000 a second", "4", 19, "s (as far as legible)"),
                Reported("longest at 2,000 a second", "4", 30, "s (as far as legible)"),
                Reported(
                    "primary lost, here",
                    "",
                    None,
                    ours=Ours("first_s.median", {"kill": "primary", "rate": 2000}, ".2f"),
                ),
                Reported(
                    "broker lost, here",
                    "",
                    None,
                    ours=Ours("first_s.median", {"kill": "broker", "rate": 2000}, ".2f"),
                ),
            ),
            "recovery-processes",
            (),
            (
                "python -m bench.recovery.measure --kill primary standby broker cluster "
                "--rate 500,1000,2000,4000 --json",
            ),
            1_800,
            (
                "recovery-processes.json | kill: kill -9 | rate ,: events/s | times: times | "
                "{run.load.0} to {run.load.1}: load | {first_s.median:.2f}, {first_s.most:.2f}: "
                "works again, s: median, most | {subscribe_s.median:.2f}, {subscribe_s.most:.2f}: "
                "a new subscription, s | run.commit: commit",
            ),
            "Real processes on one machine; the paper's were virtual machines of one server "
            "each. What "
            "takes the paper tens of seconds are its time-outs; here a loss is noticed by "
            "connections "
            "that break, or within `links.dead_after`. [recovery.md](recovery.md) has the "
            "simulator's "
            "curves and what each column means.",
        ),
        Experiment(
            "phoenix-monitor",
            "Phoenix",
            "figures 4 to 7",
            "the failures on a monitor",
            "What the terminal UI of a node shows as a link, a match broker, a primary and a whole "
            "cluster are lost.",
            (
                Reported(
                    "shape", "4", None, words="the overlay before and after each failure, intact"
                ),
            ),
            "phoenix-monitor",
            (),
            ("python -m bench.recovery.screens --out build/phoenix --json",),
            240,
            (
                "phoenix-monitor.json | figure: figure | kill: lost | "
                "{pictures.0}, {pictures.1}, {pictures.2}, {pictures.3}: pictures | "
                "recovered: recovered | all_s .2f: all works again, s | "
                "{lost_before}, {lost_after}: events lost, in flight and after",
            ),
            "Real processes and the product's own terminal UI; the command leaves the pictures in "
            "`build/phoenix`. Which caption belongs to which figure cannot be read.",
        ),
        Experiment(
            "phoenix-timeliness",
            "Phoenix",
            "table 1, figures 9 and 10",
            "priority and the choice of brokers",
            "Mean latency over the rate of events and over matching subscriptions, in four modes.",
            (
                Reported("modes (table 1)", "4", None, words="neither, priority, choice, both"),
                Reported("events of a point", "4", 200_000, ""),
                Reported("rates (figure 9)", "4", None, words="500 to 4,000 events a second"),
                Reported("subscriptions (figure 10)", "4", None, words="6,000 to 26,000"),
                Reported(
                    "shape",
                    "4",
                    None,
                    words="both better than each alone, each better than neither",
                ),
            ),
            "timeliness",
            (),
            ("python -m bench.experiments timeliness --json --quiet",),
            300,
            (
                _series(0, "events per second", (500, 1000, 1500, 2000, 2500, 3000, 3500, 4000)),
                _series(1, "matching subscriptions", (6, 10, 14, 18, 22, 26)),
            ),
            "Milliseconds: the mean by urgency, in brackets the plain mean, which is the paper's "
            "measure. By urgency the order is the paper's from where there is a queue. By the "
            "plain mean priority alone changes next to nothing, as it must where all events cost "
            "the same: whichever goes first, another waits. With choice it can be worse in one "
            "seed, as *both* is here where hosts are busiest, and is better over eight of them "
            "([timeliness.md](timeliness.md#the-plain-mean)). The rows are of 2,000 events a "
            "point, and of as many subscriptions as an event matches; since then the command has "
            "the paper's 6,000 to 26,000 of them, and `--set events=200000` its events.",
        ),
    ),
    (
        Drawing(
            "figures 1 to 3",
            "the system, its clusters and their messages",
            "[clusters](../design/clusters.md)",
        ),
    ),
)
