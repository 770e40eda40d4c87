"""A rolling upgrade of real nodes under load: `make upgrade`.

All nodes run the old version, programs publish, subscribe, append to a stream and share its rows in
a group; then each node in turn is stopped in order and started with the new version, and, with
`--back`, with the old one again. Afterwards each subscriber must have got every event that was
published and got its receipt while it was subscribed, once, and nothing else, the stream must have
each acknowledged row, once and in order, and the group's members must have got each row that the
group wants, and none again after it was done with. The old version is a commit or another checkout
of Canopy (`--old`), or this one that offers the oldest version of the protocol that it speaks. With
`--keys` all nodes have certificates of an issuer at the first node, and speak TLS.

    python -m bench.processes.upgrade --nodes 12 --keys
    python -m bench.processes.upgrade --old v0.1.0 --back
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

from bench.command import parser, show
from bench.endurance.clients import CheckedSubscriber, LoadPublisher
from bench.endurance.load import SELECTORS
from bench.endurance.oracle import Ledger
from bench.processes.nodes import ROOT, free_port
from bench.streams.hostile.account import Account
from bench.streams.hostile.programs import STREAM, Producer, Sharing, wait_on
from canopy.client.blocking import ControlClient
from canopy.client.errors import ControlError
from overlay.client import GetPeers, GetStatus, Peers, Status, Streams
from overlay.links.messages import OLDEST_PROTOCOL, PROTOCOL
from overlay.stream_client import AddStream

PATIENCE: Final = 120.0
"""Seconds for a node to be ready, or to end, on a busy machine; ample."""

BATCH: Final = 5
"""Rows of one request."""

SUBSCRIBERS: Final = 4
"""Programs that subscribe, which share the `SELECTORS`."""

ENDLESS: Final = 1 << 62
"""More events than are published."""

ROWS: Final = 100.0
"""Rows a second of each producer."""

ON_ITS_WAY: Final = 3.0
"""Seconds that an admitted event may take to a subscriber, on a busy machine, before the
subscriber's own node is stopped: its subscription ends with it, and the program is told so."""

BAD: Final = ("lost", "twice", "spurious", "wrong", "faults")
"""What must not be in the report."""

SETTLED: Final = 5.0
"""Seconds without a delivery after which no more is expected: longer than what is sent again takes
(`tree.retry`)."""

SHOWN: Final = 20
"""Lost events that the report names."""


class UpgradedNode:
    """A node whose program is replaced while its data folder stays."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.data = folder / name
        self.log = folder / f"{name}.log"
        self.address = f"127.0.0.1:{free_port(Random())}"
        self.token = ""  # with which it joins an overlay with keys
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, root: Path, protocol: int, peers: list[str]) -> None:
        """Run the code below `root`; `protocol`: 0, or the newest version that it offers."""
        command = [sys.executable, "node.py", "--listen", self.address, "--no-directory"]
        command += ["--data", str(self.data), "--no-trace"]
        config = self.data.with_suffix(".yaml")
        config.write_text(json.dumps({"links": {"protocol": protocol}} if protocol else {}))
        command += ["--config", str(config)]
        command += [word for peer in peers for word in ("--peer", peer)]
        command += ["--join", self.token] if self.token else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=root, stdout=log, stderr=log)

    def await_ready(self) -> None:
        """Wait until it has found its way into the overlay. Raises TimeoutError."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                with ControlClient.connect(self.data) as client:
                    if client.ask(GetStatus(0), Status).ready:
                        return
            except ControlError:
                pass
            time.sleep(0.1)
        raise TimeoutError(f"{self.name} is not ready; its log: {self.log}")

    def stop(self) -> int:
        """Ask it to leave in order, and wait for its end. Returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def canopy(self, root: Path, *words: str) -> str:
        """Run a command of the version below `root` with this node's data folder. Returns what it
        prints. Raises CalledProcessError."""
        command = [sys.executable, "-m", "canopy", *words, "--data", str(self.data)]
        done = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def checkout(name: str) -> Path:
    """The folder of that name, or one with the code of that commit, which is kept in build/old."""
    if Path(name).is_dir():
        return Path(name).resolve()
    found = subprocess.run(
        ["git", "rev-parse", "--short=10", f"{name}^{{commit}}"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    folder = ROOT / "build" / "old" / found.stdout.strip()
    if not folder.exists():
        packed = subprocess.run(
            ["git", "archive", name], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
            files.extractall(folder, filter="data")
    return folder


def upgrade(
    nodes: list[UpgradedNode],
    subscribers: list[CheckedSubscriber],
    ledger: Ledger,
    versions: list[list[int]],
    root: Path = ROOT,
) -> None:
    """Stop each node and start it with the code below `root`; the links' versions after each go to
    `versions`."""
    for number, node in enumerate(nodes):
        ledger.leave(node.name, time.monotonic())
        if any(subscriber.node == node.name for subscriber in subscribers):
            time.sleep(ON_ITS_WAY)  # what was accepted before is on its way, and owed
        code = node.stop()
        assert code == 0, f"{node.name} ended with {code}; its log: {node.log}"
        node.start(root, 0, [other.address for other in nodes if other is not node][:3])
        node.await_ready()
        for subscriber in subscribers:
            assert subscriber.is_subscribed.wait(PATIENCE), f"{subscriber.node}: no SUBACK"
        with ControlClient.connect(node.data) as client:
            peers = client.ask(GetPeers(0), Peers).peers
        spoken = sorted({p.protocol for p in peers if p.state == "CONNECTED"})
        versions.append(spoken)
        print(
            f"{number + 1} of {len(nodes)} run {root.name}, its links speak {spoken}",
            file=sys.stderr,
        )


def grow(nodes: list[UpgradedNode], old: Path | None, has_keys: bool) -> None:
    """Start all nodes with the old version, the first before the others, and wait until all are
    ready."""
    first, *others = nodes
    root, protocol = old or ROOT, 0 if old else OLDEST_PROTOCOL
    if has_keys:
        first.canopy(root, "keys", "init", "--overlay", "upgraded")
    first.start(root, protocol, [])
    first.await_ready()
    if has_keys:
        token = first.canopy(root, "keys", "invite", "--uses", str(len(others))).strip()
        for node in others:
            node.token = token
    for node in others:
        node.start(root, protocol, [other.address for other in nodes[:3] if other is not node])
    for node in others:
        node.await_ready()


def measure(
    count_: int, old: Path | None, back: bool, has_keys: bool, rate: float, folder: Path
) -> dict[str, Any]:
    """Grow, load, upgrade; what was owed, lost and repeated."""
    nodes = [UpgradedNode(f"n{number}", folder) for number in range(count_)]
    ledger, forth, again = Ledger(margin=0.0), list[list[int]](), list[list[int]]()
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(node.kill)
        grow(nodes, old, has_keys)
        subscribers = [
            CheckedSubscriber(
                node.name, str(node.data), ledger, (*range(n, len(SELECTORS), SUBSCRIBERS),)
            )
            for n, node in enumerate(nodes[:: max(1, count_ // SUBSCRIBERS)][:SUBSCRIBERS])
        ]
        publishers = [
            LoadPublisher(node.name, str(node.data), ledger, rate / 3, ENDLESS)
            for node in nodes[1::4][:3]
        ]
        with ControlClient.connect(nodes[0].data) as client:
            client.ask(AddStream(0, STREAM), Streams, PATIENCE)
        producers = [Producer(node.name, node.data, 0, BATCH, ROWS) for node in nodes[1:3]]
        members = [Sharing(node.name, node.data, 0) for node in nodes[:4:3]]
        for program in (*subscribers, *publishers):
            program.start()
            stack.callback(program.stop)
        for one in (*producers, *members):
            one.start()
            stack.callback(one.ends.set)
        for subscriber in subscribers:
            assert subscriber.is_subscribed.wait(PATIENCE), "no SUBACK"
        began = time.monotonic()
        upgrade(nodes, subscribers, ledger, forth)
        if old and back:
            upgrade(nodes, subscribers, ledger, again, old)
        took = time.monotonic() - began
        for publisher in publishers:
            publisher.stop()
        while time.monotonic() - ledger.last_arrival < SETTLED:
            time.sleep(0.2)
        rows = of_rows(producers, members, nodes[0].data)
    owed, missing = ledger.missing()
    return {
        "nodes": count_,
        "keys": has_keys,
        "old": str(old.name) if old else f"protocol {OLDEST_PROTOCOL}",
        "seconds": round(took, 1),
        "restarts": len(forth) + len(again),
        "receipts": ledger.receipts(),
        "owed": owed,
        "lost": len(missing),
        "missing": [(session.node, number) for number, session in missing[:SHOWN]],
        "twice": sum(session.duplicates for session in ledger.sessions),
        "spurious": sum(session.spurious for session in ledger.sessions),
        **rows,
        "errors": sorted({error for each in subscribers for error in each.errors}),
        "versions": forth,
        "versions_back": again,
        "mixed": sum(len(spoken) > 1 for spoken in forth),
    }


def of_rows(producers: list[Producer], members: list[Sharing], data: Path) -> dict[str, Any]:
    """Read the stream at a node: how many rows were acknowledged and how many the group has done
    with, and what is wrong with them."""
    for producer in producers:
        producer.ends.set()
    for producer in producers:
        producer.join(PATIENCE)
    account = Account()
    account.read(data, producers, 0)
    account.producers(producers)
    wait_on(
        lambda: account.shared <= {offset for each in members for offset in each.done},
        lambda: sum(len(each.done) for each in members),
        PATIENCE,
    )
    for member in members:
        member.ends.set()
    for member in members:
        member.join(PATIENCE)
    account.group(members)
    faults = [repr(each.fault) for each in (*producers, *members) if each.fault is not None]
    wrong = {what: n for what, n in account.wrong.items() if n}
    facts = account.facts
    shared = facts["rows of the group"]
    return {"rows": facts["acknowledged"], "shared": shared, "wrong": wrong, "faults": faults}


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if nothing was lost or repeated and all links speak the newest version at last."""
    given = parser(
        __doc__,
        nodes=(12, "nodes"),
        old=(str, "the old version: a commit, or the folder of a checkout"),
        back=(False, "and back to it, one by one"),
        keys=(False, "nodes with certificates, over TLS"),
        rate=(60.0, "events per second, in all"),
        keep=(Path, "folder where data and logs are kept"),
    ).parse_args(arguments)
    old = checkout(given.old) if given.old else None
    with tempfile.TemporaryDirectory(prefix="canopy-upgrade-") as folder:
        place = given.keep or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        found = measure(given.nodes, old, given.back, given.keys, given.rate, place)
    show(found, given)
    is_right = found["owed"] > 0 and found["rows"] > 0 and not any(map(found.get, BAD))
    return 0 if is_right and found["versions"][-1] == [PROTOCOL] else 1


if __name__ == "__main__":
    sys.exit(main())
