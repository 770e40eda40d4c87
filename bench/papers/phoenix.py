"""Phoenix's recovery, priority and choice. The text at hand is a damaged scan: what of it can be
read are the axes, the modes and some numbers."""

from __future__ import annotations

from typing import Final

from bench.experiments.pictures import Picture
from bench.papers.experiment import Drawing, Experiment, Ours, Paper, Reported

RECOVERY: Final = "recovery-processes"
TIMELINESS: Final = "papers-phoenix-timeliness"
TRIALS: Final = "python -m bench.experiments timeliness"
MODES: Final = {
    "neither": "neither", "priority": "priority only", "choice": "choice only", "both": "both",
}  # fmt: skip
RATES: Final = (500, 1_000, 1_500, 2_000, 2_500, 3_000, 3_500, 4_000)
MATCHING: Final = (6, 10, 14, 18, 22, 26)

_RECOVERED: Final = (
    f"{RECOVERY}.json | by=kill,rate | across=where | kill: lost | rate ,.0f: events/s | "
    "processes.first_s.median .2f: first delivery, s | processes.all_s.median .2f: all, s | "
    "processes.subscribe_s.median .2f: a new subscription, s | "
    "{processes.lost_before}, {processes.lost_after}: events lost, in flight and after | "
    "simulator.all_s.median .2f: simulator: all, s | "
    "simulator.subscribe_s.median .2f: … a new subscription, s"
)


def _again(kill: str) -> Reported:
    where = {"kill": kill, "rate": 2000.0, "where": "processes"}
    ours = Ours("all_s.median", where, ".2f")
    return Reported(f"here, {kill} lost", "4.1", None, "s", ours=ours)


def _modes(figure: int, over: str) -> str:
    shown = " | ".join(
        f"{{{name}.mean_ms:.1f}} ({{{name}.urgency_ms:.1f}}): {words}"
        for name, words in MODES.items()
    )
    return (
        f"{TIMELINESS}.json | figure={figure} | run.form=fast or full | x ,: {over} | "
        f"events ,: events | {shown} | neither.busiest .0%: busiest host, neither | "
        "both.busiest .0%: … both"
    )


def _full(over: str, other: str, points: tuple[int, ...]) -> tuple[str, ...]:
    """A command for each point, so that a run of hours goes on where it was."""
    rest = f"--set '{other}=[]' --set events=200000 --set jobs=2 --json"
    return tuple(f"{TRIALS} --set '{over}=[{point}]' {rest}" for point in points)


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
            "The time from a loss until deliveries and new subscriptions work again: real "
            "processes "
            "killed with SIGKILL and links that are cut, beside the same in the simulator.",
            (
                Reported("rates", "4.1", None, words="500 to 4,000 events a second"),
                Reported(
                    "at 2,000 a second, five losses",
                    "4.1",
                    None,
                    words="30.1, 22.9, 19.9, 29.5, 18.8 s (as far as legible, in unknown order)",
                ),
                *map(_again, ("primary", "broker", "link", "cluster")),
            ),
            RECOVERY,
            (
                "python -m bench.recovery.measure --kill primary broker link cluster "
                "--rate 500,2000,4000 --times 1 --json",
                "python -m bench.recovery.measure --simulated --kill primary broker link cluster "
                "--rate 500,2000 --times 1 --json",
            ),
            (
                "python -m bench.recovery.measure --kill primary standby broker link last-link "
                "cluster --rate 500,1000,2000,4000 --times 5 --json",
                "python -m bench.recovery.measure --simulated --kill primary standby broker link "
                "last-link cluster --rate 500,1000,2000,4000 --times 5 --json",
            ),
            220,
            (_RECOVERED,),
            "Real processes on one machine; the paper's ran in a virtual machine each. The "
            "paper's tens "
            "of seconds are its time-outs; here a loss is noticed by connections that break, or "
            "within `links.dead_after`. A cluster is one of two of three members each, all killed "
            "at "
            "once. [recovery.md](recovery.md) describes the trial and the targets.",
            Picture(
                "lines",
                "rate",
                "all_s.median",
                {"where": "", "kill": " lost"},
                "events a second",
                "s until all works again",
                where={"failed": 0},
                log=True,
                paper=((2_000, 18.8), (2_000, 30.1)),
            ),
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
                "recovered: recovered | all_s .2f: all works again, s | "
                "{lost_before}, {lost_after}: events lost, in flight and after",
            ),
            "Real processes and the product's own terminal UI; the command writes four pictures of "
            "each failure to `build/phoenix`. The captions of the figures cannot be read.",
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
            TIMELINESS,
            (
                f"{TRIALS} --set 'rates=[2000,4000]' --set 'matching=[]' --set jobs=2 --json",
                f"{TRIALS} --set 'rates=[]' --set 'matching=[6,16]' --set jobs=2 --json",
            ),
            (*_full("rates", "matching", RATES), *_full("matching", "rates", MATCHING)),
            70,
            (_modes(9, "events a second"), _modes(10, "matching subscriptions")),
            "Milliseconds: the plain mean over all deliveries, which is the paper's measure, and "
            "in "
            "brackets the mean weighted by urgency. Weighted by urgency the order of the modes is "
            "the paper's as soon as there is a queue. The plain mean is hardly changed by priority "
            "where all events cost the same, since another event waits instead "
            "([why](timeliness.md#the-plain-mean)). The full form has run "
            "one point, at 4,000 events a second: choice nearly halves the plain mean, priority "
            "changes it by a hundredth at most. A further point takes 2,000 s of CPU.",
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
