"""All experiments of the five papers: what each runs, and the file and picture of its rows.

docs/lab/papers.md has a section of the same name for each: the question, what the paper reports,
and what differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.experiments.figures.experiment import PICTURES
from bench.experiments.pictures import Picture

PAPERS: Final = ("cbdlo", "phoenix", "venus", "minos", "tensor")


class Experiment(NamedTuple):
    """A table or figure (or a section with a result in words)."""

    name: str
    """As the command takes it, behind its paper's."""
    title: str
    file: str
    """The name of the file of its rows, in bench/results, without its suffix."""
    fast: tuple[str, ...]
    """Commands that print rows, of the size that fits into the fast form; (): it is not in it. What
    several experiments share is run once."""
    full: tuple[str, ...]
    """… of the paper's size, or as near as a machine of two cores comes; (): `fast` has it."""
    seconds: int
    """That `fast` takes on two cores, about; `full` if there is no fast form; 0: another experiment
    has the same commands."""
    picture: Picture | None = None

    @property
    def paper(self) -> str:
        """The name of the paper, by which the experiment's own begins."""
        return self.name.partition("-")[0]

    def form_of(self, command: str) -> str:
        """Of which form a command is: "full" where its rows are of the paper's size, or as near as
        may be; "fast"; or "", if it is neither's."""
        if command in (self.full or self.fast):
            return "full"
        return "fast" if command in self.fast else ""


FIGURES: Final = "python -m bench.experiments figures "
POINTS: Final = "--set 'x=[10,30,100,300,1000,3000]' "
"""Two to four of each figure: hops of figure 6, nodes of 7, attributes of 9, subscriptions."""

RECOVERY: Final = "python -m bench.recovery.measure "
LOSSES: Final = "--kill primary standby broker link last-link cluster --rate 500,1000,2000,4000 "
TIMELINESS: Final = "python -m bench.experiments timeliness "
DISTRIBUTION: Final = "python -m bench.papers.distribution "
TRANSMISSION: Final = "python -m bench.papers.transmission "
SENT: Final[tuple[tuple[str, ...], tuple[str, ...]]] = (
    (f"{TRANSMISSION}--rows 100000 --seconds 1 --slowest 4000 --json",),
    (f"{TRANSMISSION}--rows 4000000 --seconds 20 --json",),
)


def _figure(number: int, title: str) -> Experiment:
    fast, full = (f"{FIGURES}{POINTS}--set jobs=2 --json",), (f"{FIGURES}--json",)
    seconds = 35 if number == 5 else 0
    name = f"cbdlo-figure-{number}"
    return Experiment(name, title, "figures-model", fast, full, seconds, PICTURES[number])


def _point(over: str, other: str, point: int) -> str:
    """A point of Phoenix's size; a command each, so that a run of hours goes on where it was."""
    rest = f"--set '{other}=[]' --set events=200000 --set jobs=2 --json"
    return f"{TIMELINESS}--set '{over}=[{point}]' {rest}"


EXPERIMENTS: Final[tuple[Experiment, ...]] = (
    _figure(5, "effective cost over subscriptions"),
    _figure(6, "effective cost over the hop limit"),
    _figure(7, "CBDLO and TERA over nodes"),
    _figure(8, "comparisons over subscriptions"),
    _figure(9, "comparisons over attributes"),
    Experiment(
        "cbdlo-whole-nodes",
        "the same by whole product nodes",
        "figures-full-nodes",
        (f"{FIGURES}--set whole_nodes=100 --set 'x=[10,50,100]' --set jobs=2 --json",),
        (
            f"{FIGURES}--set whole_nodes=100 --json",
            f"{FIGURES}--set whole_nodes=3000 --set one_load=true "
            "--set kept=build/figures.jsonl --json",
        ),
        60,
    ),
    Experiment(
        "phoenix-recovery",
        "recovery after a loss, over the rate of events",
        "recovery-processes",
        (
            f"{RECOVERY}--kill primary broker link cluster --rate 500,2000,4000 --times 1 --json",
            f"{RECOVERY}--simulated --kill primary broker link cluster --rate 500,2000 --times 1 "
            "--json",
        ),
        (
            f"{RECOVERY}{LOSSES}--times 5 --json",
            f"{RECOVERY}--simulated {LOSSES}--times 5 --json",
        ),
        220,
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
        "the failures on a monitor",
        "phoenix-monitor",
        (),
        ("python -m bench.recovery.screens --out build/phoenix --json",),
        240,
    ),
    Experiment(
        "phoenix-timeliness",
        "priority and the choice of brokers",
        "papers-phoenix-timeliness",
        (
            f"{TIMELINESS}--set 'rates=[2000,4000]' --set 'matching=[]' --set jobs=2 --json",
            f"{TIMELINESS}--set 'rates=[]' --set 'matching=[6,16]' --set jobs=2 --json",
        ),
        (
            *(_point("rates", "matching", n) for n in range(500, 4_001, 500)),
            *(_point("matching", "rates", n) for n in range(6, 27, 4)),
        ),
        100,
    ),
    Experiment(
        "venus-capture",
        "capture of inserts, updates and deletes",
        "papers-venus-capture",
        ("python -m bench.papers.capture --changes 100000 --json",),
        (),
        70,
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
    ),
    Experiment(
        "venus-copy",
        "from the source database to the destination",
        "papers-venus-capture",
        ("python -m bench.papers.capture --changes 100000 --json",),
        (),
        0,
    ),
    Experiment(
        "venus-transmission",
        "from the first row sent to the last row received",
        "papers-minos-transmission",
        SENT[0],
        SENT[1],
        0,
    ),
    Experiment(
        "venus-power",
        "consistency when the leader's machine loses its power",
        "papers-venus-power",
        ("python -m bench.papers.power --copy --json",),
        (),
        35,
    ),
    Experiment(
        "minos-producers",
        "timeliness with 1, 50 and 200 producers",
        "papers-minos-transmission",
        SENT[0],
        SENT[1],
        350,
        Picture(
            "bars",
            "contestant",
            "seconds",
            {"producers": " producers"},
            "",
            "s from first sent to last received",
            where={"way": "together"},
        ),
    ),
    Experiment(
        "minos-throughput",
        "throughput at rising load, with response time",
        "papers-minos-transmission",
        SENT[0],
        SENT[1],
        0,
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
    ),
    Experiment(
        "minos-power",
        "a slow consumer and the broker's power",
        "papers-minos-power",
        ("python -m bench.papers.unplugged --json",),
        ("python -m bench.papers.unplugged --rows 20000 --json",),
        60,
    ),
    Experiment(
        "minos-reliability",
        "the same in the simulator, with replicas",
        "papers-minos-reliability",
        ("python -m bench.papers.power --consumer --rows 5000 --json",),
        ("python -m bench.papers.power --consumer --rows 100000 --json",),
        5,
    ),
    Experiment(
        "minos-features",
        "features, from tests",
        "papers-minos-features",
        ("python -m bench.papers.features --json",),
        (),
        20,
    ),
    Experiment(
        "tensor-messages",
        "distribution time over the number of messages",
        "papers-tensor-messages",
        (f"{DISTRIBUTION}--messages 1 10 100 1000 10000 20000 --json",),
        (f"{DISTRIBUTION}--messages 1 1000 10000 100000 1000000 --json",),
        35,
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
    ),
    Experiment(
        "tensor-subscribers",
        "distribution time over the number of subscribers",
        "papers-tensor-subscribers",
        (
            f"{DISTRIBUTION}--subscribers 20 200 2000 10000 --messages 100 --json",
            f"{DISTRIBUTION}--subscribers 20 200 2000 --messages 1000 --json",
        ),
        (
            f"{DISTRIBUTION}--subscribers 20 200 2000 10000 --messages 1000 --json",
            f"{DISTRIBUTION}--subscribers 20 200 600 2000 --messages 100000 --json",
        ),
        60,
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
    ),
    Experiment(
        "tensor-load",
        "load over brokers",
        "papers-tensor-load",
        (f"{DISTRIBUTION}--load --messages 1000 --json",),
        (f"{DISTRIBUTION}--load --messages 100000 --json",),
        10,
    ),
    Experiment(
        "tensor-outages",
        "an area without power; five points without cables",
        "papers-tensor-outages",
        ("python -m bench.papers.outages --points 12 --subscribers 24 --json",),
        ("python -m bench.papers.outages --seeds 20 --points 60 --subscribers 240 --json",),
        45,
    ),
    Experiment(
        "tensor-backlog",
        "the replication backlog",
        "backlog",
        (),
        ("python -m bench.experiments backlog --json",),
        600,
    ),
    Experiment(
        "tensor-health",
        "sick nodes are kept from leading",
        "health-elections",
        (),
        ("python -m bench.experiments health --json",),
        1_200,
    ),
)


def chosen(words: Sequence[str]) -> list[Experiment]:
    """The experiments that are named, by their name or their paper's; all, if there are no words.
    Raises LookupError with the word that names none."""
    found = []
    for word in words:
        named = [e for e in EXPERIMENTS if word.lower() in (e.name, e.paper)]
        if not named:
            raise LookupError(word)
        found += named
    return [e for e in EXPERIMENTS if not words or e in found]
