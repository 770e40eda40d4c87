"""How long an overlay of real processes takes to recover from kill -9, and what it loses.

    python -m bench.recovery.measure --kill primary --rate 2000 --times 30 --json
    python -m bench.recovery.measure --simulated --kill primary --rate 500,2000 --json

The first starts for each
repetition an overlay on loopback, publishes at that rate, kills the primary (or the standby, a
match broker that hosts trees, or a whole cluster of three beside another one; or cuts a link for
good, between publisher's node and a host, or between a host and a subscriber's node) and reports,
for each kind of loss and rate, the median and the longest of

* `first_s`: seconds from the kill to the first correct delivery of an event that was published
  after it and needed the killed node (harness/recovery/plan.py says which do);
* `all_s`: … until that holds for everything that needed it;
* `subscribe_s`: … to the delivery to a subscription that was asked for right after the kill;
* `gap_s`: the longest time in which any flow of events was silent;
* `late_until_s`: until events are delivered within half a second again;

and the sums of what went wrong: `lost_before` and `lost_after`, events published before the kill
(in flight through the killed node) and after it that never came; `told`, how many of both are in a
gap that their subscriber was told; `duplicates` and `spurious`
deliveries, which must be 0; `failed`, repetitions that did not recover. The exit code is 1 if there
were any of the last three. Progress goes to standard error.

`--simulated` does the same in the simulator, with as many nodes, a seed for each repetition.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.command import TRACE, Progress, parser, show
from bench.recovery.simulated import Trial
from bench.recovery.trial import ProcessTrial
from canopy.cli.demo.plan import DemoError
from canopy.client.errors import ControlError
from canopy.sim.world.cost import collector_at_rest
from harness.recovery.plan import CUTS, KILLS, TrialError
from harness.recovery.verdict import Row, is_good, summary


def rates(text: str) -> list[float]:
    found = [float(part) for part in text.split(",")]
    if not all(1 <= rate <= 100_000 for rate in found):
        raise argparse.ArgumentTypeError("rates are 1 to 100000 events per second")
    return found


def parse(args: Sequence[str] | None) -> argparse.Namespace:
    made = parser(
        __doc__,
        times=(3, "repetitions of each"),
        simulated=(False, "in the simulator"),
        silent=(False, "with --simulated: the machine dies, too, and no connection is reset"),
        trace=TRACE,
        keep=(Path, "folder where the nodes' data and logs are kept"),
    )
    made.add_argument("--kill", nargs="+", choices=(*KILLS, *CUTS), default=["primary"])
    made.add_argument(
        "--rate", type=rates, default=[2_000.0], metavar="R,R", help="events a second (2000)"
    )
    return made.parse_args(args)


def repeat(options: argparse.Namespace, kill: str, rate: float, progress: Progress) -> Row:
    """Run all repetitions of one kill at one rate, and report those that could not be measured."""
    trials: list[Row] = []
    for number in range(options.times):
        head = f"{kill}, {rate:g}/s, {number + 1}"
        try:
            if options.simulated:
                row = simulated(kill, rate, number + 1, options.silent)
            else:
                row = in_processes(kill, rate, head, options, progress)
        except (TrialError, DemoError, ControlError, TimeoutError) as error:
            progress.note(f"{head}: not measured: {error}")
        else:
            trials.append(row)
            progress.note(f"{head}: " + ", ".join(f"{k} {v}" for k, v in row.items()))
        progress.done += 1
    where = "simulator" if options.simulated else "processes"
    return {"where": where, **summary(kill, rate, trials), "trace": options.trace}


def in_processes(
    kill: str, rate: float, head: str, options: argparse.Namespace, progress: Progress
) -> Row:
    """One trial of real processes."""
    with tempfile.TemporaryDirectory(prefix="canopy-bench-") as work:
        out = Path(work) if options.keep is None else options.keep / head.replace("/", " per ")
        say = progress.say
        trial = ProcessTrial(kill, rate, out, options.trace, lambda text: say(f"{head}: {text}"))
        return trial.run()


def simulated(kill: str, rate: float, seed: int, silent: bool) -> Row:
    """One trial in the simulator, of as many nodes as there are processes."""
    with collector_at_rest():
        return Trial(kill, rate, 0, str(seed), silent=silent).run()


def main(args: Sequence[str] | None = None) -> int:
    """Return 1 if a repetition did not recover, or something was delivered twice or spuriously."""
    options = parse(args)
    progress = Progress(len(options.kill) * len(options.rate) * options.times)
    rows = [repeat(options, k, rate, progress) for k in options.kill for rate in options.rate]
    if not options.json:
        for row in rows:
            row.pop("trials")
    show(rows, options)
    return 0 if all(map(is_good, rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
