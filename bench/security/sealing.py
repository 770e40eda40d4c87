"""What sealing costs a program: `python -m bench.security.sealing --json`.

The client library without a socket: a batch of events is encoded as a program sends it, and taken
as it comes, with a seal file and without. Processor time of one process, the best of some rounds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from canopy.client.seals import Sealer, open_seals
from canopy.client.session import ControlSession
from canopy.wire.keys.seals import found_seals
from canopy.wire.transport.framing import COMMAND_FRAMES, REPLY_FRAMES, FrameReader
from overlay.client import Draft, Event, Gathered, Publish

BATCH: Final = 256
ROUNDS: Final = 200
SIZES: Final = (0, 100, 1_024, 16_384)


def drafts(size: int) -> tuple[Draft, ...]:
    """A batch: six attributes, and so many bytes of payload."""
    return tuple(
        Draft(
            {
                "id": f"e{n}", "type": "reading", "region": "eu", "sensor": n % 16,
                "value": n * 0.5, "is_valid": True,
            },
            bytes(size),
            "application/octet-stream" if size else "",
        )
        for n in range(BATCH)
    )  # fmt: skip


def best(work: Callable[[], object], rounds: int) -> float:
    """Microseconds of processor time for each event of a batch."""
    found = float("inf")
    for _ in range(rounds):
        began = time.process_time_ns()
        work()
        found = min(found, time.process_time_ns() - began)
    return round(found / BATCH / 1_000, 2)


def costs(size: int, sealer: Sealer | None) -> tuple[float, float, int]:
    """Microseconds to send and to take an event, and its bytes in the frame."""
    session = ControlSession("here", sealer=sealer)
    command = Publish(0, drafts(size))
    rounds = ROUNDS if size < 10_000 else ROUNDS // 5
    sending = best(lambda: session.encode(command, 1), rounds)
    frame = session.encode(command, 1)
    (seen,) = FrameReader(COMMAND_FRAMES).feed(frame)
    assert isinstance(seen, Publish)
    events = tuple(
        Event("n" * 32, 1, number, 1.0, draft.attributes, draft.payload, draft.payload_type)
        for number, draft in enumerate(seen.events)
    )
    data = REPLY_FRAMES.encode(Gathered(0, events))

    def take() -> None:
        session.receive(data)
        taken = session.take_gathered()
        assert len(taken) == BATCH
        assert len(taken[0].payload) == size

    return sending, best(take, rounds), len(frame) // BATCH


def main() -> None:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.seal"
        found_seals(path)
        for size in SIZES:
            off, on = costs(size, None), costs(size, open_seals(path))
            rows.append(
                {
                    "payload": size,
                    "send_us": {"off": off[0], "on": on[0]},
                    "take_us": {"off": off[1], "on": on[1]},
                    "bytes": {"off": off[2], "on": on[2]},
                }
            )
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
