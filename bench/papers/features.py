"""Minos, table 3: the features that it compares, and the tests that show them here.

    python -m bench.papers.features --json

Runs the tests that each feature is tied to, and prints a row for each feature with what the paper
says of SQS, Kafka, RocketMQ and Minos. `here` is *yes* if all of its tests pass, *no* if one fails.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.command import parser, show

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = (
    "tests/papers",
    "tests/streams",
    "tests/upper_tree",
    "tests/overlay",
    "tests/links",
)


class Feature(NamedTuple):
    """A line of the paper's table, in its order, and what shows it here."""

    name: str
    sqs: str
    kafka: str
    rocketmq: str
    minos: str
    here: str
    """What the tests show; "" if it is a plain yes."""
    tests: tuple[str, ...]
    """Names of test functions."""


FEATURES: Final = (
    Feature(
        *("persistence", "yes", "yes", "yes", "yes", ""),
        (
            "test_section_4_a_row_is_acknowledged_when_a_majority_has_it_on_disk",
            "test_section_4_a_consumer_loses_and_repeats_nothing_when_the_power_goes",
        ),
    ),
    Feature(
        *("delivery", "at least once", "at least once, at most once", "at least once"),
        *("exactly once", "exactly once, where the consumer keeps its position with its effect"),
        (
            "test_section_3_3_a_batch_that_is_sent_again_is_there_once",
            "test_section_4_a_consumer_loses_and_repeats_nothing_when_the_power_goes",
        ),
    ),
    Feature(
        *("order", "no", "no", "no", "yes", "yes, of each shard"),
        ("test_section_3_3_what_a_producer_sends_comes_in_its_order_while_leaders_are_lost",),
    ),
    Feature(
        *("scales in depth (tiers)", "no", "no", "no", "yes", ""),
        ("test_an_event_crosses_once_into_each_interested_region",),
    ),
    Feature(
        *("batches", "yes", "yes", "yes", "yes", "yes, atomic"),
        ("test_section_3_3_one_acknowledgement_stands_for_a_batch",),
    ),
)


def place_of(test: str) -> str:
    """The file of a test function, as pytest takes it. Raises LookupError."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            if f"def {test}(" in path.read_text(encoding="utf-8"):
                return f"{path.relative_to(ROOT)}::{test}"
    raise LookupError(f"there is no test {test}")


def passes(test: str) -> bool:
    """Run one test in a process of its own, and return whether it passes."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", place_of(test)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"{test}: {'passes' if done.returncode == 0 else 'fails'}", file=sys.stderr, flush=True)
    return done.returncode == 0


def rows() -> list[dict[str, Any]]:
    """A row for each feature."""
    passed = {test: passes(test) for test in {t: 0 for f in FEATURES for t in f.tests}}
    return [
        {
            **{key: value for key, value in each._asdict().items() if key not in ("here", "tests")},
            "here": (each.here or "yes") if all(passed[t] for t in each.tests) else "no",
            "tests": ", ".join(f"`{test}`" for test in each.tests),
        }
        for each in FEATURES
    ]


def main() -> int:
    """Run the command `python -m bench.papers.features`."""
    args = parser(__doc__).parse_args()
    found = rows()
    show(found, args)
    return 1 if any(row["here"] == "no" for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
