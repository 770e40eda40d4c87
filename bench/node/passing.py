"""Whether a node's memory grows with the programs that came and went.

`python -m bench.node.passing --seconds 3600 --json` starts one node as a real process. Programs,
`--together` at a time, connect, subscribe to one to three random selectors, publish some events,
and end their subscriptions or just close their connection. Selectors are over `--attributes`
attributes, with other values each time. The memory that is the process's alone is looked at
`LOOKS` times at equal intervals, each time `SETTLE` seconds after the programs have stopped, so
that what has ended is let go: `series` are the programs so far and MB. `bytes_per_program` is the
slope of the second half, and `growth` its growth in percent.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.command import SEED, TRACE, parser, show
from bench.processes.overlays import PATIENCE, process, started
from canopy.client.blocking import ControlClient
from overlay.client import Done, Draft, Publish, Published, Subscribe, Subscribed, Unsubscribe

LOOKS: Final = 20
SETTLE: Final = 5.0


def selector(rng: Random, attributes: int) -> str:
    """One to three conditions, of every kind."""
    parts = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        name, number = f"a{rng.randrange(attributes)}", rng.randrange(10**6)
        parts.append(
            rng.choice(
                (
                    f"{name} = {number}",
                    f"{name} BETWEEN {number} AND {number + 1_000}",
                    f"{name} IN ('t{number}', 'x')",
                    f"{name} LIKE 't{number}%'",
                )
            )
        )
    return rng.choice((" AND ", " OR ")).join(parts)


def program(data: Path, rng: Random, attributes: int) -> None:
    """One program, from its connection to its end."""
    with ControlClient.connect(data) as client:
        wanted = [Subscribe(0, selector(rng, attributes)) for _ in range(rng.choice((1, 2, 3)))]
        made = client.ask_many(wanted, Subscribed, PATIENCE, len(wanted))
        drafts = tuple(
            Draft({f"a{rng.randrange(attributes)}": rng.randrange(10**6)}, b"", "", time.time())
            for _ in range(rng.randrange(4))
        )
        if drafts:
            client.ask(Publish(0, drafts), Published, PATIENCE)
        if rng.random() < 0.5:
            for one in made:
                client.ask(Unsubscribe(0, one.subscription), Done, PATIENCE)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Let programs come and go, and look at the node's memory."""
    series: list[tuple[int, float]] = []
    done = [0] * options.together
    with started(1, options.trace) as overlay:
        (node,) = overlay.nodes

        def pass_by(place: int, until: float) -> None:
            rng = Random(f"{options.seed} {place} {done[place]}")
            while time.monotonic() < until:
                program(node.data, rng, options.attributes)
                done[place] += 1

        for look in range(LOOKS):
            until = time.monotonic() + options.seconds / LOOKS
            threads = [
                threading.Thread(target=pass_by, args=(place, until), daemon=True)
                for place in range(options.together)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(SETTLE)
            series.append((sum(done), round(process(node).memory_full_info().uss / 1e6, 2)))
            print(f"{look + 1} of {LOOKS}: {series[-1]}", file=sys.stderr)
    half, (programs, last) = series[LOOKS // 2], series[-1]
    return {
        "programs": programs,
        "attributes": options.attributes,
        "seconds": options.seconds,
        "bytes_per_program": round((last - half[1]) * 1e6 / max(1, programs - half[0])),
        "growth": round(100 * (last / half[1] - 1), 2),
        "series": series,
    }


def main(args: Sequence[str] | None = None) -> int:
    """Print how the memory of a node grew."""
    options = parser(
        __doc__,
        seconds=(600.0, "seconds of programs"),
        together=(4, "programs at a time"),
        attributes=(100, "attributes of selectors"),
        seed=SEED,
        trace=TRACE,
    ).parse_args(args)
    show(measure(options), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
