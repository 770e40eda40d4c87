"""What a registration costs on its way through one node, stage by stage, in processor time.

`python -m bench.node.registering` builds a node in this process as stages.py does, which is owner
and host of its own subscriptions, and registers the selectors of subscribing.py, as many a turn as
a node takes of a program (`REGISTERED_TOGETHER`). Trace records are made as a node with
`--trace 0.01` makes them (those of subscriptions are always kept), and go nowhere. Sockets and the
disk are left out; garbage is collected as in a node's process. Its indexes have the fast engine
ready, as a node's have soon after its start. A stage's time is its own, without the stages that it
calls. `--json` prints one JSON object.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Final
from unittest.mock import patch

from bench.node.stages import Stages, TracedSurroundings
from bench.node.subscribing import selectors
from canopy.wire.constants import REGISTERED_TOGETHER
from canopy.wire.process.machine_load import freeze_heap, freeze_survivors
from canopy.wire.transport.codec import WireCodec
from canopy.wire.transport.framing import COMMAND_FRAMES, PREFIX, REPLY_FRAMES
from matching import warm
from node import LocalNode, Node
from overlay.chord.cluster.leader_log import LeaderLog
from overlay.client import Gather, Subscribe, Subscribed
from overlay.machine import Peer
from overlay.settings import Settings
from overlay.upper_tree.clients import clients as commands
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.host.assigned_trees import AssignedTrees
from overlay.upper_tree.owner.registrations.registry import Registry
from overlay.upper_tree.subscriber.receiver import Receiver
from overlay.upper_tree.subscriber.registrar import Registrar

CLIENT: Final = 1
WARMING: Final = 512  # selectors before it counts: the grammar is loaded, the shape is known
SHARE: Final = 0.01  # of events traced

WATCHED: Final = (
    (commands, "compile_selector", "compile the selector (matching)"),
    (LocalClients, "on_subscriptions_came", "the command (clients)"),
    (Registrar, "plan", "choose a pivot (registrar)"),
    (Receiver, "add_many", "index of what comes here (receiver)"),
    (Registrar, "_send_some", "send to owners (registrar)"),
    (Registry, "on_register", "take (owner)"),
    (LeaderLog, "append_all", "log and journal (cluster)"),
    (Registry, "_log_fresh", "pending, hosts, summaries (owner)"),
    (AssignedTrees, "on_install", "index of the tree (host)"),
    (Registry, "_acknowledge_due", "what is due (owner)"),
    (Registrar, "on_registered", "acknowledged (registrar)"),
    (LocalClients, "on_subscriptions_ready", "SUBACK (clients)"),
)
"""Where a method or function is, its name, and the stage that it is."""


class Registering:
    """One node, and one program that gathers."""

    def __init__(self, seed: int) -> None:
        self.world = TracedSurroundings(SHARE)
        me = Peer("ab" * 8, "127.0.0.1:1")
        self.node = Node(LocalNode(me, 1), Settings(), Random(seed), WireCodec(), self.world)
        self.node.start()
        self.until(lambda: self.node.clusters.is_primary)
        self.node.commands(CLIENT, (Gather(0),))

    def until(self, is_done: Callable[[], bool]) -> None:
        """Let time pass, from timer to timer."""
        self.world.answer(self.node)
        while not is_done():
            due = self.node.deadline()
            assert due is not None, "a node has timers as long as it lives"
            self.world.now = max(self.world.now, due)
            self.node.on_tick()
            self.world.answer(self.node)

    def register(self, batches: Sequence[Sequence[bytes]], stages: Stages | None = None) -> None:
        """Register what these frames ask for, a batch in a turn, each after the SUBACKs of the
        last."""
        decode, encode = COMMAND_FRAMES.decode, REPLY_FRAMES.encode
        if stages is not None:
            decode = stages.timed(decode, "decode the command (framing)")
            encode = stages.timed(encode, "encode for the program (framing)")
        answers = self.world.answers
        for batch in batches:
            have = len(answers)
            self.node.commands(CLIENT, tuple(decode(memoryview(one)[PREFIX:]) for one in batch))
            self.until(lambda have=have, batch=batch: len(answers) >= have + len(batch))  # type: ignore[misc]
            for answer in answers[have:]:
                assert isinstance(answer, Subscribed), answer
                encode(answer)


def frames(count: int, seed: int) -> list[list[bytes]]:
    """Return `count` commands that subscribe, grouped as they are read in one turn each."""
    made = [
        COMMAND_FRAMES.encode(Subscribe(number, text))
        for number, text in enumerate(selectors(count, seed))
    ]
    size = REGISTERED_TOGETHER
    return [made[at : at + size] for at in range(0, count, size)]


@contextmanager
def collecting_as_a_node() -> Iterator[None]:
    """Collect garbage as a node's process does: an object is looked at once."""
    before = gc.get_threshold()
    freeze_heap()
    try:
        yield
    finally:
        gc.callbacks.remove(freeze_survivors)
        gc.set_threshold(*before)
        gc.unfreeze()


def seconds_of(count: int, seed: int, stages: Stages | None) -> float:
    """Return the processor seconds of `count` registrations at a new node."""
    with ExitStack() as stack:
        for owner, name, stage in WATCHED if stages is not None else ():
            assert stages is not None
            timed = stages.timed(getattr(owner, name), stage)
            stack.enter_context(patch.object(owner, name, timed))
        bench = Registering(seed)
        bench.register(frames(WARMING, seed + 1))
        if stages is not None:
            world = bench.world
            stages.watch(world.writer, "write", "trace records")
            stages.seconds.clear()
        batches = frames(count, seed)
        stack.enter_context(collecting_as_a_node())
        run = bench.register if stages is None else stages.timed(bench.register, "turns, timers")
        began = time.process_time()
        run(batches, stages)
        return time.process_time() - began


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """A row: of a registration as a whole, and stage by stage, timed apart."""
    plain = seconds_of(options.selectors, options.seed, None)
    stages = Stages()
    seconds_of(options.selectors, options.seed, stages)
    spent = {name: s / options.selectors * 1e6 for name, s in stages.seconds.items()}
    return {
        "selectors": options.selectors,
        "us_per_registration": round(plain / options.selectors * 1e6, 1),
        "stages": {name: round(us, 1) for name, us in sorted(spent.items(), key=lambda e: -e[1])},
    }


def main(args: Sequence[str] | None = None) -> int:
    """Run the command `python -m bench.node.registering` and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.node.registering", description=__doc__)
    parser.add_argument("--selectors", type=int, default=8_192, help="after some to warm up (8192)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(args)
    warm()
    found = measure(options)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{found['us_per_registration']:8.1f} us per registration, of which, timed apart:")
        for name, us in found["stages"].items():
            print(f"{us:8.1f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
