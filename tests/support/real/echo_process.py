"""A process that runs `canopy.wire.process.node_process` with an `EchoNode`: ``python -m
tests.support.real.echo_process``.

Arguments: a JSON object with keys of `NodeConfig`, and what else the node is to do: ``stubborn``
never drains, ``buggy`` fails its own assertion at the first command.
"""

from __future__ import annotations

import json
import sys

from canopy.wire.config import load_config
from canopy.wire.process.node_process import NodeProcess, run_node
from overlay.client import Command
from overlay.driving import DrivenNode
from tests.support.real.echo_node import EchoNode


class BuggyNode(EchoNode):
    def command(self, client: int, command: Command) -> None:
        raise AssertionError("a bug of ours")


def build(process: NodeProcess) -> DrivenNode:
    kind = BuggyNode if "buggy" in sys.argv[2:] else EchoNode
    node = kind(process.driver, process.me.id, process.me.address)
    node.drains = "stubborn" not in sys.argv[2:]
    return node


if __name__ == "__main__":
    sys.exit(run_node(load_config(flags=json.loads(sys.argv[1])), build=build))
