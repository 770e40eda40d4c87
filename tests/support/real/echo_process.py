"""A process that runs `canopy.wire.process.node_process` with an `EchoNode`: ``python -m
tests.support.real.echo_process``.

Arguments: a JSON object with keys of `NodeConfig`, and what else the node is to do: ``stubborn``
never drains, ``buggy`` fails its own assertion at the first command, ``hanging`` does not come back
when it leaves, which its process waits for a moment only.
"""

from __future__ import annotations

import json
import sys
import time

from canopy.wire.config import load_config
from canopy.wire.process import node_process
from canopy.wire.process.node_process import NodeProcess, run_node
from harness.real_overlay import PATIENCE
from overlay.client import Command
from overlay.driver import DrivenNode
from tests.support.real.echo_node import EchoNode


class BuggyNode(EchoNode):
    def command(self, client: int, command: Command) -> None:
        raise AssertionError("a bug of ours")


class HangingNode(EchoNode):
    def leave(self, reason: str) -> None:
        time.sleep(PATIENCE)


def build(process: NodeProcess) -> DrivenNode:
    kinds = {"buggy": BuggyNode, "hanging": HangingNode}
    kind = next((kinds[name] for name in sys.argv[2:] if name in kinds), EchoNode)
    node = kind(process.driver, process.me.id, process.me.address)
    node.drains = "stubborn" not in sys.argv[2:]
    return node


if __name__ == "__main__":
    if "hanging" in sys.argv[2:]:
        node_process.END_MOST = 0.3  # type: ignore[misc]
    sys.exit(run_node(load_config(flags=json.loads(sys.argv[1])), build=build))
