"""A node that answers every command as a script has it, for tests of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from canopy.cli.main import main
from overlay.client import (
    Attributes,
    Command,
    Delivered,
    Delivery,
    Done,
    Dropped,
    Event,
    Events,
    Explained,
    Failed,
    GetAttributes,
    GetEvents,
    GetPeers,
    GetRing,
    GetStatus,
    GetStreams,
    Located,
    Peers,
    Publish,
    Published,
    Reply,
    RingClusters,
    Status,
    Streams,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Where,
    Why,
)
from overlay.info import (
    ClientInfo,
    ClusterInfo,
    ExplanationLine,
    PeerInfo,
    Reason,
    ReplicaInfo,
    ShardInfo,
    StreamInfo,
    VirtualNodeInfo,
)

CLUSTER = ClusterInfo(
    "ff" * 20,
    "00" * 20,
    3,
    "a" * 16,
    "",
    ("b" * 16,),
    ("mag", "[x]"),
    {},
    192.0,
    ("b" * 16,),
    {"b" * 16: "disk: 97 [x]"},
)


def event(number: int, **attributes: Any) -> Event:
    return Event("a" * 16, 1, number, 1_000.5, {"id": f"e{number}", "type": "t", **attributes})


def streams_of(command: GetStreams) -> Reply:
    """Of the streams there is one, alarms."""
    if command.name not in ("", "alarms"):
        return Failed(command.request, "unknown", f"there is no stream {command.name}")
    replicas = tuple(
        ReplicaInfo(node * 16, f"127.0.0.1:{port}", state, region="[north]")
        for node, port, state in (("b", 2, "follows"), ("a", 1, "leads"))
    )
    shard = ShardInfo(0, "a" * 16, replicas)
    return Streams(command.request, (StreamInfo("alarms", "ab", "", 2, 0.0, 0, (shard,)),))


def answer(command: Command) -> Iterator[Reply]:
    n = command.request
    if isinstance(command, GetStatus):
        yield Status(
            n, "a" * 16, "127.0.0.1:1", True, False, 2, "primary", "ff" * 20, "11" * 20, 3, 4, 5, 0,
            6, "pivot", {"127.0.0.1:2": "refused"}, {"delivered": 7}, 4242, 61.0, "[b]x",
            clients=(ClientInfo(1, 77, 1_048_576, 20, 0, 0), ClientInfo(2, 78, 50, 40, 3_000, 9)),
            health="sub-healthy: cpu: 99 [x]",
        )  # fmt: skip
    elif isinstance(command, GetPeers):
        yield Peers(n, (PeerInfo("b" * 16, "127.0.0.1:3", "connected", 1, True, 10, 20),))
    elif isinstance(command, GetRing):
        yield RingClusters(n, (CLUSTER,), complete=False)
    elif isinstance(command, GetStreams):
        yield streams_of(command)
    elif isinstance(command, Where):
        tree = (VirtualNodeInfo("start", "5", "a" * 16, 2),)
        yield Located(n, command.attribute, CLUSTER, (3, 1), tree)
    elif isinstance(command, Why):
        if command.event == "nope":
            yield Failed(n, "unknown", "no such event here")
            return
        if command.event == "published":
            at = (("b" * 16, "127.0.0.1:7001"),)
            yield Explained(n, "x.1.9", "published", {}, (), (), at, 12, ("x.1.8", "x.1.7"))
            return
        if command.event == "elsewhere":
            yield Explained(n, "x.1.9", "elsewhere", {}, (), ())
            return
        verdicts = (
            ExplanationLine(0, "mag > 3", "false", "2 [x]"),
            ExplanationLine(1, "a = 1", "unknown", ""),
        )
        reason = Reason("s", "mine", "mag > 3 AND a = 1", False, "not all is true", verdicts)
        yield Explained(n, "x.1.1", command.event, {"mag": 2}, ("published here",), (reason,))
    elif isinstance(command, Unsubscribe):
        yield Done(n)
    elif isinstance(command, GetEvents):
        yield Events(n, (event(1, mag=4.5, place="Nome", felt=True),))
    elif isinstance(command, GetAttributes):
        yield Attributes(n, ("mag", "place", "odd name", "felt"))
    elif isinstance(command, Subscribe):
        yield Subscribed(n, "s1")
        for number, mag in enumerate((1, 2.5, None), 1):
            if number == 3:
                yield Dropped(0, "overflow", "9 deliveries were dropped", 9, "x", "y", 0.0, 1.0)
            yield Delivered(0, (Delivery("s1", event(number, mag=mag), "mag", "a", "b", 2, 1.5),))
    elif isinstance(command, Publish):
        refused = tuple((i, "no") for i, d in enumerate(command.events) if "bad" in d.attributes)
        yield Published(n, len(command.events), "x", 1, 1, refused)


def out_of(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert main(args) == code
    return capsys.readouterr().out
